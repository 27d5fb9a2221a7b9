"""Penstock: volumes and workloads on AI clusters."""

__version__ = "0.1.0"
