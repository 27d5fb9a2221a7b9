"""Compute the engine's report about a run from what the cluster shows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.domain.states import WAITING, Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import Presence, Report, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects.base import condition
from penstock.engines.kubernetes.api.objects.jobs import Job
from penstock.engines.kubernetes.state.endings import Intervention, UnitEnd, ending, is_own, peak_of, timed_out
from penstock.engines.kubernetes.state.last_seen import PodRecord
from penstock.engines.kubernetes.waiting.reasons import ORDER, WaitReason
from penstock.engines.shared.exit_codes import describe

SECOND = timedelta(milliseconds=999)


@dataclass(frozen=True)
class Snapshot:
    """All that is known of a run."""

    run: Run
    jobs: Sequence[Job]
    units: Mapping[int, PodRecord]
    """The newest pod of each part."""
    now: datetime
    why: Callable[[int], WaitReason]
    """What a part that has not started waits for."""
    kept: Callable[[int], bool] = lambda _: True
    """Whether all a part printed is stored."""
    printed: Callable[[int], datetime | None] = lambda _: None
    """When a part last printed something: Kubernetes knows ends to the second, logs know more."""
    lost_nodes: frozenset[str] = frozenset()
    """Nodes that do not answer, or are gone."""
    gives_back: datetime | None = None
    """When the nodes that have a place give it back."""
    trouble: str | None = None
    """Why what is known may be old."""


@dataclass(frozen=True)
class RunParts:
    parts: tuple[int, ...]
    array: bool
    completed: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    """Indexes Kubernetes has counted, whether or not anyone saw their pods."""


@dataclass
class _Reading:
    view: Snapshot
    shape: RunParts
    wanted: Intervention
    verdicts: Mapping[int, UnitEnd]
    failing: bool
    """Kubernetes ends all of it because one failed."""
    quiet: bool
    """Kubernetes makes no pods of it any more."""
    units: dict[int, Unit] = field(default_factory=dict)


def report(view: Snapshot) -> Report:
    if not view.jobs and not view.units:
        return Report(presence=Presence.absent)
    quiet = all(is_quiet(job) for job in view.jobs)
    reading = _Reading(view, parts_of_run(view), wanted(view.jobs), verdicts(view.jobs), _fails(view.jobs), quiet)
    blamed = _blame(reading)
    for part in reading.shape.parts:
        reading.units[part] = _unit(reading, part, blamed)
    units = tuple(reading.units.values())
    if all(unit.ended_at for unit in units):
        kept = all(view.kept(part) for part in reading.shape.parts)
        return Report(presence=Presence.ended if kept else Presence.running, units=units)
    if _has_begun(reading):
        return _running(reading, units)
    return _waiting(reading)


def _running(reading: _Reading, units: tuple[Unit, ...]) -> Report:
    """Of an array those that have begun; of the others the first that has no place says why."""
    message = reading.view.trouble
    if reading.shape.array:
        waits = [unit for unit in units if not unit.started_at and not unit.ended_at]
        first = next((unit for unit in waits if unit.index in reading.view.units and unit.message), None)
        message = message or (f"index {first.index} waits: {first.message}" if first else None)
        units = tuple(unit for unit in units if unit.started_at or unit.ended_at)
    return Report(presence=Presence.running, units=units, message=message)


# what was wanted of it


def parts_of_run(view: Snapshot) -> RunParts:
    """Its parts: those of its Jobs, or if someone deleted them those that were seen."""
    if not view.jobs:
        return RunParts(tuple(sorted(view.units)), array=any(seen.array for seen in view.units.values()))
    parts: set[int] = set()
    completed: set[int] = set()
    failed: set[int] = set()
    for job in view.jobs:
        if names.ARRAY_INDEX in job.labels:
            own = names.part_of(job)
            parts.add(own)
            completed |= {own} if job.status.succeeded else set()
            failed |= {own} if _fails([job]) else set()
        else:
            parts |= set(range(min(job.spec.completions or 1, names.MOST_PARTS)))
            completed |= indexes(job.status.completed_indexes)
            failed |= indexes(job.status.failed_indexes)
    array = any(is_array(job) for job in view.jobs)
    return RunParts(tuple(sorted(parts)), array, frozenset(completed), frozenset(failed))


def is_array(job: Job) -> bool:
    return names.ARRAY_INDEX in job.labels or job.spec.backoff_limit_per_index is not None


def part_of_job(job: Job, index: int) -> int:
    """Which part the pod is that Kubernetes counts as this index of the Job."""
    return names.part_of(job) if names.ARRAY_INDEX in job.labels else index


def current(jobs: Sequence[Job], units: Mapping[int, PodRecord]) -> dict[int, PodRecord]:
    """Without the pods that were there before the Job was last suspended or went on, and were taken away by that."""
    asked = wanted(jobs)
    if not jobs or asked.stopped or asked.verdict or verdicts(jobs):
        return dict(units)
    moments = [found.last_transition_time for job in jobs if (found := condition(job.status.conditions, "Suspended"))]
    if any(job.spec.suspend for job in jobs):
        moments.append(datetime.max.replace(tzinfo=UTC))
    moment = max((known for known in moments if known), default=None)
    return {part: seen for part, seen in units.items() if not _is_of_before(seen, moment)}


def _is_of_before(seen: PodRecord, moment: datetime | None) -> bool:
    if moment is None or seen.created is None or seen.created >= moment:
        return False
    return bool(seen.deleting or seen.gone_at) and not is_own(seen)


def indexes(text: str) -> set[int]:
    """Kubernetes' short form, `0,3-5`."""
    found: set[int] = set()
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if first.isdecimal():
            found |= set(range(int(first), int(last if last.isdecimal() else first) + 1))
    return found


