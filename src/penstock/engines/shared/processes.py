"""Read processes, sockets and counters from /proc and /sys.

The supervisor imports this module: it needs nothing but `os`, and no `typing`, which is slow.
"""

# ruff: noqa: PTH115, PTH123, PTH208
from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Process:
    """A process as /proc/PID/stat describes it."""

    __slots__ = ("began", "ended", "parent", "pid", "session", "ticks")

    def __init__(self, pid: int, words: list[str]) -> None:
        self.pid = pid
        self.ended = words[0] in ("Z", "X")
        """It has ended and waits for its parent to take note."""
        self.parent, self.session = int(words[1]), int(words[3])
        self.ticks = int(words[11]) + int(words[12])
        """Time on a processor, in clock ticks."""
        self.began = int(words[19])
        """When it began, in ticks since the machine did: with the number this names one process for ever."""


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_process(pid: int) -> Process | None:
    """Return a process; None once it is gone. A job chooses the name in brackets, and may write brackets into it."""
    words = (read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return Process(pid, words) if len(words) > 19 else None


def all_processes() -> list[Process]:
    return [process for pid in pids() if (process := read_process(pid))]


def with_descendants(roots: Iterable[int], processes: Iterable[Process]) -> list[int]:
    """Return these processes and all below them, each after its parent."""
    children: dict[int, list[int]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process.pid)
    found = dict.fromkeys(roots)
    level = list(found)
    while level:
        level = [child for parent in level for child in children.get(parent, []) if child not in found]
        found.update(dict.fromkeys(level))
    return list(found)


def first_child(pid: int) -> int | None:
    listed = (read_text(f"/proc/{pid}/task/{pid}/children") or "").split()
    return int(listed[0]) if listed else None


def descriptors(pid: int) -> Iterator[str]:
    """Return the paths of a process's open files below /proc, as far as we may see them; none once it has ended."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        yield f"/proc/{pid}/fd/{name}"


def sockets_of(pid: int) -> set[int]:
    """Return the inode numbers of the sockets a process holds, as far as we may see them."""
    found = set()
    for path in descriptors(pid):
        try:
            link = os.readlink(path)
        except OSError:  # closed meanwhile
            continue
        if link.startswith("socket:["):
            found.add(int(link[8:-1]))
    return found


def tcp_sockets() -> Iterator[list[str]]:
    """Return the fields of every TCP socket of this network: 1 local, 2 remote, 3 state, 7 uid, 9 inode."""
    for table in ("tcp", "tcp6"):
        for line in (read_text(f"/proc/net/{table}") or "").splitlines()[1:]:
            yield line.split()


def read_text(path: str) -> str | None:
    """Return a file's text; None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def read_values(path: str) -> dict[str, str]:
    """Return a file of `name: value` or `name value` lines, such as /proc/PID/status or memory.stat."""
    pairs = (line.split(None, 1) for line in (read_text(path) or "").splitlines())
    return {pair[0].rstrip(":"): pair[1].strip() for pair in pairs if len(pair) == 2}


def read_count(path: str, name: str = "") -> int | None:
    """Return the number a file consists of, or the one that stands after the name."""
    text = read_values(path).get(name, "") if name else (read_text(path) or "").strip()
    return int(text) if text.isdigit() else None
