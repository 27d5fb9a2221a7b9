"""Keep users, groups and tokens, and find the account that work runs as."""
