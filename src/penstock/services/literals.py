"""Claims of the cluster that Penstock did not make, mounted by their own name: what stands for them in a record."""

from __future__ import annotations

PREFIX = "claim/"


def literal_id(claim: str) -> str:
    return f"{PREFIX}{claim}"


def claim_of(volume_id: str) -> str | None:
    """The claim's own name, or None for a volume that has a record."""
    return volume_id.removeprefix(PREFIX) if volume_id.startswith(PREFIX) else None
