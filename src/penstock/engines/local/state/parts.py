"""Find a part of a run that runs now, a node or an index of an array, and its processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.engines.local.state.snapshot import has_ended, lock_is_held, read_began, read_events, read_plan
from penstock.engines.shared.processes import Process, all_processes, first_child, read_text, with_descendants
from penstock.errors import Conflict


@dataclass(frozen=True)
class RunningPart:
    """Where the processes of a part are in the machine's tree, and what was planned for it."""

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


def find_part(run_dir: Path, part: int) -> RunningPart:
    """Return a part; raises Conflict if it does not run."""
    began, went = read_began(run_dir), _went(run_dir, part)
    alive = began and went and not has_ended(run_dir) and lock_is_held(run_dir)
    plan = read_plan(run_dir) if alive else None
    if not began or not went or plan is None:
        raise Conflict("It is not running.")
    place = went.get("place")
    number = part if place is None else place
    each = len(plan["gpus"]) // len(plan["ranks"])
    gpus = tuple(plan["gpus"][number * each : (number + 1) * each])
    return RunningPart(began.get("pid"), went["pid"], plan["ranks"][number], gpus, bool(plan.get("array")))


def _went(run_dir: Path, part: int) -> dict[str, Any] | None:
    """Return what was written down when this part began; None if it did not, or has ended."""
    found = None
    for event in read_events(run_dir)[0]:
        if event["event"] in ("go", "ended") and event["rank"] + event["index"] == part:
            found = event if event["event"] == "go" else None
    return found


def part_processes(part: RunningPart) -> list[Process]:
    """Return everything that runs in the part, also what came later by `exec`, but not the sandbox itself.

    Raises Conflict if the part has ended meanwhile: its process number may be another's by now.
    """
    known = {process.pid: process for process in all_processes() if not process.ended}
    outer = known.get(part.pid)
    if outer is None or outer.parent != part.supervisor:
        raise Conflict("It is not running: it has just ended.")
    sandbox, ours = {part.pid}, {part.pid}
    if part.kept:
        for group in part.node["cgroups"]:
            ours |= {int(number) for number in (read_text(f"{group['path']}/cgroup.procs") or "").split()}
    elif init := first_child(part.pid):
        sandbox.add(init)
        ours |= _in_namespace_of(init, known)
    return [known[pid] for pid in sorted(with_descendants(ours, known.values())) if pid in known and pid not in sandbox]


def _in_namespace_of(init: int, known: dict[int, Process]) -> set[int]:
    """Return the processes in a namespace: what `exec` started has its parent outside."""
    space = _namespace(init)
    return {pid for pid in known if space and _namespace(pid) == space}


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:  # it has gone, or is another account's
        return None
