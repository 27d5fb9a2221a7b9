"""The ssh programs that carry the connections of an engine."""

from __future__ import annotations

import os
from pathlib import Path


def by_ssh(process: int | None = None) -> list[int]:
    """Those that this process, or another, has started and not yet seen end: oldest first."""
    pid = process or os.getpid()
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return sorted(child for child in children if _is_ssh(child))


def _is_ssh(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "ssh\n"
    except OSError:
        return False  # it has just ended
