"""Tables in PWM's columns: what `pwmcli` shows, and `penstock` where a kind is named in PWM's words."""
