"""The embedded engine: process trees in bubblewrap sandboxes, and volumes as directories, on one machine."""
