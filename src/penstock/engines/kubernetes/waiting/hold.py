"""The annotation of a Job that creates no pods for now, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.domain.model import iso
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects.jobs import Job


@dataclass(frozen=True)
class PlacementRecord:
    tries: int
    """How often its nodes gave their places back."""
    again: datetime | None


def read_placement(job: Job) -> PlacementRecord | None:
    try:
        said = json.loads(job.annotations.get(names.PLACEMENT, ""))
        again = datetime.fromisoformat(said["again"]).astimezone(UTC)
        return PlacementRecord(int(said["tries"]), again)
    except (ValueError, LookupError, TypeError):
        return None


def placement_text(tries: int, again: datetime) -> str:
    return json.dumps({"tries": tries, "again": iso(again)})


def awaits_product(job: Job) -> bool:
    """It has made no pods yet since no node had the GPUs it asks for, if there still is none."""
    ours = names.PRODUCTS in job.annotations and names.QUEUE not in job.labels and read_placement(job) is not None
    return ours and job.spec.suspend and job.status.start_time is None
