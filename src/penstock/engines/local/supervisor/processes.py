"""Read process trees and counters of control groups from /proc and /sys."""

# ruff: noqa: PTH106, PTH115, PTH123, PTH208
from __future__ import annotations

import os
import time

TERM, KILL, CONT, STOP = 15, 9, 18, 19


def read_text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def counter(path: str, key: str = "") -> int | None:
    """The number in a control group's file, or the one that stands after `key`."""
    for line in (read_text(path) or "").splitlines():
        words = line.split()
        if words and words[-1].isdigit() and (words[0] == key if key else len(words) == 1):
            return int(words[-1])
    return None


def first_child(pid: int) -> int | None:
    listed = read_text(f"/proc/{pid}/task/{pid}/children")
    if listed is not None:
        return int(listed.split()[0]) if listed.split() else None
    return next(iter(_children().get(pid, [])), None)


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := read_text(f"/proc/{name}/stat")):
            parent = int(stat.rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(name))
    return found


def descendants(pid: int, skip: int) -> list[int]:
    """Every process below `pid`, but not the first `skip` generations: those are the sandbox itself."""
    children = _children()
    level, found = [pid], []
    for generation in range(1, 10_000):
        level = [child for parent in level for child in children.get(parent, [])]
        if not level:
            break
        if generation > skip:
            found += level
    return found


def signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def terminate_tree(pid: int, skip: int) -> bool:
    """TERM to all, twice: a process may fork while we look. Parents first, so that a shell starts no further line.

    The end of a pipe is left out, and True returned: `tee` would die at once, and then the program before it could not
    even say that it saves its work. It ends by itself when nothing comes any more, or by `terminate_rest`.
    """
    told: set[int] = set()
    spared = False
    for _ in range(2):
        for member in descendants(pid, skip):
            if member in told:
                continue
            if _only_reads_a_pipe(member):
                spared = True
                continue
            told.add(member)
            _terminate(member)
    return spared


def terminate_rest(pid: int, skip: int) -> bool:
    """TERM to the ends of pipes that were left out, once nothing else is left; whether that was so."""
    members = descendants(pid, skip)
    if not all(map(_only_reads_a_pipe, members)):
        return False
    for member in members:
        _terminate(member)
    return True


def _terminate(pid: int) -> None:
    signal(pid, TERM)
    signal(pid, CONT)  # a stopped one would not hear it


def _only_reads_a_pipe(pid: int) -> bool:
    """No handler for TERM, no children, and a pipe as its input."""
    try:
        if not os.readlink(f"/proc/{pid}/fd/0").startswith("pipe:"):
            return False
    except OSError:
        return False
    status = read_text(f"/proc/{pid}/status") or ""
    caught = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:")), 0)
    return not caught & 1 << TERM - 1 and first_child(pid) is None


def kill_tree(pid: int) -> None:
    """KILL until none is left below `pid`, which reaps them."""
    while members := descendants(pid, 0):
        for member in members:
            signal(member, KILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def remove_group(path: str) -> None:
    """Remove a control group; its last process may still be on its way out."""
    for _ in range(50):
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
