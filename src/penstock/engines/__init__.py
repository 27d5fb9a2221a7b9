"""Where volumes and workloads really are. Each engine is a folder that fulfils the protocol in base.py."""
