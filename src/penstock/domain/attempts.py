"""Decide what follows the end of an attempt: another attempt, and when, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.domain.outcome import Outcome, outcome
from penstock.domain.states import Reason, State
from penstock.domain.workloads import UNLIMITED, Spec, Unit, Wants, Workload

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
