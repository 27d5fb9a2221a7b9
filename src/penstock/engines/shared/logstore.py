"""Read a log that is kept in segments, by offsets that stay valid when old segments are dropped."""

from __future__ import annotations

import asyncio
import json
import os
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from penstock.engines.base import LogQuery
from penstock.engines.shared.logfile import ENTRY, cut_name, segment_name

BLOCK = 1 << 16
TAIL_REACH = 64 << 20
"""The most bytes that are read back to find where the last lines begin."""


class LogReader:
    """Reads one node's log; call `refresh` before reading what may be new."""

    def __init__(self, run_dir: Path, rank: int) -> None:
        self._run_dir, self._folder, self._rank = run_dir, run_dir / "logs", rank
        self._starts: list[int] = []
        self._record: dict[str, Any] = {}

    def refresh(self) -> None:
        self._starts = [0] if self._is_one_segment() else self._listed()

    def _is_one_segment(self) -> bool:
        """Most logs are one segment: then the files of an array's other indexes need not be listed."""
        if "log_segment" not in self._began():
            return False
        first, second = (self._folder / segment_name(self._rank, start) for start in (0, self._record["log_segment"]))
        return first.exists() and not second.exists()

    def _began(self) -> dict[str, Any]:
        """Return the record of the run's beginning; empty if there is none yet, or it cannot be read."""
        if not self._record:
            with suppress(FileNotFoundError, ValueError):
                self._record = dict(json.loads((self._run_dir / "began").read_bytes()))
        return self._record

    def _listed(self) -> list[int]:
        with suppress(FileNotFoundError):  # the run has just been removed
            return sorted(int(path.name.split(".")[1]) for path in self._folder.glob(f"rank-{self._rank}.*.log"))
        return []

    @property
    def is_cut(self) -> bool:
        """Is something missing after the last byte?"""
        return (self._folder / cut_name(self._rank)).exists()

    def read(self, offset: int) -> tuple[bytes, int]:
        """Return the next block from `offset` on and the offset after it, or nothing. A gap is stated in a line."""
        at = self._segment(offset)
        if at is not None:
            data = self._pread(at, offset - at, BLOCK)
            if data:
                return data, offset + len(data)
        later = next((start for start in self._starts if start > offset), None)
        if later is None:
            return b"", offset
        return self._gap(later - offset), later

    def _gap(self, missing: int) -> bytes:
        """Name the limit the run was started with: the setting may be another by now."""
        limit = self._began().get("log_limit", "reached")
        return f"\n[penstock] {missing} bytes not kept: log_limit is {limit}\n".encode()

    def _segment(self, offset: int) -> int | None:
        return next((start for start in reversed(self._starts) if start <= offset), None)

    def _pread(self, start: int, position: int, length: int) -> bytes:
        try:
            fd = os.open(self._folder / segment_name(self._rank, start), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(fd, length, position)
        finally:
            os.close(fd)

    def size(self) -> int:
        """Return the offset after the last byte."""
        return self._starts[-1] + self._length(self._starts[-1]) if self._starts else 0

    def _length(self, start: int) -> int:
        try:
            return (self._folder / segment_name(self._rank, start)).stat().st_size
        except FileNotFoundError:
            return 0

    async def start(self, query: LogQuery, threads: Executor) -> int:
        """Return the offset to read from. Looking back for the last lines may read a lot: that is done in these
        threads."""
        offset = 0 if query.since is None else self.since(query.since)
        if query.tail is None:
            return offset
        if query.tail <= 0:
            return max(offset, self.size())
        return max(offset, await asyncio.get_running_loop().run_in_executor(threads, self.tail, query.tail))

    def tail(self, lines: int) -> int:
        """Return the offset at which the last `lines` lines begin; an unfinished last line is one. It reads no further
        back than TAIL_REACH."""
        end = self.size()
        if lines <= 0:
            return end
        missing, reached, looked = lines, end, 0
        for reached, block in self._backwards():
            if looked == 0 and block.endswith(b"\n"):
                missing += 1
            looked += len(block)
            if missing <= (found := block.count(b"\n")):
                return reached + _line_start(block, missing)
            missing -= found
            if looked >= TAIL_REACH:
                return reached + block.find(b"\n") + 1
        return reached

    def _backwards(self) -> Iterator[tuple[int, bytes]]:
        for start in reversed(self._starts):
            end = self._length(start)
            while end > 0:
                begin = max(0, end - BLOCK)
                yield start + begin, self._pread(start, begin, end - begin)
                end = begin

    def since(self, moment: datetime) -> int:
        """Return the offset of what was printed from then on, exact to a second, as the index is."""
        wanted = moment.timestamp()
        try:
            index = (self._folder / f"rank-{self._rank}.index").open("rb")
        except FileNotFoundError:
            return 0
        with index:
            count = index.seek(0, os.SEEK_END) // ENTRY.size
            at = bisect_right(range(count), wanted - 1, key=lambda number: _entry(index, number)[1])
            return _entry(index, at)[0] if at < count else self.size()


def _entry(index: BinaryIO, number: int) -> tuple[int, float]:
    """Return an offset and the time at which it was printed."""
    index.seek(number * ENTRY.size)
    offset, at = ENTRY.unpack(index.read(ENTRY.size))
    return offset, at


def _line_start(block: bytes, from_end: int) -> int:
    """Return the position after the newline that is the `from_end`-th from the end."""
    position = len(block)
    for _ in range(from_end):
        position = block.rfind(b"\n", 0, position)
    return position + 1
