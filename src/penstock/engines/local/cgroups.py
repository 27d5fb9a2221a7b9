"""Limit CPU, memory and processes by control groups: v1 as root, v2 as root or where delegated.

Whether they work is found out by trying once. Where they do not, limits are advisory and everyone is told.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.domain.quantities import show_bytes
from penstock.domain.workloads import Resources
from penstock.engines.local.supervisor.processes import remove_group
from penstock.engines.shared.processes import read_text

PERIOD = 100_000
CONTROLLERS = ("memory", "cpu", "pids")
MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True)
class CgroupLimits:
    version: int = 0
    """1, 2, or 0: advisory."""
    roots: dict[str, Path] = field(default_factory=dict)
    """Controller → the directory our groups are made in."""
    max_processes: int = 0
    """The most one node may have; 0 is no limit."""

    @property
    def enforced(self) -> bool:
        return self.version > 0

    def groups(self, name: str, asked: Resources) -> list[dict[str, Any]]:
        """Return the groups of one node, with what is to be written into their files."""
        if not self.enforced:
            return []
        most = [("pids.max", str(self.max_processes))] if self.max_processes else []
        wanted: dict[Path, list[tuple[str, str]]] = {}
        for controller, pairs in (("memory", self._memory(asked)), ("cpu", self._cpu(asked)), ("pids", most)):
            wanted.setdefault(self.roots[controller] / name, []).extend(pairs)
        # A process that moves itself by `tasks` need not wait until the whole kernel has taken note.
        join = "tasks" if self.version == 1 else "cgroup.procs"
        return [
            {"path": str(path), "join": str(path / join), "write": [list(pair) for pair in pairs]}
            for path, pairs in wanted.items()
        ]

    def _memory(self, asked: Resources) -> list[tuple[str, str]]:
        if asked.memory_bytes is None:
            return []
        amount = str(asked.memory_bytes)
        if self.version == 1:
            swap = (self.roots["memory"] / "memory.memsw.limit_in_bytes").exists()
            both = [("memory.limit_in_bytes", amount), ("memory.memsw.limit_in_bytes", amount)]
            return both if swap else both[:1]
        swap_max = [("memory.swap.max", "0")] if (self.roots["memory"] / "memory.swap.max").exists() else []
        return [("memory.max", amount), *swap_max, ("memory.oom.group", "1")]

    def _cpu(self, asked: Resources) -> list[tuple[str, str]]:
        if asked.cpus_milli is None:
            return []
        quota = max(asked.cpus_milli * PERIOD // 1000, 1000)
        if self.version == 1:
            return [("cpu.cfs_period_us", str(PERIOD)), ("cpu.cfs_quota_us", str(quota))]
        return [("cpu.max", f"{quota} {PERIOD}")]

    def memory_record(self, name: str, asked: Resources) -> dict[str, Any]:
        """Name the files from which the supervisor reads how much a node used, and whether it was killed for that."""
        if not self.enforced:
            return {"peak": None, "oom": None, "limit_text": None}
        group = self.roots["memory"] / name
        peak, oom = (
            ("memory.max_usage_in_bytes", "memory.oom_control")
            if self.version == 1
            else ("memory.peak", "memory.events")
        )
        limit = show_bytes(asked.memory_bytes) if asked.memory_bytes else "the machine"
        return {"peak": str(group / peak), "oom": str(group / oom), "limit_text": limit}


def detect(max_processes: int) -> CgroupLimits:
    """Return the first kind of limits that works."""
    return next((limits for limits in _ways(max_processes) if _works(limits)), CgroupLimits())


def _ways(max_processes: int) -> Iterator[CgroupLimits]:
    mounts = [line.split() for line in MOUNTS.read_text().splitlines()]
    first: dict[str, Path] = {
        controller: Path(words[1]) / "penstock"
        for words in mounts
        if words[2] == "cgroup"
        for controller in CONTROLLERS
        if controller in words[3].split(",")
    }
    if set(CONTROLLERS) <= set(first):
        yield CgroupLimits(1, first, max_processes)
        return
    for words in mounts:
        if words[2] == "cgroup2":
            for base in _candidates(Path(words[1])):
                yield CgroupLimits(2, dict.fromkeys(CONTROLLERS, base / "penstock"), max_processes)


def _candidates(mount: Path) -> Iterator[Path]:
    """Return the directories to try: for root the top, for others each one above us that they may write in."""
    if os.geteuid() == 0:
        yield mount
        return
    current = mount
    for part in Path(_own_group()).parts[1:]:
        current /= part
        if os.access(current, os.W_OK) and os.access(current / "cgroup.procs", os.W_OK):
            yield current


def _own_group() -> str:
    """Return the path of the server's own group below the mount of control groups v2."""
    lines = (read_text("/proc/self/cgroup") or "").splitlines()
    return next((line[3:] for line in lines if line.startswith("0::")), "/")


def _works(limits: CgroupLimits) -> bool:
    """Make a group with limits and move a process into it."""
    name = f"probe-{os.getpid()}"
    asked = Resources(cpus_milli=1000, memory_bytes=64 << 20)
    made: list[Path] = []
    try:
        for root in set(limits.roots.values()):
            root.mkdir(exist_ok=True)
            if limits.version == 2:
                _delegate(root, limits.roots)
        for group in limits.groups(name, asked):
            path = Path(group["path"])
            path.mkdir(exist_ok=True)
            made.append(path)
            for file, value in group["write"]:
                (path / file).write_text(value)
            join = ["/bin/sh", "-c", 'echo 0 > "$0"', group["join"]]
            if subprocess.run(join, stderr=subprocess.DEVNULL, check=False).returncode:
                return False
    except OSError:
        return False
    finally:
        for path in made:
            remove_group(str(path))
    return True


def _delegate(root: Path, controllers: Iterable[str]) -> None:
    for directory in (root.parent, root):
        control = directory / "cgroup.subtree_control"
        if not set(controllers) <= set(control.read_text().split()):
            control.write_text(" ".join(f"+{controller}" for controller in controllers))
