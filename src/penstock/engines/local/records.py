"""What a run's directory says about it. Liveness is the lock, never a process id."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.domain.workloads import Reason, State, Unit
from penstock.engines.base import Presence, Report
from penstock.engines.local import locks

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


LOCKS = ("lock", "tree")
"""The supervisor holds both. The sandboxes hold the second only, so that a job that gets at the descriptor of its PID 1
can give up what says that the job itself lives, but not what says that it is watched."""


def lock_is_held(run_dir: Path) -> bool:
    """Does the supervisor live, or anything it started?"""
    return any(_is_held(run_dir / name) for name in LOCKS)


def end_leftovers(run_dir: Path) -> None:
    """Where the supervisor is gone and something it started is not: end that.

    A sandbox dies with its supervisor, but for an instant while it is made: bubblewrap's child waits for its parent
    before it asks the kernel to be killed with it, and a parent that dies just then leaves it waiting for ever.
    """
    lock, tree = (run_dir / name for name in LOCKS)
    if not _is_held(lock) and _is_held(tree):
        locks.kill_holders(tree)


def _is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    return not locks.is_free(fd)


def read_began(run_dir: Path) -> dict[str, Any] | None:
    """None before it began. An unreadable record still means that it did."""
    found = _json(run_dir / "began")
    return found if isinstance(found, dict) or found is None else {}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return False


def ended(run_dir: Path) -> bool:
    return (run_dir / "result.json").exists()


def report(run_dir: Path, attempt: int) -> Report:
    if result := _result(run_dir, attempt):
        return result
    held = lock_is_held(run_dir)
    began = read_began(run_dir)
    if held:
        return Report(presence=Presence.running, units=_units_so_far(run_dir, began, attempt))
    if result := _result(run_dir, attempt):  # it ended while we looked
        return result
    if began is None:
        return Report(presence=Presence.absent)
    return Report(presence=Presence.lost, units=_units_so_far(run_dir, began, attempt), message=_why_lost(began))


def _result(run_dir: Path, attempt: int) -> Report | None:
    found = _json(run_dir / "result.json")
    if not isinstance(found, dict):
        return None
    return Report(presence=Presence.ended, units=tuple(_unit(record, attempt) for record in found["units"]))


def _why_lost(began: dict[str, Any]) -> str:
    if began.get("boot_id") and began["boot_id"] != BOOT_ID.read_text().strip():
        return "The machine restarted while it ran; its outcome is not known."
    return "Its supervisor was killed while it ran and took it along; its outcome is not known."


def _unit(record: dict[str, Any], attempt: int) -> Unit:
    return Unit(
        attempt=attempt,
        rank=record["rank"],
        state=State(record["state"]),
        reason=Reason(record["reason"]),
        message=record["message"],
        exit_code=record["exit_code"],
        started_at=_time(record["started_at"]),
        ended_at=_time(record["ended_at"]),
        peak_memory_bytes=record["peak_memory_bytes"],
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _units_so_far(run_dir: Path, began: dict[str, Any] | None, attempt: int) -> tuple[Unit, ...]:
    units = {n: Unit(attempt=attempt, rank=n, state=State.LAUNCHING) for n in range((began or {}).get("nodes", 0))}
    for event in _events(run_dir):
        if event["event"] == "go":
            started = _time(event["at"])
            units[event["rank"]] = Unit(
                attempt=attempt, rank=event["rank"], state=State.RUNNING, reason=Reason.STARTED, started_at=started
            )
        else:
            units[event["rank"]] = _unit(event, attempt)
    return tuple(units.values())


def _events(run_dir: Path) -> list[dict[str, Any]]:
    """Whole lines only: the last one may be half written, and on a full disk any other."""
    try:
        lines = (run_dir / "events").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [event for line in lines if (event := _event(line))]


def _event(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
