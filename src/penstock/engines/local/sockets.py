"""The sockets that a process holds, by their inode numbers."""

from __future__ import annotations

import os


def sockets_of(pid: int) -> set[int]:
    """Return the inode numbers of the sockets a process holds; none once it has ended."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except (FileNotFoundError, ProcessLookupError):
        return set()
    links = (_link(f"{folder}/{name}") for name in names)
    return {int(link[8:-1]) for link in links if link and link.startswith("socket:[")}


def _link(path: str) -> str | None:
    """None if it is not there any more."""
    try:
        return os.readlink(path)  # noqa: PTH115
    except (FileNotFoundError, ProcessLookupError):
        return None
