"""Measure now and then how much disk each node uses, where it asked for a limit.

A scan costs as much as there are files, so it is done by a child, one at a time, and the next one waits at least twenty
times as long as the last one took.
"""

from __future__ import annotations

import os

from penstock.engines.shared.files import write_all

from .directories import measure_directory
from .processes import SAYS, fork_child

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it is slow
    from typing import Any

    from .rank import Rank

REST = 20
UNITS = (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))


class DiskScans:
    def __init__(self, every: float) -> None:
        self._every = every
        self._pid = self.pipe = -1
        self._began = 0.0
        self._said = b""
        self.due: float | None = None
        """When the next scan is; None while one is under way, and before anything runs."""

    def plan(self, now: float) -> None:
        """Plan a scan, now that something runs that has a limit."""
        if self.due is None and self.pipe < 0:
            self.due = now + self._every

    def begin(self, ranks: list[Rank], now: float) -> None:
        asked = [
            (rank.number, [f"{rank.plan['folder']}/{folder['name']}" for folder in rank.plan["disk"]["folders"]])
            for rank in ranks
            if rank.went and rank.code is None and rank.plan["disk"]
        ]
        self.due = None
        if not asked:
            return
        self._said, self._began = b"", now
        self.pipe, write_end = os.pipe()
        try:
            self._pid = fork_child(lambda: _scan(asked), write_end)
        except OSError:  # no process to be had: another time
            os.close(self.pipe)
            self.pipe, self.due = -1, now + self._every
        finally:
            os.close(write_end)

    def read_sizes(self, now: float) -> dict[int, list[int]] | None:
        """Read from the child; once all is there, return the bytes in each folder by the number of the node."""
        data = os.read(self.pipe, 1 << 16)
        if data:
            self._said += data
            return None
        os.close(self.pipe)
        self.pipe = -1
        os.waitpid(self._pid, 0)
        self.due = now + max(self._every, (now - self._began) * REST)
        found = [list(map(int, line.split())) for line in self._said.decode().splitlines()]
        return {number: sizes for number, *sizes in found}


def _scan(asked: list[tuple[int, list[str]]]) -> None:
    os.nice(10)
    for number, folders in asked:
        write_all(SAYS, (" ".join(map(str, [number, *map(_size, folders)])) + "\n").encode())


def _size(folder: str) -> int:
    try:
        return measure_directory(folder)
    except OSError:  # its node has just ended
        return 0


def exceeded(disk: dict[str, Any], sizes: list[int]) -> str | None:
    """Return the message about the limit that these sizes exceed."""
    folders = list(zip(disk["folders"], sizes, strict=True))
    for folder, size in folders:
        if folder["limit"] is not None and size > folder["limit"]:
            held = amount(size, folder["limit_text"])
            return f"{folder['shown']} holds {held}, more than its size {folder['limit_text']}."
    total = sum(sizes)
    if disk["limit"] is None or total <= disk["limit"]:
        return None
    most = max(folders, key=lambda pair: pair[1])[0]["shown"]
    held = amount(total, disk["limit_text"])
    return f"It holds {held} outside its volumes, more than its disk_size {disk['limit_text']}; most is in {most}."


def amount(size: int, unlike: str = "") -> str:
    """Format a size as `1.2Gi`, with as many digits as it takes to differ from `unlike`."""
    unit, shift = next(((unit, shift) for unit, shift in UNITS if size >= 1 << shift), ("B", 0))
    for digits in range(1, 4):
        number = f"{size / (1 << shift):.{digits}f}".rstrip("0").rstrip(".")
        if f"{number}{unit}" != unlike:
            return f"{number}{unit}"
    return f"{size}B"
