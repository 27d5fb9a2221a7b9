"""The embedded engine: process trees in bubblewrap sandboxes, and volumes as directories, on one machine."""

from penstock.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
