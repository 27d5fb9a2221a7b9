"""Users, groups, tokens and the accounts work runs as."""
