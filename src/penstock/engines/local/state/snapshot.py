"""Read a run's directory and its locks. A run lives as long as its lock is held, whatever process ids say."""

from __future__ import annotations

import json
import marshal
import os
from pathlib import Path
from threading import Lock
from typing import Any

from penstock.engines.base import Report
from penstock.engines.local.layout import is_unlocked
from penstock.engines.local.state.report import Record, RunSnapshot, UnitTable, report

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LOCKS = ("lock", "tree")
"""The supervisor holds both. The sandboxes hold the second only, so that a job that gets at the descriptor of its PID 1
can give up what says that the job itself lives, but not what says that it is watched."""


class RunReader:
    """Reads a run again and again, and each event once."""

    def __init__(self, run_dir: Path, attempt: int) -> None:
        self._run_dir, self._attempt = run_dir, attempt
        self._table = UnitTable(attempt)
        self._offset = 0
        self._lock = Lock()

    def read(self) -> Report:
        with self._lock:
            snapshot, self._offset = read_snapshot(self._run_dir, self._offset)
            return report(snapshot, self._attempt, self._table)


def read_snapshot(run_dir: Path, offset: int = 0) -> tuple[RunSnapshot, int]:
    """Return the run as it is now with the events from this offset on, and the offset after them."""
    if (result := read_result(run_dir)) is not None:
        return RunSnapshot(result=result), offset
    alive = lock_is_held(run_dir)
    began = read_began(run_dir)
    if not alive and (result := read_result(run_dir)) is not None:  # it ended while we looked
        return RunSnapshot(result=result), offset
    events, offset = read_events(run_dir, offset)
    boot_id = "" if alive else BOOT_ID.read_text().strip()
    return RunSnapshot(began=began, alive=alive, boot_id=boot_id, events=tuple(events)), offset


def lock_is_held(run_dir: Path) -> bool:
    """Does the supervisor live, or anything it started?"""
    return any(is_held(run_dir / name) for name in LOCKS)


def is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    return not is_unlocked(fd)


def read_began(run_dir: Path) -> Record | None:
    """Return the record of the beginning; None before that, and an empty one if a crash left it half written."""
    try:
        return dict(json.loads((run_dir / "began").read_bytes()))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}


def has_begun(run_dir: Path) -> bool:
    return (run_dir / "began").exists()


def has_ended(run_dir: Path) -> bool:
    return (run_dir / "result.json").exists()


def read_result(run_dir: Path) -> list[Record] | None:
    """Return how each unit ended; None before the end of all."""
    try:
        return list(json.loads((run_dir / "result.json").read_bytes())["units"])
    except FileNotFoundError:
        return None


def read_plan(run_dir: Path) -> dict[str, Any] | None:
    try:
        found = marshal.loads((run_dir / "plan").read_bytes())  # noqa: S302 (written by this server or the one before)
    except FileNotFoundError:
        return None
    return dict(found)


def read_events(run_dir: Path, offset: int = 0) -> tuple[list[Record], int]:
    """Return what stands in `events` from the offset on, and where to read on. Whole lines only: the last one may be
    half written, and on a full disk any other."""
    try:
        with (run_dir / "events").open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    return [event for line in whole.splitlines() if (event := _event(line))], offset + len(whole)


def _event(line: bytes) -> Record | None:
    try:
        return dict(json.loads(line))
    except ValueError:
        return None
