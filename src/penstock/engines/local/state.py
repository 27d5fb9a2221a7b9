"""Read a run's state from its directory, its locks and the kernel. Liveness is a lock, never a process id.

The supervisor may be one of an earlier version: what it did not yet write down is taken to be what it was then.
"""

from __future__ import annotations

import json
import marshal
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import Presence, Report
from penstock.engines.local import layout
from penstock.engines.local.supervisor.processes import first_child, read_text
from penstock.errors import Conflict

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LONG = 64 << 10
"""Bytes of a record that are better read in a thread."""


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
        layout.kill_holders(tree)


def _is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    return not layout.is_free(fd)


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


def report(run_dir: Path, attempt: int, progress: Progress | None = None) -> Report:
    """`progress` spares what was read before."""
    if result := _result(run_dir, attempt):
        return result
    progress = progress or Progress(run_dir, attempt)
    held = lock_is_held(run_dir)
    began = read_began(run_dir)
    if held:
        return Report(presence=Presence.running, units=progress.units(began))
    if result := _result(run_dir, attempt):  # it ended while we looked
        return result
    if began is None:
        return Report(presence=Presence.absent)
    return Report(presence=Presence.lost, units=progress.units(began), message=_why_lost(began))


def _result(run_dir: Path, attempt: int) -> Report | None:
    found = read_result(run_dir)
    if found is None:
        return None
    return Report(presence=Presence.ended, units=tuple(_unit(record, attempt) for record in found))


def read_result(run_dir: Path) -> list[dict[str, Any]] | None:
    """How each unit ended; None before the end of all."""
    found = _json(run_dir / "result.json")
    return found["units"] if isinstance(found, dict) else None


def _why_lost(began: dict[str, Any]) -> str:
    if began.get("boot_id") and began["boot_id"] != BOOT_ID.read_text().strip():
        return "The machine restarted while it ran; its outcome is not known."
    return "Its supervisor was killed while it ran and took it along; its outcome is not known."


def _unit(record: dict[str, Any], attempt: int) -> Unit:
    return Unit(
        attempt=attempt,
        index=record.get("index", 0),
        rank=record["rank"],
        state=State(record["state"]),
        reason=Reason(record["reason"]),
        message=record["message"],
        exit_code=record["exit_code"],
        started_at=_time(record["started_at"]),
        ended_at=_time(record["ended_at"]),
        peak_memory_bytes=record["peak_memory_bytes"],
    )


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


class Progress:
    """A run's units while it runs. An index of an array has one once it began; those that wait have none.

    What was read is not read again: an array writes two lines for each of its indexes. A unit that did not change is
    the same object as before.
    """

    def __init__(self, run_dir: Path, attempt: int) -> None:
        self._run_dir, self._attempt = run_dir, attempt
        self._units: dict[tuple[int, int], Unit] = {}
        self._shown: tuple[Unit, ...] = ()
        self._offset = 0
        self._reading = Lock()

    def units(self, began: dict[str, Any] | None) -> tuple[Unit, ...]:
        with self._reading:
            for rank in range((began or {}).get("nodes", 0)):
                if (0, rank) not in self._units:
                    self._units[0, rank] = Unit(attempt=self._attempt, rank=rank, state=State.LAUNCHING)
            found, self._offset = read_events(self._run_dir, self._offset)
            for event in found:
                if event["event"] in ("go", "ended"):
                    self._units[event.get("index", 0), event["rank"]] = self._unit(event)
            if found or len(self._shown) != len(self._units):
                self._shown = tuple(self._units[key] for key in sorted(self._units))
            return self._shown

    def _unit(self, event: dict[str, Any]) -> Unit:
        if event["event"] == "ended":
            return _unit(event, self._attempt)
        return Unit(
            attempt=self._attempt,
            index=event.get("index", 0),
            rank=event["rank"],
            state=State.RUNNING,
            reason=Reason.STARTED,
            started_at=_time(event["at"]),
        )


