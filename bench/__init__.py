"""Measures what the speed goals name, each beside an alternative measured in the same run. Nothing here is asserted."""
