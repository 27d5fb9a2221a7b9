"""Claims of the cluster that Penstock did not make, mounted by their own name: what stands for them in a record."""

from __future__ import annotations

from penstock.domain.volumes import Volume

PREFIX = "claim/"


def literal_id(claim: str) -> str:
    return f"{PREFIX}{claim}"


def claim_of(volume_id: str) -> str | None:
    """The claim's own name, or None for a volume that has a record."""
    return volume_id.removeprefix(PREFIX) if volume_id.startswith(PREFIX) else None


def is_literal(volume: Volume) -> bool:
    """Has it no record? A volume that was found again under a name that is taken has a claim of another name, too."""
    return volume.claim == volume.id