def wanted(jobs: Sequence[Job]) -> Intervention:
    limits = [job.annotations.get(names.MAX_DURATION, "") for job in jobs]
    return Intervention(
        stopped=any(names.STOP in job.annotations for job in jobs),
        verdict=next((found for job in jobs if (found := _verdict(job, names.VERDICT))), None),
        job_deleted=not jobs or all(job.metadata.deletion_timestamp for job in jobs),
        max_duration=next((int(limit) for limit in limits if limit.isdecimal()), None),
    )


def verdicts(jobs: Sequence[Job]) -> dict[int, UnitEnd]:
    """On single indexes of an array; the others go on."""
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


def is_quiet(job: Job) -> bool:
    """It has ended, or was suspended and that is done: no pod of it is there, and none is on its way."""
    if job.metadata.deletion_timestamp or any(_has(job, name) for name in ("Complete", "Failed")):
        return True
    status = job.status
    return job.spec.suspend and _has(job, "Suspended") and not status.active and not status.terminating


def _has(job: Job, name: str) -> bool:
    found = condition(job.status.conditions, name)
    return found is not None and found.true


def _fails(jobs: Sequence[Job]) -> bool:
    return any(_has(job, name) for job in jobs for name in ("FailureTarget", "Failed"))


# who is to blame, where one ends all


def _blame(reading: _Reading) -> tuple[int, str] | None:
    """Of several nodes the one whose end ended the others, and the sentence for those."""
    view, several = reading.view, not reading.shape.array and len(reading.shape.parts) > 1
    if not several or reading.wanted.stopped or reading.wanted.verdict:
        return None
    over = [seen for seen in view.units.values() if seen.over or is_lost(view, seen)]
    failed = [seen for seen in over if seen.exit_code != 0 or timed_out(seen) or seen.reason]
    own = [seen for seen in failed if is_own(seen) or timed_out(seen) or seen.reason]
    taken = [seen for seen in failed if seen.disrupted or is_lost(view, seen)]
    first = min(own or taken or failed, key=_order, default=None)
    return (first.part, f"{_what_it_did(view, first)}; the others were stopped.") if first else None


def _order(seen: PodRecord) -> tuple[int, float, int]:
    """Those that were taken away in the order in which that began; of those that ended the earliest first."""
    ended = seen.ended_at or seen.gone_at
    return (seen.deleting, ended.timestamp() if ended else math.inf, seen.part)


def _what_it_did(view: Snapshot, seen: PodRecord) -> str:
    node = f"Node {seen.part}"
    found = ending(seen, Intervention(), lost=is_lost(view, seen))
    if found.reason is Reason.NODE_LOST:
        return f"{node} was lost with {seen.node}"
    if found.reason is Reason.DELETED_OUTSIDE:
        return f"The pod of node {seen.part} was deleted in the cluster"
    if found.reason is Reason.DISK_LIMIT:
        return f"{node} went over its disk limit"
    if found.reason is Reason.EVICTED:
        return f"{node} lost its place"
    return f"{node} ended with {describe(found.exit_code or 0)}"


def is_lost(view: Snapshot, seen: PodRecord) -> bool:
    """Its node does not answer, and the cluster has given it up or has waited in vain for its end."""
    if seen.over or seen.node not in view.lost_nodes or not seen.deleting:
        return False
    return bool(seen.disrupted) or (seen.due is not None and seen.due < view.now)


# one unit


def _unit(reading: _Reading, part: int, blamed: tuple[int, str] | None) -> Unit:
    view, seen = reading.view, reading.view.units.get(part)
    if seen is None:
        return _never_seen(reading, part, blamed)
    lost = is_lost(view, seen)
    if not seen.over and not lost:
        return _alive(reading, part, seen)
    wanted = reading.wanted
    if part in reading.verdicts:
        wanted = Intervention(verdict=reading.verdicts[part])
    found = ending(seen, wanted, lost)
    if blamed and blamed[0] != part and not is_own(seen) and not seen.reason and not timed_out(seen):
        found = _ended_with(reading, blamed, seen.exit_code)
    return _ended(reading, part, found, seen)


