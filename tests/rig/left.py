"""What is still there of a rig that has ended: processes, mounts, cgroups, links, files. Nothing, says a test."""

from __future__ import annotations

from pathlib import Path

from tests.rig import cgroups, places


def left(name: str) -> list[object]:
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(places.home(name)) in line]
    claimed = _claimed_links()
    unclaimed = _links() - claimed - _claimed_links()
    files = [path.name for path in places.STATE.glob(f"*{name}*") if path.suffix != ".users"]
    return [*running(name), *mounts, *cgroups.left(name), *unclaimed, *files]


def running(name: str) -> list[str]:
    """The processes of a rig."""
    marks = (f"{cgroups.root(name)}/", f"{places.home(name)}/")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = any(mark in (process / file).read_text() for mark in marks for file in ("cgroup", "cmdline"))
            if is_ours and "\nState:\tZ" not in (process / "status").read_text():
                found.append((process / "comm").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _links() -> set[str]:
    return {link.name for link in Path("/sys/class/net").iterdir() if link.name.startswith("prig")}


def _claimed_links() -> set[str]:
    return {addresses.link for name in places.names() if (addresses := places.claimed(name))}
