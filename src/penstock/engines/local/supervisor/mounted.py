"""Check what lies in a new sandbox before anything of the user's runs in it.

Bubblewrap finds what it mounts by path, and a job that has the directory around it may exchange it for a link at any
moment. So what was opened beforehand is compared with what lies at its path in the sandbox.
"""

from __future__ import annotations

import os

from .processes import first_child
from .start import open_way


def exchanged(pid: int, planned: list[tuple[str, str, str]], opened: list[int]) -> str | None:
    """The sentence about what is in the wrong place. Raises OSError if the sandbox is gone."""
    if not planned:
        return None
    root = _root(pid)
    try:
        wrong = [dest for (_, _, dest), fd in zip(planned, opened, strict=True) if not _lies_at(root, dest, fd)]
    finally:
        os.close(root)
    if not wrong:
        return None
    return f"What lies at {wrong[0]} in the sandbox is not what was to be mounted there: it was exchanged meanwhile."


def _root(pid: int) -> int:
    return os.open(f"/proc/{first_child(pid) or 0}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _lies_at(root: int, dest: str, expected: int) -> bool:
    if expected < 0:
        return False
    try:
        fd = open_way(os.dup(root), dest.strip("/"))
    except OSError:
        return False
    try:
        return os.path.sameopenfile(fd, expected)
    finally:
        os.close(fd)