def _ended_with(reading: _Reading, blamed: tuple[int, str], code: int | None) -> UnitEnd:
    first = reading.view.units[blamed[0]]
    if timed_out(first):  # all have the same time
        return ending(first, reading.wanted)
    return UnitEnd(State.STOPPED, Reason.ANOTHER_NODE_ENDED, blamed[1], code)


def _never_seen(reading: _Reading, part: int, blamed: tuple[int, str] | None) -> Unit:
    """No pod of it is there, and none was seen: it has none yet, or it came and went while no server ran."""
    wanted, shape = reading.wanted, reading.shape
    if part in shape.completed:
        return _ended(reading, part, UnitEnd(State.EXITED, Reason.FINISHED, None, 0))
    if part in reading.verdicts and (part in shape.failed or reading.quiet):
        return _ended(reading, part, reading.verdicts[part])
    if wanted.verdict and reading.quiet:
        return _ended(reading, part, wanted.verdict)
    if wanted.stopped and reading.quiet:
        said = "never started" if shape.array else None
        return _ended(reading, part, UnitEnd(State.STOPPED, Reason.STOPPED_BY_USER, said))
    if blamed:
        return _ended(reading, part, _ended_with(reading, blamed, None))
    if part in shape.failed or (reading.failing and not shape.array):
        said = "It failed; its pod was gone before it could be seen how."
        return _ended(reading, part, UnitEnd(State.CRASHED, Reason.OUTCOME_UNKNOWN, said, 1))
    why = reading.view.why(part)
    return _open(reading, part, why.state, why.reason, why.message)


def _alive(reading: _Reading, part: int, seen: PodRecord) -> Unit:
    if seen.started_at:
        said = f"Its node {seen.node} does not answer." if seen.node in reading.view.lost_nodes else None
        running = _open(reading, part, State.RUNNING, Reason.STARTED, said, seen.started_at)
        return running.model_copy(update={"node": seen.node or None})
    why = reading.view.why(part)
    return _open(reading, part, why.state, why.reason, why.message)


def _open(
    reading: _Reading, part: int, state: State, reason: Reason, message: str | None, started: datetime | None = None
) -> Unit:
    return Unit(**_place(reading, part), state=state, reason=reason, message=message, started_at=started)


def _ended(reading: _Reading, part: int, found: UnitEnd, seen: PodRecord | None = None) -> Unit:
    view = reading.view
    started = seen.started_at if seen else None
    at = _end_time(view, part, seen) if seen else view.now
    return Unit(
        **_place(reading, part),
        state=found.state,
        reason=found.reason,
        message=found.message,
        exit_code=found.exit_code,
        started_at=started,
        ended_at=max(at, started) if started else at,
        peak_memory_bytes=peak_of(seen) if seen else None,
        node=(seen.node or None) if seen else None,
    )


def _end_time(view: Snapshot, part: int, seen: PodRecord) -> datetime:
    known, printed = seen.ended_at, view.printed(part)
    if known is None:
        return seen.gone_at or printed or view.now
    return max(known, min(printed, known + SECOND)) if printed else known


def _place(reading: _Reading, part: int) -> dict[str, Any]:
    index, rank = (part, 0) if reading.shape.array else (0, part)
    return {"attempt": reading.view.run.attempt, "index": index, "rank": rank}


# all of it, before it runs


def _has_begun(reading: _Reading) -> bool:
    """Several nodes have begun when all are there: until then those that are wait for the others."""
    started = [unit.started_at is not None for unit in reading.units.values()]
    if reading.shape.array or any(unit.ended_at for unit in reading.units.values()):
        return any(started) or any(unit.ended_at for unit in reading.units.values())
    return all(started)


def _waiting(reading: _Reading) -> Report:
    view = reading.view
    if view.trouble:
        return _says(State.QUEUED, Reason.CLUSTER_UNREACHABLE, view.trouble)
    waits = {part: unit for part, unit in reading.units.items() if unit.started_at is None}
    slowest = min(waits, key=lambda part: (ORDER.index(waits[part].state), part))
    unit, total = waits[slowest], len(reading.units)
    placed = sum(bool(seen.node) for seen in view.units.values())
    if unit.state in WAITING and 0 < placed < total and not reading.shape.array:
        return _says(State.QUEUED, Reason.PARTLY_PLACED, _partly(view, placed, total, slowest, unit.message))
    message = unit.message
    if total > 1 and not reading.shape.array and unit.state not in WAITING and message:
        message = f"node {slowest}: {message}"
    return _says(unit.state, unit.reason or Reason.SUBMITTED, message)


def _partly(view: Snapshot, placed: int, total: int, waits: int, why: str | None) -> str:
    have = "have" if placed > 1 else "has"
    said = f"{placed} of {total} nodes {have} a place; node {waits}: {why or 'it waits'}"
    if view.gives_back:
        said += f"; all give theirs back at {view.gives_back.astimezone():%H:%M:%S} if that does not change"
    return said


def _says(state: State, reason: Reason, message: str | None) -> Report:
    return Report(presence=Presence.waiting, state=state, reason=reason, message=message)
