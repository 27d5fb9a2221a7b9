"""Read what a run's Jobs say: their parts, what was done to them from outside, and what holds them back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.domain.model import iso
from penstock.domain.states import Reason, State
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects import Job, condition
from penstock.engines.kubernetes.state.pods import Intervention, PodRecord, is_own
from penstock.engines.shared.endings import UnitEnd


def has_condition(job: Job, *types: str) -> bool:
    return any(found and found.true for found in (condition(job.status.conditions, type_) for type_ in types))


def is_finished(job: Job) -> bool:
    return has_condition(job, "Complete", "Failed")


def is_failing(job: Job) -> bool:
    """Kubernetes ends all its pods because too many failed, or has done so."""
    return has_condition(job, "FailureTarget", "Failed")


def is_quiet(job: Job) -> bool:
    """Kubernetes makes no pods of it any more: it has ended, or it is suspended and the last pod is gone."""
    if job.metadata.deletion_timestamp or is_finished(job):
        return True
    status = job.status
    return job.spec.suspend and has_condition(job, "Suspended") and not status.active and not status.terminating


def is_array(job: Job) -> bool:
    return names.ARRAY_INDEX in job.labels or job.spec.backoff_limit_per_index is not None


def is_given_up(job: Job) -> bool:
    """It was stopped by its user, or a verdict ended all of it."""
    return names.STOP in job.annotations or names.VERDICT in job.annotations


# parts


@dataclass(frozen=True)
class RunParts:
    parts: tuple[int, ...]
    array: bool
    completed: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    """Indexes Kubernetes has counted, whether or not anyone saw their pods."""


def list_parts(jobs: Sequence[Job], pods: Mapping[int, PodRecord]) -> RunParts:
    """Return the parts its Jobs have; if someone deleted the Jobs, those whose pods were seen."""
    if not jobs:
        return RunParts(tuple(sorted(pods)), array=any(record.array for record in pods.values()))
    parts: set[int] = set()
    completed: set[int] = set()
    failed: set[int] = set()
    for job in jobs:
        if names.ARRAY_INDEX in job.labels:
            own = names.part_of(job)
            parts.add(own)
            completed |= {own} if job.status.succeeded else set()
            failed |= {own} if is_failing(job) else set()
        else:
            parts |= set(range(min(job.completions, names.MOST_PARTS)))
            completed |= read_indexes(job.status.completed_indexes)
            failed |= read_indexes(job.status.failed_indexes)
    array = any(is_array(job) for job in jobs)
    return RunParts(tuple(sorted(parts)), array, frozenset(completed), frozenset(failed))


def part_of_job(job: Job, index: int) -> int:
    """Return which part of the run the pod is that Kubernetes counts as this index of the Job."""
    return names.part_of(job) if names.ARRAY_INDEX in job.labels else index


def read_indexes(text: str) -> set[int]:
    """Read Kubernetes' short form of a set of indexes, `0,3-5`."""
    found: set[int] = set()
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if first.isdecimal():
            found |= set(range(int(first), int(last if last.isdecimal() else first) + 1))
    return found


def select_current_pods(jobs: Sequence[Job], pods: Mapping[int, PodRecord]) -> dict[int, PodRecord]:
    """Leave out the pods that were taken away when the Job was suspended: it makes new ones when it goes on."""
    asked = read_intervention(jobs)
    if not jobs or asked.stopped or asked.verdict or read_part_verdicts(jobs):
        return dict(pods)
    moments = [found.last_transition_time for job in jobs if (found := condition(job.status.conditions, "Suspended"))]
    if any(job.spec.suspend for job in jobs):
        moments.append(datetime.max.replace(tzinfo=UTC))
    moment = max((known for known in moments if known), default=None)
    return {part: record for part, record in pods.items() if not _was_taken_away(record, moment)}


def _was_taken_away(record: PodRecord, moment: datetime | None) -> bool:
    if moment is None or record.created is None or record.created >= moment:
        return False
    return bool(record.deleting or record.gone_at) and not is_own(record)


# what was done to it


def read_intervention(jobs: Sequence[Job]) -> Intervention:
    limits = [job.annotations.get(names.MAX_DURATION, "") for job in jobs]
    return Intervention(
        stopped=any(names.STOP in job.annotations for job in jobs),
        verdict=next((found for job in jobs if (found := _verdict(job, names.VERDICT))), None),
        job_deleted=not jobs or all(job.metadata.deletion_timestamp for job in jobs),
        max_duration=next((int(limit) for limit in limits if limit.isdecimal()), None),
    )


def read_part_verdicts(jobs: Sequence[Job]) -> dict[int, UnitEnd]:
    """Return the verdicts on single parts: an index of an array, or a node that was lost."""
    prefix = f"{names.VERDICT}-"
    found = {}
    for job in jobs:
        for name in job.annotations:
            part = name.removeprefix(prefix)
            if name.startswith(prefix) and part.isdecimal() and (said := _verdict(job, name)):
                found[int(part)] = said
    return found


def _verdict(job: Job, annotation: str) -> UnitEnd | None:
    text = job.annotations.get(annotation)
    if text is None:
        return None
    try:
        said = json.loads(text)
        return UnitEnd(State.CRASHED, Reason(said["reason"]), str(said["message"]))
    except (ValueError, LookupError, TypeError):
        return UnitEnd(State.CRASHED, Reason.LAUNCH_FAILED, "The server gave it up.")


# Jobs that make no pods for now


@dataclass(frozen=True)
class PlacementRecord:
    """The annotation of a Job that is suspended until its nodes have room."""

    tries: int
    """How often its nodes gave their places back."""
    again: datetime | None
    """When it is tried again at the latest."""


def read_placement(job: Job) -> PlacementRecord | None:
    try:
        said = json.loads(job.annotations.get(names.PLACEMENT, ""))
        again = datetime.fromisoformat(said["again"]).astimezone(UTC)
        return PlacementRecord(int(said["tries"]), again)
    except (ValueError, LookupError, TypeError):
        return None


def write_placement(tries: int, again: datetime) -> str:
    return json.dumps({"tries": tries, "again": iso(again)})


def awaits_product(job: Job) -> bool:
    """When it was made no node had the GPUs it asks for, so it has made no pods yet."""
    ours = names.PRODUCTS in job.annotations and names.QUEUE not in job.labels and read_placement(job) is not None
    return ours and job.spec.suspend and job.status.start_time is None
