"""How a run is: its directory is read into a snapshot, and the report is computed from that."""
