"""How a run's units add up to the workload's end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.domain.workloads import Reason, State, Unit


@dataclass(frozen=True)
class Outcome:
    state: State
    reason: Reason
    message: str | None
    exit_code: int | None


def outcome(units: Sequence[Unit]) -> Outcome:
    """All ended with 0: EXITED. Otherwise the first failure is the reason shown; else it was stopped."""
    failed = [unit for unit in units if unit.state is State.CRASHED]
    if failed:
        first = min(failed, key=lambda unit: (unit.ended_at is None, unit.ended_at, unit.rank))
        return Outcome(State.CRASHED, first.reason or Reason.PROGRAM_FAILED, _said(first, units), first.exit_code)
    doubtful = [unit for unit in units if unit.state is State.UNKNOWN]
    if doubtful:
        first = doubtful[0]
        return Outcome(State.UNKNOWN, first.reason or Reason.OUTCOME_UNKNOWN, _said(first, units), None)
    stopped = [unit for unit in units if unit.state is not State.EXITED]
    if stopped:
        first = stopped[0]
        return Outcome(State.STOPPED, first.reason or Reason.STOPPED_BY_USER, _said(first, units), None)
    return Outcome(State.EXITED, Reason.FINISHED, None, 0)


def _said(unit: Unit, units: Sequence[Unit]) -> str | None:
    if unit.message is None or len(units) == 1:
        return unit.message
    return f"node {unit.rank}: {unit.message}"
