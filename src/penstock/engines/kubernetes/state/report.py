"""Compute the engine's report about a run from a snapshot of it. Nothing here asks the cluster or changes anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from penstock.domain.states import WAITING, Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import Presence, Report, Run
from penstock.engines.kubernetes.api.objects import Job, Pod
from penstock.engines.kubernetes.state.jobs import (
    RunParts,
    is_failing,
    is_quiet,
    list_parts,
    read_intervention,
    read_part_verdicts,
)
from penstock.engines.kubernetes.state.pods import Intervention, PodRecord, find_peak, is_own, judge_end, timed_out
from penstock.engines.shared.endings import UnitEnd
from penstock.engines.shared.exit_codes import describe

SECOND = timedelta(milliseconds=999)
ORDER = [State.DENIED, State.QUEUED, State.ASSIGNED, State.PULLING, State.LAUNCHING, State.LAUNCHED]
"""The states before the start, from the furthest to the nearest."""


@dataclass(frozen=True)
class WaitReason:
    """Why a part has not started."""

    state: State
    reason: Reason
    message: str | None = None
    ends_as: Reason | None = None
    """It will not mend itself: what it ends with if it does not change."""
    at_once: bool = False
    """It is given up at once, without patience."""
    since: datetime | None = None
    """When that began, where Kubernetes tells."""


@dataclass(frozen=True)
class Wait:
    """A part that has not started, with its Job, and its pod if it has one."""

    reason: WaitReason
    job: Job
    pod: Pod | None = None
    ends_at: datetime | None = None
    """When it is given up; None if it may wait."""

    @property
    def message(self) -> str | None:
        if self.ends_at is None or self.reason.at_once:
            return self.reason.message
        return f"{self.reason.message}; if that does not change it ends at {self.ends_at.astimezone():%H:%M:%S}"


@dataclass(frozen=True)
class LogProgress:
    stored: bool = True
    """All that the part printed is on the server's disk."""
    printed: datetime | None = None
    """When it last printed something: Kubernetes knows ends to the second, logs know more."""


NO_LOG = LogProgress()


@dataclass(frozen=True)
class Snapshot:
    """All that is known of a run at one moment."""

    run: Run
    jobs: Sequence[Job]
    pods: Mapping[int, PodRecord]
    """The newest pod of each part."""
    now: datetime
    waits: Mapping[int, Wait] = field(default_factory=dict)
    """The parts that have not started."""
    logs: Mapping[int, LogProgress] = field(default_factory=dict)
    """The parts that have begun to print."""
    lost_nodes: frozenset[str] = frozenset()
    """Nodes that do not answer, or are gone."""
    gives_back: datetime | None = None
    """When the nodes that have a place give it back."""
    trouble: str | None = None
    """Why what is known may be old."""

    def is_lost(self, record: PodRecord) -> bool:
        """Its node does not answer, and the cluster has given the pod up or has waited in vain for its end."""
        if record.over or record.node not in self.lost_nodes or not record.deleting:
            return False
        return bool(record.disrupted) or (record.due is not None and record.due < self.now)


@dataclass
class _Facts:
    snapshot: Snapshot
    shape: RunParts
    asked: Intervention
    verdicts: Mapping[int, UnitEnd]
    failing: bool
    """Kubernetes ends all of it because one failed."""
    quiet: bool
    """Kubernetes makes no pods of it any more."""
    units: dict[int, Unit] = field(default_factory=dict)


def compute_report(snapshot: Snapshot) -> Report:
    if not snapshot.jobs and not snapshot.pods:
        return Report(presence=Presence.absent)
    facts = _Facts(
        snapshot,
        list_parts(snapshot.jobs, snapshot.pods),
        read_intervention(snapshot.jobs),
        read_part_verdicts(snapshot.jobs),
        failing=any(is_failing(job) for job in snapshot.jobs),
        quiet=all(is_quiet(job) for job in snapshot.jobs),
    )
    blamed = _blame(facts)
    for part in facts.shape.parts:
        facts.units[part] = _unit(facts, part, blamed)
    units = tuple(facts.units.values())
    if all(unit.ended_at for unit in units):
        stored = all(snapshot.logs.get(part, NO_LOG).stored for part in facts.shape.parts)
        return Report(presence=Presence.ended if stored else Presence.running, units=units)
    if _has_begun(facts):
        return _running_report(facts, units)
    return _waiting_report(facts)


