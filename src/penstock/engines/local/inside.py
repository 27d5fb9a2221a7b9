"""One node or index that runs, and the processes in it: what the kernel says, not what a job claims."""

from __future__ import annotations

import json
import marshal
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from penstock.engines.local import records
from penstock.engines.local.supervisor.processes import first_child, read_text
from penstock.errors import Conflict

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
    began, went = records.read_began(run_dir), _went(run_dir, part)
    if not began or not went or records.ended(run_dir) or not records.lock_is_held(run_dir):
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
