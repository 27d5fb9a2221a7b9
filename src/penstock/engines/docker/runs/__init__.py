"""Start, stop and remove runs, each step exactly once."""
