"""The embedded engine: workloads are process trees in bubblewrap sandboxes, volumes are directories, on one machine."""

from penstock.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
