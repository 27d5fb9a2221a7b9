"""The state of a run: its directory is read into a snapshot, and the report is computed from that."""
