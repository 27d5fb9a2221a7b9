"""Where a rig and its pods are counted: one directory in every hierarchy of cgroup v1, or in the one of v2."""

from __future__ import annotations

import os
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
_SHARES = {"cpu.shares": "10240", "cpu.weight": "1000"}
"""Ten times what one program has: a whole cluster counts as one otherwise, and its heartbeats starve beside tests."""

_LIMIT, _NEVER_REACHED = "blkio.throttle.read_bps_device", 1 << 50

_V2 = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")


def root(name: str) -> str:
    """Of all cgroups of the rig of this name, as kubelet wants it said."""
    return f"/penstock-rig-{name}"


def _unified() -> bool:
    return (MOUNT / "cgroup.controllers").exists()


def _hierarchies() -> list[Path]:
    if _unified():
        return [MOUNT]
    mounted = {os.path.realpath(path) for path in MOUNT.iterdir() if path.is_dir()}
    return sorted(Path(path) for path in mounted if os.path.ismount(path))


def read_only() -> Path | None:
    """A hierarchy in which nothing can be made."""
    return next((path for path in _hierarchies() if not os.access(path, os.W_OK)), None)


def make(name: str, *children: str) -> None:
    for hierarchy in _hierarchies():
        top = hierarchy / root(name)[1:]
        for directory in (top, *(top / child for child in children)):
            directory.mkdir(exist_ok=True)
            _inherit(directory)
    _count_disks(MOUNT / "blkio" / root(name)[1:] / _LIMIT)


def _count_disks(limit: Path) -> None:
    """From Linux 6.10 on, what disks move is counted for cgroup v1 only once some cgroup had a limit: kubelet would see
    no disk at all. It is counted until the machine starts anew."""
    for disk in Path("/sys/block").iterdir() if limit.exists() else ():
        if (disk / "device").exists():
            limit.write_text(f"{(disk / 'dev').read_text().strip()} {_NEVER_REACHED}\n")


def _inherit(directory: Path) -> None:
    """A cpuset starts empty, and a controller of v2 has to be handed down."""
    for file, share in _SHARES.items():
        if (directory / file).exists():
            (directory / file).write_text(share)
    for file in ("cpuset.cpus", "cpuset.mems"):
        if not _unified() and (directory / file).exists() and not (directory / file).read_text().strip():
            (directory / file).write_text((directory.parent / file).read_text())
    for controller in _V2 if _unified() else ():
        try:
            (directory.parent / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            continue  # This kernel or this machine's manager does not have it to give.


def move(name: str, process: int) -> None:
    """Put the rig's first process, and so all that come from it, out of the cgroups of whoever starts the rig."""
    make(name, "control")
    for hierarchy in _hierarchies():
        (hierarchy / root(name)[1:] / "control/cgroup.procs").write_text(str(process))


def remove(name: str) -> None:
    for hierarchy in _hierarchies():
        top = hierarchy / root(name)[1:]
        for directory in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
            _remove(directory)
        if top.exists():
            _remove(top)


def _remove(directory: Path, seconds: float = 10) -> None:
    """The kernel needs a moment after the last process of a cgroup is gone."""
    end = time.monotonic() + seconds
    while True:
        try:
            return directory.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def left(name: str) -> list[Path]:
    return [path for hierarchy in _hierarchies() if (path := hierarchy / root(name)[1:]).exists()]
