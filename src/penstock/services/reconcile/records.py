"""Write what a step found into the record, each time in one transaction on the current row.

A step that comes too late, because its workload was stopped, deleted or is in another attempt, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from penstock.domain.attempts import (
    KEPT,
    NextAttempt,
    Outcome,
    keep_recorded_ends,
    latest,
    next_attempt,
    outcome,
    progress,
)
from penstock.domain.model import now
from penstock.domain.states import MOVES, Reason, State
from penstock.domain.volumes import Phase
from penstock.domain.workloads import Progress, Unit, Wants, Workload
from penstock.engines.base import Step
from penstock.errors import NotFound
from penstock.store.session import Store
from penstock.store.transaction import storable

UNPLACED: dict[str, Any] = {"gpus": (), "cpusets": (), "counted": (), "master_port": None}
"""The fields of a workload that has no place any more. Where it was is still of interest."""
SHORT_ID = 12
"""How many letters of a container's id Docker shows and takes."""
SEEN_RUNNING = frozenset({State.RUNNING, State.REQUESTED_CANCEL})
SPEC_LIMIT = 128 * 1024
RECORD_LIMIT = SPEC_LIMIT + 32 * 1024
"""Bytes of a workload's record that an engine keeps beside its run, and of what was asked for in it."""


def record_of(workload: Workload) -> str:
    """Return the record for an engine that keeps it. What the submitter was told is left out where it is too long."""
    record = workload.model_dump_json(exclude_defaults=True)
    if len(record.encode()) <= RECORD_LIMIT:
        return record
    return workload.model_dump_json(exclude_defaults=True, exclude={"notices", "message"})


def current(tx: Store, workload: Workload) -> Workload | None:
    """Return the record as it is now; None if it is not about this attempt any more."""
    found = tx.workloads.get(workload.id)
    if found is None:
        raise NotFound(f"Task {workload.id} not found")
    return None if found.ended or found.attempt != workload.attempt else found


def write_waiting(tx: Store, workload: Workload, state: State, reason: Reason, message: str | None) -> Workload:
    found = current(tx, workload)
    if found is None or found.wants is Wants.STOP:
        return found or workload
    if state not in MOVES[found.state]:
        state = State.QUEUED  # from RUNNING there is only one way back
    return tx.workloads.move(found, state, reason, message, launched=found.attempt)


def write_steps(tx: Store, workload: Workload, steps: Sequence[Step]) -> Workload:
    """Record the states it passed on its way, as far as the table lets it."""
    found = current(tx, workload)
    if found is None or found.wants is Wants.STOP:
        return found or workload
    for step in steps:
        if step.state in MOVES[found.state]:
            found = tx.workloads.move(found, step.state, step.reason, step.message, launched=found.attempt)
    return found


def write_doubt(tx: Store, workload: Workload, message: str) -> Workload:
    """Record that nobody can tell what it does now. It keeps its place, and is asked for again."""
    found = current(tx, workload)
    if found is None or found.wants is Wants.STOP:
        return found or workload
    if (found.state, found.reason) == (State.UNKNOWN, Reason.NODE_LOST):
        return write_message(tx, found, message)
    return tx.workloads.move(found, State.UNKNOWN, Reason.NODE_LOST, message, ended_at=None)


def write_message(tx: Store, workload: Workload, message: str | None) -> Workload:
    """Record a new message; that is no new state, and no line of its history. One that is to stop by now keeps its
    own."""
    found = current(tx, workload)
    message = None if message is None else storable(message)
    if found is None or found.wants is not workload.wants or found.message == message:
        return found or workload
    said = found.model_copy(update={"message": message, "updated_at": now()})
    tx.workloads.update(said)
    return said


def first_message(tx: Store, workload: Workload) -> str | None:
    """Return the message with which it came into the state it is in."""
    lines = reversed(tx.workloads.history(workload.id))
    return next((line.message for line in lines if line.state is workload.state), workload.message)


def vanished_message(tx: Store, workload: Workload) -> str | None:
    """Return the message for one that is to stop and of which nothing is there. One that was in doubt may have run
    without anyone seeing it."""
    if workload.started_at is not None:
        return workload.message
    lines = reversed(tx.workloads.history(workload.id))
    before = next((line.state for line in lines if line.state is not State.REQUESTED_CANCEL), None)
    if before is State.UNKNOWN:
        return "stopped; nothing of it is left, so whether it had run is not known"
    return "stopped before it started"


def write_running(tx: Store, workload: Workload, units: tuple[Unit, ...], said: str | None = None) -> Workload:
    found = current(tx, workload)
    if found is None or found.state in SEEN_RUNNING:
        return found or workload
    units, so_far = _written(tx, found, units)
    _has_volumes(tx, found)
    began = min(unit.started_at for unit in units if unit.started_at)
    return tx.workloads.move(
        found,
        State.RUNNING,
        Reason.STARTED,
        said,
        started_at=began,
        launched=found.attempt,
        progress=so_far,
        containers=_containers(found, units),
        hosts=found.hosts or _nodes(units),
    )


def write_progress(tx: Store, workload: Workload, changed: Sequence[Unit], said: str | None = None) -> Workload:
    """Record how far it has come and a new message; that is no new state, and no line of its history."""
    found = current(tx, workload)
    if found is None:
        return workload
    said = (None if said is None else storable(said)) if found.state is State.RUNNING else found.message
    if said is None and found.reason is Reason.GPUS_IDLE:
        said = found.message
    _, counted = _written(tx, found, changed)
    containers = found.containers
    if changed and not found.spec.array:  # nodes start one after the other
        containers = _containers(found, tx.workloads.units(found.id, found.attempt))
    if (counted, said, containers) == (found.progress, found.message, found.containers):
        return found
    update = {"progress": counted, "message": said, "containers": containers, "updated_at": now()}
    moved = found.model_copy(update=update)
    tx.workloads.update(moved)
    return moved