def _running_report(facts: _Facts, units: tuple[Unit, ...]) -> Report:
    """Report the units that have begun, and why the first of the others waits."""
    message = facts.snapshot.trouble
    if facts.shape.array:
        waits = [unit for unit in units if not unit.started_at and not unit.ended_at]
        first = next((unit for unit in waits if unit.index in facts.snapshot.pods and unit.message), None)
        message = message or (f"index {first.index} waits: {first.message}" if first else None)
        units = tuple(unit for unit in units if unit.started_at or unit.ended_at)
    return Report(presence=Presence.running, units=units, message=message)


# which node ended the others


def _blame(facts: _Facts) -> tuple[int, str] | None:
    """Find the node whose end ended the others, and the sentence for those."""
    snapshot, several = facts.snapshot, not facts.shape.array and len(facts.shape.parts) > 1
    if not several or facts.asked.stopped or facts.asked.verdict:
        return None
    over = [record for record in snapshot.pods.values() if record.over or snapshot.is_lost(record)]
    failed = [record for record in over if record.exit_code != 0 or timed_out(record) or record.reason]
    own = [record for record in failed if is_own(record) or timed_out(record) or record.reason]
    taken = [record for record in failed if record.disrupted or snapshot.is_lost(record)]
    first = min(own or taken or failed, key=_order, default=None)
    return (first.part, f"{_describe_end(snapshot, first)}; the others were stopped.") if first else None


def _order(record: PodRecord) -> tuple[int, float, int]:
    """Sort pods that were taken away by when that began, and those that ended by themselves by their end."""
    ended = record.ended_at or record.gone_at
    return (record.deleting, ended.timestamp() if ended else math.inf, record.part)


def _describe_end(snapshot: Snapshot, record: PodRecord) -> str:
    node = f"Node {record.part}"
    found = judge_end(record, Intervention(), lost=snapshot.is_lost(record))
    if found.reason is Reason.NODE_LOST:
        return f"{node} was lost with {record.node}"
    if found.reason is Reason.DELETED_OUTSIDE:
        return f"The pod of node {record.part} was deleted in the cluster"
    if found.reason is Reason.DISK_LIMIT:
        return f"{node} went over its disk limit"
    if found.reason is Reason.EVICTED:
        return f"{node} lost its place"
    return f"{node} ended with {describe(found.exit_code or 0)}"


# one unit


def _unit(facts: _Facts, part: int, blamed: tuple[int, str] | None) -> Unit:
    snapshot, record = facts.snapshot, facts.snapshot.pods.get(part)
    if record is None:
        return _never_seen(facts, part, blamed)
    lost = snapshot.is_lost(record)
    if not record.over and not lost:
        return _alive(facts, part, record)
    wanted = facts.asked
    if part in facts.verdicts:
        wanted = Intervention(verdict=facts.verdicts[part])
    found = judge_end(record, wanted, lost)
    if blamed and blamed[0] != part and not is_own(record) and not record.reason and not timed_out(record):
        found = _ended_by_another(facts, blamed, record.exit_code)
    return _ended(facts, part, found, record)


def _ended_by_another(facts: _Facts, blamed: tuple[int, str], code: int | None) -> UnitEnd:
    first = facts.snapshot.pods[blamed[0]]
    if timed_out(first):  # all have the same time
        return judge_end(first, facts.asked)
    return UnitEnd(State.STOPPED, Reason.ANOTHER_NODE_ENDED, blamed[1], code)


def _never_seen(facts: _Facts, part: int, blamed: tuple[int, str] | None) -> Unit:
    """Report a part without a pod: it has none yet, or its pod came and went while no server ran."""
    wanted, shape = facts.asked, facts.shape
    if part in shape.completed:
        return _ended(facts, part, UnitEnd(State.EXITED, Reason.FINISHED, None, 0))
    if part in facts.verdicts and (part in shape.failed or facts.quiet):
        return _ended(facts, part, facts.verdicts[part])
    if wanted.verdict and facts.quiet:
        return _ended(facts, part, wanted.verdict)
    if wanted.stopped and facts.quiet:
        said = "never started" if shape.array else None
        return _ended(facts, part, UnitEnd(State.STOPPED, Reason.STOPPED_BY_USER, said))
    if blamed:
        return _ended(facts, part, _ended_by_another(facts, blamed, None))
    if part in shape.failed or (facts.failing and not shape.array):
        said = "It failed; its pod was gone before it could be seen how."
        return _ended(facts, part, UnitEnd(State.CRASHED, Reason.OUTCOME_UNKNOWN, said, 1))
    return _not_started(facts, part)


