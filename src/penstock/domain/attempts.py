"""Derive a workload's end from the ends of its units, and decide what follows: another attempt, and when, or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.domain.model import iso
from penstock.domain.states import Reason, State
from penstock.domain.workloads import UNLIMITED, Array, Progress, Spec, Unit, Wants, Workload

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
        return _array_outcome(units, array)
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


def _array_outcome(units: Sequence[Unit], array: Array) -> Outcome:
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


# what follows

PROGRAM = frozenset(
    {Reason.PROGRAM_FAILED, Reason.SETUP_FAILED, Reason.OUT_OF_MEMORY, Reason.TIME_LIMIT, Reason.DISK_LIMIT}
)
"""Failures of the program itself, whatever ended it: `retries` counts them."""
PLACE = frozenset({Reason.NODE_LOST, Reason.EVICTED})
"""Failures of the place it ran in: `requeue` counts them."""
LONGEST_WAIT = 300
"""The longest pause between a failure and the next attempt in seconds: it doubles from 1 up to this."""
STEADY = 600
"""An attempt that ran for so many seconds did not fail at its start: the next one waits only a second again."""

KEPT = 20
"""The number of newest attempts whose units and logs are kept, so that one that is started again and again does not
fill the disk. All attempts of an array are kept, since each index may have run last in another one."""


@dataclass(frozen=True)
class NextAttempt:
    """The next attempt, and how long it waits; `indexes` as Workload has them."""

    reason: Reason
    message: str
    wait: int = 0
    indexes: tuple[int, ...] = ()
    retried: int = 0
    requeued: int = 0


def next_attempt(workload: Workload, end: Outcome, units: Sequence[Unit]) -> NextAttempt | None:
    """Return the attempt that comes after this end of the current one, whose units these are; None if there is none."""
    if workload.wants is not Wants.RUN:
        return None
    if workload.spec.array:
        return _of_array(workload, units)
    if workload.spec.restart and end.state is State.EXITED:
        return _restarted(workload, units)
    if end.reason in PROGRAM and _more(_retries(workload.spec), workload.retried):
        return _retried(workload, end, units)
    if end.reason in PLACE and _more(workload.requeues, workload.requeued):
        return _requeued(workload, end)
    return None


def _of_array(workload: Workload, units: Sequence[Unit]) -> NextAttempt | None:
    """Run again only the indexes that failed and have an attempt left."""
    spec = workload.spec
    failed = [unit for unit in units if unit.state is not State.EXITED]
    if not failed:
        return _restarted(workload, units) if spec.restart else None
    by_program = [u for u in failed if u.reason in PROGRAM] if _more(_retries(spec), workload.retried) else []
    by_place = [u for u in failed if u.reason in PLACE] if _more(workload.requeues, workload.requeued) else []
    again = sorted(unit.index for unit in (*by_program, *by_place))
    if not again or spec.array is None:
        return None
    end = outcome(units, spec.array)
    after = _retried(workload, end, units) if by_program else _requeued(workload, end)
    if by_program and by_place:
        after = replace(after, requeued=workload.requeued + 1)
    return replace(after, indexes=tuple(again))


def _retried(workload: Workload, end: Outcome, units: Sequence[Unit]) -> NextAttempt:
    left = _left(_retries(workload.spec), workload.retried + 1)
    wait = 1 if _was_steady(units) else min(2 ** min(workload.retried, 16), LONGEST_WAIT)
    message = _message(workload, left, end.message or "it failed")
    return NextAttempt(Reason.RETRY, message, wait, retried=workload.retried + 1, requeued=workload.requeued)


def _requeued(workload: Workload, end: Outcome) -> NextAttempt:
    left = _left(workload.requeues, workload.requeued + 1)
    message = _message(workload, left, end.message or "its node was lost")
    return NextAttempt(Reason.REQUEUED, message, retried=workload.retried, requeued=workload.requeued + 1)


def _restarted(workload: Workload, units: Sequence[Unit]) -> NextAttempt:
    wait = 1 if _was_steady(units) else min(2 ** min(workload.attempt - 1, 16), LONGEST_WAIT)
    message = _message(workload, None, "it finished and is to start again")
    return NextAttempt(Reason.RESTARTED, message, wait, retried=workload.retried, requeued=workload.requeued)


def _message(workload: Workload, left: int | None, why: str) -> str:
    number = workload.attempt + 1
    return f"attempt {number}: {why}" if left is None else f"attempt {number} of {number + left}: {why}"


def _retries(spec: Spec) -> int:
    """A workload that is started again after a success is started again after a failure, too."""
    return UNLIMITED if spec.restart else spec.retries


def _more(allowed: int, used: int) -> bool:
    return allowed == UNLIMITED or used < allowed


def _left(allowed: int, used: int) -> int | None:
    return None if allowed == UNLIMITED else allowed - used


def _was_steady(units: Sequence[Unit]) -> bool:
    spans = [(u.ended_at - u.started_at).total_seconds() for u in units if u.started_at and u.ended_at]
    return max(spans, default=0) >= STEADY
