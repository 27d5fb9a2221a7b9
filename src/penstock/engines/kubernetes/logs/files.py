"""Keep a unit's log on the server's disk, note how much of the container's log it has, and wake those who follow it.

The position stands in a page of its own that is written after the bytes it speaks of. After a kill the log may be
longer than that: it is cut, and the rest is read from the pod again. After the machine itself stopped it may be
shorter: then all is read again. So nothing has to be forced to the disk for each line; it is once, when the log is
complete.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from penstock.engines.base import Run
from penstock.engines.kubernetes.logs.stream import NS, LogLine, LogMark
from penstock.engines.kubernetes.pod_records import FILE as UNITS
from penstock.engines.shared.files import replace, sync_directory
from penstock.engines.shared.logfile import ENTRY, LogFile, segment_name

PAGE = 4096
PAUSE = 0.02
"""Seconds between two wake-ups of a follower."""
GONE = "the pod was gone before its last output could be read"
_SEGMENT = re.compile(r"rank-(\d+)\.(\d+)\.log\Z")


class LogPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    uid: str = ""
    """The pod it was read from."""
    offset: int = 0
    times: tuple[int, ...] = ()
    part: int = 0
    done: bool = False
    """Nothing more will come."""


def logs_dir(run_dir: Path) -> Path:
    return run_dir / "logs"


def _position_path(run_dir: Path, part: int) -> Path:
    return logs_dir(run_dir) / f"rank-{part}.position"


def read_position(run_dir: Path, part: int) -> LogPosition | None:
    try:
        return msgspec.json.decode(_position_path(run_dir, part).read_bytes().rstrip(b"\0"), type=LogPosition)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def prepare(run_dir: Path, limit: int, limit_text: str) -> None:
    """Create the run's directory, with what readers need to know of its logs."""
    logs_dir(run_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (run_dir / "began").exists():
        segment = LogFile(str(logs_dir(run_dir)), 0, limit).size
        replace(str(run_dir / "began"), json.dumps({"log_limit": limit_text, "log_segment": segment}))


class KeptLog(LogFile):
    def __init__(self, run_dir: Path, part: int, limit: int) -> None:
        super().__init__(str(logs_dir(run_dir)), part, limit)
        self._run_dir, self._part = run_dir, part
        self._page = -1
        self._uid = ""
        self.mark = LogMark()
        self.last = 0
        """When the container last printed, in nanoseconds since 1970."""

    def resume(self, uid: str, *, there: bool) -> None:
        """Go on where the last server stopped. If the pod is gone, nothing can be read again, so all is kept."""
        known = read_position(self._run_dir, self._part) or LogPosition()
        self._uid = uid
        self._starts = sorted(self._segments())
        end = self._starts[-1] + self._length(self._starts[-1]) if self._starts else 0
        self._offset = end
        if known.uid == uid and known.offset <= end:
            self.mark = LogMark(known.times, known.part)
            if there:
                self._cut(known.offset)
        elif there and known.uid in ("", uid):
            self._cut(0)
        self.last = max(known.times, default=0)
        self._open_again()

    def take(self, lines: list[LogLine]) -> None:
        """Write lines. Those more than a second apart are written apart: `since` finds its place by that."""
        first = 0
        for number, line in enumerate(lines):
            if line.time - lines[first].time >= NS:
                self._take(lines[first:number])
                first = number
        self._take(lines[first:])
        self.save()

    def _take(self, lines: list[LogLine]) -> None:
        self.write(b"".join(line.data for line in lines), lines[0].time / NS)
        self.last = max(self.last, lines[-1].time)

    def say(self, sentence: str) -> None:
        """Write a sentence of Penstock's on a line of its own."""
        start = b"" if self._at_line_start() else b"\n"
        self.write(start + f"[penstock] {sentence}\n".encode(), self.last / NS)

    def save(self, *, done: bool = False) -> None:
        position = LogPosition(self._uid, self._offset, self.mark.times, self.mark.part, done)
        os.pwrite(self._page, msgspec.json.encode(position).ljust(PAGE, b"\0"), 0)

    def finish(self) -> None:
        """Return when the log and the records of the run's pods are on the disk for good."""
        for fd in (self._fd, self._index):
            if fd >= 0:
                os.fsync(fd)
        self.save(done=True)
        os.fsync(self._page)
        with suppress(FileNotFoundError):
            _sync(self._run_dir / UNITS)
        sync_directory(self._folder)
        sync_directory(str(self._run_dir))

    def close(self) -> None:
        super().close()
        if self._page >= 0:
            os.close(self._page)
            self._page = -1

    # what is there

    def _segments(self) -> list[int]:
        found = (_SEGMENT.match(name) for name in os.listdir(self._folder))  # noqa: PTH208 (names are all it needs)
        return [int(each[2]) for each in found if each and int(each[1]) == self._part]

    def _path(self, start: int) -> Path:
        return Path(self._folder) / segment_name(self._part, start)

    def _length(self, start: int) -> int:
        return self._path(start).stat().st_size

    def _cut(self, offset: int) -> None:
        for start in [start for start in self._starts if start >= offset]:
            self._path(start).unlink()
            self._starts.remove(start)
        if self._starts:
            os.truncate(self._path(self._starts[-1]), offset - self._starts[-1])
        self._offset = offset
        self._cut_index(offset)

    def _cut_index(self, offset: int) -> None:
        path = Path(self._folder) / f"rank-{self._part}.index"
        with suppress(FileNotFoundError), path.open("r+b") as index:
            entries = list(ENTRY.iter_unpack(index.read()[: path.stat().st_size // ENTRY.size * ENTRY.size]))
            kept = [entry for entry in entries if entry[0] < offset]
            index.truncate(len(kept) * ENTRY.size)
            if kept:
                self._indexed = kept[-1][1]

    def _open_again(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        if self._starts:
            self._fd = os.open(self._path(self._starts[-1]), flags, 0o600)
        page = _position_path(self._run_dir, self._part)
        self._page = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(self._page, 0, PAGE)  # a disk that fills up later cannot keep us from noting how far we are

    def _at_line_start(self) -> bool:
        if self.recent:
            return self.recent.endswith(b"\n")
        if not self._starts or not self._offset:
            return True
        last = self._path(self._starts[-1]).read_bytes()[-1:] if self._offset > self._starts[-1] else b"\n"
        return last == b"\n"


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class LogFollower:
    """Somebody who waits for more of one unit's log."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self.is_removed = False
        """Nothing more will come: the run was removed."""

    def ring(self) -> None:
        self._rung.set()

    async def next(self) -> None:
        """Return once it has rung since the last time, some times a second at most."""
        await asyncio.sleep(PAUSE)
        await self._rung.wait()
        self._rung.clear()


class LogFollowers:
    def __init__(self) -> None:
        self._followers: dict[tuple[Run, int], set[LogFollower]] = {}

    def ring(self, run: Run, part: int) -> None:
        for follower in self._followers.get((run, part), ()):
            follower.ring()

    def _of(self, run: Run) -> list[LogFollower]:
        return [follower for (of, _), each in self._followers.items() if of == run for follower in each]

    def ring_all(self, run: Run) -> None:
        for follower in self._of(run):
            follower.ring()

    def let_go(self, run: Run) -> None:
        for follower in self._of(run):
            follower.is_removed = True
            follower.ring()

    @contextmanager
    def listen(self, run: Run, part: int) -> Iterator[LogFollower]:
        follower = LogFollower()
        self._followers.setdefault((run, part), set()).add(follower)
        try:
            yield follower
        finally:
            self._followers[run, part].discard(follower)
            if not self._followers[run, part]:
                del self._followers[run, part]