def write_put_back(tx: Store, workload: Workload, reason: Reason, message: str, seconds: float = 0) -> Workload:
    """Record that nothing of it was started: it waits again, so many seconds at least."""
    found = current(tx, workload)
    if found is None or found.wants is Wants.STOP:
        return found or workload
    return tx.workloads.move(
        found,
        State.QUEUED,
        reason,
        message,
        launched=min(found.launched, found.attempt - 1),
        not_before=now() + timedelta(seconds=seconds) if seconds else None,
        hosts=(),
        containers=(),
        **UNPLACED,
    )


def write_end(tx: Store, workload: Workload, end: Outcome | None, units: tuple[Unit, ...] = ()) -> Workload:
    """End the attempt, as its units say if nothing else does, and begin the next if there is one: all or nothing.

    One that was never seen running but did run gets its RUNNING line first: history has no holes.
    """
    found = current(tx, workload)
    if found is None:
        return tx.workloads.get(workload.id) or workload
    if end is not None and not units:
        units = _left(tx, found, end)
    adopted = (found.state, found.reason) == (State.REQUESTED_LAUNCH, Reason.ADOPTED)
    units, so_far = _written(tx, found, units)
    began = min((unit.started_at for unit in units if unit.started_at), default=None)
    if began and found.state not in SEEN_RUNNING:
        where: dict[str, Any] = {"containers": _containers(found, units), "hosts": found.hosts or _nodes(units)}
        found = tx.workloads.move(found, State.RUNNING, Reason.STARTED, started_at=began, **where)
        _has_volumes(tx, found)
    if end is None:
        array = found.spec.array
        end = outcome(latest(tx.workloads.units(found.id)) if array else units, array)
    if end.state is State.STOPPED and found.wants is Wants.STOP and found.reason is Reason.GPUS_IDLE:
        end = replace(end, reason=found.reason, message=found.message)
    ended = tx.workloads.move(
        found,
        end.state,
        end.reason,
        end.message,
        exit_code=end.exit_code,
        **UNPLACED,
        launched=found.attempt if units else found.launched,
        progress=so_far,
        **_over(units),
    )
    after = None if adopted else next_attempt(found, end, units)  # the next may be on a host that was not seen yet
    return begin_attempt(tx, ended, after) if after else ended


def _written(tx: Store, workload: Workload, told: Sequence[Unit]) -> tuple[tuple[Unit, ...], Progress | None]:
    """Return the units as they are kept from now on, and how far an array has come: an end in the records stays."""
    array = workload.spec.array
    known = tx.workloads.units(workload.id, None if array else workload.attempt) if array or told else ()
    units = keep_recorded_ends(known, told)
    tx.workloads.set_units(workload.id, units)
    return units, progress(latest((*known, *units))) if array else None


def _has_volumes(tx: Store, workload: Workload) -> None:
    """Record that the volumes are there that are made on their first use: it runs."""
    for id_ in workload.volume_ids.values():
        volume = tx.volumes.get(id_)
        if volume and volume.phase is Phase.Pending and not volume.made:
            tx.volumes.update(volume.model_copy(update={"phase": Phase.Bound, "made": True, "message": None}))


def _over(units: Sequence[Unit]) -> dict[str, Any]:
    """Return when the last unit ended, however much later that is written; nothing where one has no end of its own."""
    write_end = [unit.ended_at for unit in units if unit.ended_at]
    return {"ended_at": min(max(write_end), now())} if write_end and len(write_end) == len(units) else {}


def _left(tx: Store, workload: Workload, end: Outcome) -> tuple[Unit, ...]:
    """Return the attempt's units as they were last seen, those that had not ended with the end of the whole."""
    seen = tx.workloads.units(workload.id, workload.attempt)
    over = {"state": end.state, "reason": end.reason, "message": end.message, "ended_at": now()}
    return tuple(unit if unit.ended_at else unit.model_copy(update=over) for unit in seen)


def begin_attempt(tx: Store, ended: Workload, after: NextAttempt) -> Workload:
    if not ended.spec.array and ended.attempt >= KEPT:
        tx.workloads.forget_units(ended.id, ended.attempt + 2 - KEPT)
    return tx.workloads.move(
        ended,
        State.QUEUED,
        after.reason,
        after.message,
        wants=Wants.RUN,
        attempt=ended.attempt + 1,
        indexes=after.indexes,
        retried=after.retried,
        requeued=after.requeued,
        queued_at=now(),
        not_before=now() + timedelta(seconds=after.wait) if after.wait else None,
        exit_code=None,
        started_at=None,
        ended_at=None,
        hosts=(),
        containers=(),
        **UNPLACED,
    )


def _containers(workload: Workload, units: tuple[Unit, ...]) -> tuple[str, ...]:
    """Return the containers by rank; none of an array, for one would be one of very many."""
    if workload.spec.array:
        return ()
    return tuple(unit.container[:SHORT_ID] for unit in sorted(units, key=lambda unit: unit.rank) if unit.container)


def _nodes(units: tuple[Unit, ...]) -> tuple[str, ...]:
    """Return the nodes that an engine chose: by rank, or those that an array uses."""
    found = [unit.node for unit in sorted(units, key=lambda unit: (unit.rank, unit.index)) if unit.node]
    return tuple(found) if len(found) == len({unit.rank for unit in units}) else tuple(dict.fromkeys(found))
