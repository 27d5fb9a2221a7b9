"""The plan of a run: sandbox, mounts, identity, script and environment of each node."""
