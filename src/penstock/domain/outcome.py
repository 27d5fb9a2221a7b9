"""Derive a workload's end from the ends of its units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.domain.model import iso
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Array, Progress, Unit

FAILED = (State.CRASHED, State.STUCK)


@dataclass(frozen=True)
class Outcome:
    state: State
    reason: Reason
    message: str | None = None
    exit_code: int | None = None


def outcome(units: Sequence[Unit], array: Array | None = None) -> Outcome:
    """Return EXITED if all units ended with 0; otherwise the first failure, or else that it was stopped.

    `units` has each part once: of an array that ran in several attempts, the newest unit of each index.
    """
    if array:
        return _of_array(units, array)
    failed = [unit for unit in units if unit.state in FAILED]
    if failed:
        first = min(failed, key=lambda unit: (unit.ended_at is None, unit.ended_at, unit.rank))
        return Outcome(first.state, first.reason or Reason.PROGRAM_FAILED, _said(first, units), first.exit_code)
    doubtful = [unit for unit in units if unit.state is State.UNKNOWN]
    if doubtful:
        first = doubtful[0]
        return Outcome(State.UNKNOWN, first.reason or Reason.OUTCOME_UNKNOWN, _said(first, units), None)
    stopped = [unit for unit in units if unit.state is not State.EXITED]
    if stopped:
        first = stopped[0]
        return Outcome(State.STOPPED, first.reason or Reason.STOPPED_BY_USER, _said(first, units), None)
    return Outcome(State.EXITED, Reason.FINISHED, None, 0)


def latest(units: Iterable[Unit]) -> tuple[Unit, ...]:
    """Return only the newest attempt of each part, in order."""
    newest: dict[tuple[int, int], Unit] = {}
    for unit in units:
        known = newest.get((unit.index, unit.rank))
        if known is None or unit.attempt >= known.attempt:
            newest[unit.index, unit.rank] = unit
    return tuple(newest[part] for part in sorted(newest))


def keep_recorded_ends(known: Iterable[Unit], told: Iterable[Unit]) -> tuple[Unit, ...]:
    """Return the units that an engine reports now, but keep each end that is recorded: the engine may have forgotten
    it. Only a part that began anew since then is not over."""
    ends = {_part(unit): unit for unit in known if unit.ended_at and unit.reason is not Reason.OUTCOME_UNKNOWN}
    return tuple(unit if _is_news(unit, ends.get(_part(unit))) else ends[_part(unit)] for unit in told)


def _part(unit: Unit) -> tuple[int, int, int]:
    return unit.attempt, unit.index, unit.rank


def _is_news(unit: Unit, end: Unit | None) -> bool:
    """Compare times as they are written: a program may be over within a millisecond."""
    if end is None or end.ended_at is None:
        return True
    return unit.started_at is not None and iso(unit.started_at) > iso(end.ended_at)


def progress(units: Iterable[Unit]) -> Progress:
    """Count how far an array has come, from the newest unit of each index."""
    states = [unit.state for unit in units]
    failed = sum(state in (*FAILED, State.UNKNOWN) for state in states)
    return Progress(completed=states.count(State.EXITED), failed=failed, running=states.count(State.RUNNING))


def _of_array(units: Sequence[Unit], array: Array) -> Outcome:
    """A stop by a person wins: indexes that had not begun by then have neither failed nor completed."""
    by_index = sorted(units, key=lambda unit: unit.index)
    done = sum(unit.state is State.EXITED for unit in units)
    failed = [unit for unit in by_index if unit.state in FAILED]
    doubtful = [unit for unit in by_index if unit.state is State.UNKNOWN]
    stopped = [unit for unit in by_index if unit.state is State.STOPPED]
    if stopped or (not failed and not doubtful and done < array.count):
        reason = stopped[0].reason if stopped else None
        said = f"{done} of {array.count} indexes completed" + (f", {len(failed)} failed" if failed else "")
        return Outcome(State.STOPPED, reason or Reason.STOPPED_BY_USER, said)
    if failed:
        first = failed[0]
        said = f"{len(failed)} of {array.count} indexes failed; first: {_index(first)}"
        return Outcome(first.state, first.reason or Reason.PROGRAM_FAILED, said, first.exit_code)
    if doubtful:
        first = doubtful[0]
        said = f"the outcome of {len(doubtful)} of {array.count} indexes is not known; first: {_index(first)}"
        return Outcome(State.UNKNOWN, first.reason or Reason.OUTCOME_UNKNOWN, said)
    return Outcome(State.EXITED, Reason.FINISHED, None, 0)


def _index(unit: Unit) -> str:
    return f"index {unit.index}: {unit.message}" if unit.message else f"index {unit.index}"


def _said(unit: Unit, units: Sequence[Unit]) -> str | None:
    if unit.message is None or len(units) == 1:
        return unit.message
    return f"node {unit.rank}: {unit.message}"