def _alive(facts: _Facts, part: int, record: PodRecord) -> Unit:
    if record.started_at:
        said = f"Its node {record.node} does not answer." if record.node in facts.snapshot.lost_nodes else None
        running = _open(facts, part, State.RUNNING, Reason.STARTED, said, record.started_at)
        return running.model_copy(update={"node": record.node or None})
    return _not_started(facts, part)


def _not_started(facts: _Facts, part: int) -> Unit:
    wait = facts.snapshot.waits[part]
    return _open(facts, part, wait.reason.state, wait.reason.reason, wait.message)


def _open(
    facts: _Facts, part: int, state: State, reason: Reason, message: str | None, started: datetime | None = None
) -> Unit:
    return Unit(**_place(facts, part), state=state, reason=reason, message=message, started_at=started)


def _ended(facts: _Facts, part: int, found: UnitEnd, record: PodRecord | None = None) -> Unit:
    snapshot = facts.snapshot
    started = record.started_at if record else None
    at = _end_time(snapshot, part, record) if record else snapshot.now
    return Unit(
        **_place(facts, part),
        state=found.state,
        reason=found.reason,
        message=found.message,
        exit_code=found.exit_code,
        started_at=started,
        ended_at=max(at, started) if started else at,
        peak_memory_bytes=find_peak(record) if record else None,
        node=(record.node or None) if record else None,
    )


def _end_time(snapshot: Snapshot, part: int, record: PodRecord) -> datetime:
    known, printed = record.ended_at, snapshot.logs.get(part, NO_LOG).printed
    if known is None:
        return record.gone_at or printed or snapshot.now
    return max(known, min(printed, known + SECOND)) if printed else known


def _place(facts: _Facts, part: int) -> dict[str, Any]:
    index, rank = (part, 0) if facts.shape.array else (0, part)
    return {"attempt": facts.snapshot.run.attempt, "index": index, "rank": rank}


# the whole run, before it starts


def _has_begun(facts: _Facts) -> bool:
    """Several nodes have begun when all have started; an array, when one index has."""
    started = [unit.started_at is not None for unit in facts.units.values()]
    if facts.shape.array or any(unit.ended_at for unit in facts.units.values()):
        return any(started) or any(unit.ended_at for unit in facts.units.values())
    return all(started)


def _waiting_report(facts: _Facts) -> Report:
    snapshot = facts.snapshot
    if snapshot.trouble:
        return _waiting_for(State.QUEUED, Reason.CLUSTER_UNREACHABLE, snapshot.trouble)
    waits = {part: unit for part, unit in facts.units.items() if unit.started_at is None}
    slowest = min(waits, key=lambda part: (ORDER.index(waits[part].state), part))
    unit, total = waits[slowest], len(facts.units)
    placed = sum(bool(record.node) for record in snapshot.pods.values())
    if unit.state in WAITING and 0 < placed < total and not facts.shape.array:
        return _waiting_for(State.QUEUED, Reason.PARTLY_PLACED, _partly(snapshot, placed, total, slowest, unit.message))
    message = unit.message
    if total > 1 and not facts.shape.array and unit.state not in WAITING and message:
        message = f"node {slowest}: {message}"
    return _waiting_for(unit.state, unit.reason or Reason.SUBMITTED, message)


def _partly(snapshot: Snapshot, placed: int, total: int, waits: int, why: str | None) -> str:
    have = "have" if placed > 1 else "has"
    said = f"{placed} of {total} nodes {have} a place; node {waits}: {why or 'it waits'}"
    if snapshot.gives_back:
        said += f"; all give theirs back at {snapshot.gives_back.astimezone():%H:%M:%S} if that does not change"
    return said


def _waiting_for(state: State, reason: Reason, message: str | None) -> Report:
    return Report(presence=Presence.waiting, state=state, reason=reason, message=message)
