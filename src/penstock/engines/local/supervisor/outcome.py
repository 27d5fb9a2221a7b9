"""Decide how a node ended: state, reason, message and exit code."""

from __future__ import annotations

from penstock.engines.shared.exit_codes import NEVER_STARTED, describe

from .processes import counter
from .rank import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it costs 12 ms
    from typing import Any


LIMITS = {"time": "TIME_LIMIT", "disk": "DISK_LIMIT"}


def outcome(rank: Rank, ended_at: float) -> dict[str, Any]:
    memory = rank.plan["memory"]
    peak = counter(memory["peak"]) if memory["peak"] else None
    state, reason, message = _verdict(rank, peak)
    code = rank.code or 0
    if state == "CRASHED" and not code:
        code = 124 if reason == "TIME_LIMIT" else 1  # whoever waits for it must not take it for a success
    return {
        **rank.unit,
        "state": state,
        "reason": reason,
        "message": message,
        "exit_code": code if rank.went else None,
        "started_at": rank.started_at,
        "ended_at": max(ended_at, rank.started_at or 0),
        "peak_memory_bytes": peak,
    }


def stopped(unit: dict[str, int], message: str | None, now: float) -> dict[str, Any]:
    """One that was stopped before it began."""
    record = {**unit, "state": "STOPPED", "reason": "STOPPED_BY_USER", "message": message, "exit_code": None}
    return record | {"started_at": None, "ended_at": now, "peak_memory_bytes": None}


def _verdict(rank: Rank, peak: int | None) -> tuple[str, str, str | None]:
    code = rank.code or 0
    if rank.ended_by == "stop":
        return "STOPPED", "STOPPED_BY_USER", NEVER_STARTED if rank.place is not None and not rank.went else None
    if rank.ended_by in LIMITS:
        return "CRASHED", LIMITS[rank.ended_by], rank.why
    if rank.ended_by:
        return "STOPPED", "ANOTHER_NODE_ENDED", rank.why
    if rank.failure:
        return "CRASHED", "LAUNCH_FAILED", rank.failure
    if not rank.went:
        what = "Its first process could not be started" if rank.plan["kept"] else "The sandbox could not be made"
        return "CRASHED", "LAUNCH_FAILED", f"{what}: {_last_line(rank.log.recent)} Fix: penstock doctor tells more."
    if code and (sentence := _out_of_memory(rank.plan["memory"], peak)):
        return "CRASHED", "OUT_OF_MEMORY", sentence
    if not rank.ran:
        return "CRASHED", "SETUP_FAILED", f"setup ended with {describe(code)}; run did not start."
    if code:
        return "CRASHED", "PROGRAM_FAILED", f"run ended with {describe(code)}."
    return "EXITED", "FINISHED", None


def _out_of_memory(memory: dict[str, Any], peak: int | None) -> str | None:
    if not memory["oom"] or not counter(memory["oom"], "oom_kill"):
        return None
    used = f"; it used up to {_mebibytes(peak)}" if peak else ""
    return f"It went over its memory limit of {memory['limit_text']}{used}."


def _mebibytes(amount: int) -> str:
    return f"{amount / (1 << 20):.0f}Mi" if amount < 10 << 30 else f"{amount / (1 << 30):.1f}Gi"


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return f"{lines[-1][-300:].rstrip('.')}." if lines else "it said nothing."
