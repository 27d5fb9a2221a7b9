"""SkyPilot-style task YAML, read and written."""
