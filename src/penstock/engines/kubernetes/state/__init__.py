"""The state of a run, computed from what the cluster shows. Nothing here asks or changes anything."""
