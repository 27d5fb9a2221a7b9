"""What engines have in common where they say what GPUs do, and whom they tell that it cannot be seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.domain.workloads import Spec, Workload
from penstock.engines.base import GpuUse
from penstock.wire.measures import GpuMeasure

IDLE_UNSEEN = "idle_timeout: what GPUs do is not seen here, so nothing is called idle"
IDLE_PARTLY_UNSEEN = "idle_timeout: on some nodes what GPUs do is not seen, so nothing is called idle there"


def by_place(workloads: Iterable[Workload], gpus: Mapping[str, GpuMeasure]) -> GpuUse:
    """Where our scheduler gives out GPUs: those of its places, among all that are seen, by uuid."""
    return {each.id: tuple(gpus.get(uuid) for place in each.gpus for uuid in place) for each in workloads}


def idle_notices(spec: Spec, gpus_seen: Sequence[bool]) -> list[str]:
    """`gpus_seen` is of each node that has some, whether it can be seen what they do."""
    if spec.idle_timeout is None or all(gpus_seen):
        return []
    return [IDLE_PARTLY_UNSEEN if any(gpus_seen) else IDLE_UNSEEN]