def read_events(run_dir: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """What stands in `events` from the offset on, and where to read on. Whole lines only: the last one may be half
    written, and on a full disk any other."""
    try:
        with (run_dir / "events").open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    whole = data[: data.rfind(b"\n") + 1]
    return [event for line in whole.splitlines() if (event := _event(line))], offset + len(whole)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def is_long(run_dir: Path) -> bool:
    """Would reading it hold up the loop?"""
    return any(_size(run_dir / name) > LONG for name in ("events", "result.json"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


ENDED = ("Z", "X")


@dataclass(frozen=True)
class Inside:
    """A part that runs: where its processes hang in the machine's tree, and what it was planned to be."""

    supervisor: int | None
    pid: int
    """The sandbox, seen from outside; without one, what keeps its processes together."""
    node: dict[str, Any]
    gpus: tuple[str, ...]
    array: bool

    @property
    def kept(self) -> bool:
        """There is no sandbox."""
        return bool(self.node["kept"])


class Process(NamedTuple):
    pid: int
    parent: int
    ticks: int
    """Of the processor, in hundredths of a second."""
    began: int
    """When, in ticks since the machine did: with the number it names one process for ever."""


def part_of(run_dir: Path, part: int) -> Inside:
    """Conflict if it does not run."""
    began, went = read_began(run_dir), _went(run_dir, part)
    if not began or not went or ended(run_dir) or not lock_is_held(run_dir):
        raise Conflict("It is not running.")
    plan = read_plan(run_dir)
    if plan is None:
        raise Conflict("It is not running.")
    place = went.get("place")
    number = part if place is None else place
    each = len(plan["gpus"]) // len(plan["ranks"])
    gpus = tuple(plan["gpus"][number * each : (number + 1) * each])
    return Inside(began.get("pid"), went["pid"], plan["ranks"][number], gpus, bool(plan.get("array")))


def read_plan(run_dir: Path) -> dict[str, Any] | None:
    try:
        found = marshal.loads((run_dir / "plan").read_bytes())  # noqa: S302 (written by this server or the one before)
    except FileNotFoundError:
        return None
    return dict(found)


def _went(run_dir: Path, part: int) -> dict[str, Any] | None:
    """What was written down when this part began; None if it did not, or has ended."""
    found = None
    with suppress(FileNotFoundError), (run_dir / "events").open("rb") as lines:
        for line in lines:
            with suppress(ValueError):
                event = json.loads(line)
                if event.get("rank", 0) + event.get("index", 0) == part and event["event"] in ("go", "ended"):
                    found = event if event["event"] == "go" and "pid" in event else None
    return found


def processes(inside: Inside) -> list[Process]:
    """Everything that runs in it, also what came later by `exec`; not the sandbox itself.

    Conflict if it has ended meanwhile: its number may be another's by now.
    """
    known = all_processes()
    outer = known.get(inside.pid)
    if outer is None or outer.parent != inside.supervisor:
        raise Conflict("It is not running: it has just ended.")
    sandbox, ours = {inside.pid}, {inside.pid}
    if inside.kept:
        for group in inside.node["cgroups"]:
            ours |= {int(number) for number in (read_text(f"{group['path']}/cgroup.procs") or "").split()}
    elif init := first_child(inside.pid):
        sandbox.add(init)
        ours |= _in_namespace_of(init, known)
    return [known[pid] for pid in sorted(_below(ours, known)) if pid in known and pid not in sandbox]


def all_processes() -> dict[int, Process]:
    """Of the machine; without those that have ended and wait for someone to take note."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (process := _read(int(name))):
            found[process.pid] = process
    return found


def _read(pid: int) -> Process | None:
    """A job chooses the name that stands in brackets, and may write brackets into it."""
    words = (read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    if len(words) <= 19 or words[0] in ENDED:
        return None
    return Process(pid, int(words[1]), int(words[11]) + int(words[12]), int(words[19]))


def _in_namespace_of(init: int, known: dict[int, Process]) -> set[int]:
    """What `exec` started has its parent outside."""
    space = _namespace(init)
    return {pid for pid in known if space and _namespace(pid) == space}


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:  # it has gone, or is another account's
        return None


def _below(found: set[int], known: dict[int, Process]) -> set[int]:
    children: dict[int, list[int]] = {}
    for process in known.values():
        children.setdefault(process.parent, []).append(process.pid)
    level = list(found)
    whole = set(found)
    while level:
        level = [child for parent in level for child in children.get(parent, []) if child not in whole]
        whole.update(level)
    return whole
