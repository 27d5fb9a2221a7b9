"""Write what a node prints, in segments named by the offset of their first byte.

The first four and the newest four of eight segments are kept, so a log never outgrows its limit and both its beginning
and its end are there; readers see the gap from the offsets. An index of (offset, time), at most one a second, answers
`since`. A full disk never stops a job: output that cannot be kept is counted, and the log says so once there is room
again; until then an empty file, which needs no room, tells readers that something is missing. The last bytes of a disk
are left to others: the database usually writes there, and with it how jobs ended.
"""

# ruff: noqa: PTH108, PTH118
from __future__ import annotations

import errno
import os
import struct

from penstock.engines.shared.files import has_room, write_all

SEGMENTS = 8
HEAD = 4
ENTRY = struct.Struct("<Qd")
BETWEEN_LOOKS = 1 << 20
"""Bytes that are written between two looks at the room on the disk."""


def segment_name(rank: int, start: int) -> str:
    return f"rank-{rank}.{start:020d}.log"


def cut_name(rank: int) -> str:
    return f"rank-{rank}.cut"


class LogFile:
    def __init__(self, folder: str, rank: int, limit: int) -> None:
        self._folder, self._rank = folder, rank
        self.size = max(limit // SEGMENTS, 1024)
        """The size of a segment: each begins at a multiple of it."""
        self._starts: list[int] = []
        self._offset = 0
        self._fd = self._index = -1
        self._indexed = float("-inf")
        self._lost = 0
        self._cut_path, self._is_cut = os.path.join(folder, cut_name(rank)), False
        self._unlooked = 0
        """Bytes that may be written until the next look at the disk."""
        self.recent = b""
        """The last few hundred bytes, for a message about what went wrong before anything ran."""

    def write(self, data: bytes, now: float) -> None:
        self.recent = (self.recent + data)[-600:]
        if self._lost:
            self._say_lost()
        if self._lost:
            self._lost += len(data)
            return
        began = self._offset
        self._append(data)
        self._note_time(began, now)

    def close(self) -> None:
        if self._lost:
            self._say_lost()
        for fd in (self._fd, self._index):
            if fd >= 0:
                os.close(fd)
        self._fd = self._index = -1

    def _append(self, data: bytes) -> None:
        while data:
            try:
                if self._unlooked <= 0:
                    self._look()
                if not self._starts or self._offset >= self._starts[-1] + self.size:
                    self._rotate()
                room = min(self._starts[-1] + self.size - self._offset, self._unlooked)
                written = os.write(self._fd, data[:room])
            except OSError:
                self._lose(len(data))
                return
            self._offset += written
            self._unlooked -= written
            data = data[written:]

    def _lose(self, lost: int) -> None:
        self._lost += lost
        self._unlooked = 0
        if self._is_cut:
            return
        try:
            fd = os.open(self._cut_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        os.truncate(fd, 0)  # that wakes those who follow
        os.close(fd)
        self._is_cut = True

    def _look(self) -> None:
        if not has_room(self._folder):
            raise OSError(errno.ENOSPC, "little room is left")
        self._unlooked = BETWEEN_LOOKS

    def _rotate(self) -> None:
        path = os.path.join(self._folder, segment_name(self._rank, self._offset))
        fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fresh
        self._starts.append(self._offset)
        while len(self._starts) > SEGMENTS:
            os.unlink(os.path.join(self._folder, segment_name(self._rank, self._starts.pop(HEAD))))

    def _note_time(self, offset: int, now: float) -> None:
        """Note the time after the data is written: the first write is what wakes those who follow."""
        if now - self._indexed < 1 and self._index >= 0:
            return
        now = max(now, self._indexed)  # a clock that jumps back must not break the order that readers search in
        try:
            if self._index < 0:
                path = os.path.join(self._folder, f"rank-{self._rank}.index")
                self._index = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            write_all(self._index, ENTRY.pack(offset, now))
        except OSError:
            return
        self._indexed = now

    def _say_lost(self) -> None:
        lost, self._lost = self._lost, 0
        self._append(b"\n[penstock] %d bytes of output could not be kept: the disk was full\n" % lost)
        if self._lost:
            self._lost = lost
        elif self._is_cut:
            self._is_cut = False
            try:
                os.unlink(self._cut_path)
            except OSError:
                return
