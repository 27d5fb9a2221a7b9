"""Split a container's log into timestamped lines, and leave out those already stored.

The kubelet can be asked only for what came after a whole second, so a reader that comes back gets lines again. It
knows them by their times: the last ones it had are kept in a mark. Times have nanoseconds and lines of the two outputs
may stand in the file a little out of order, hence several times and not one.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

KEPT = 128
NS = 1_000_000_000
LONGEST_TIME = 40
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")


class LogLine(NamedTuple):
    """A line with its newline, or a piece of one: the program has not ended it yet, or it is long."""

    time: int
    """Nanoseconds since 1970, by the clock of the node."""
    data: bytes

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.time / NS, UTC)


class LogMark:
    """How far a reader has come. Made again from `times`, `part` and `restarts`, it goes on at the same byte."""

    def __init__(self, times: Iterable[int] = (), part: int = 0, restarts: int = 0) -> None:
        self._times = deque(times, KEPT)
        self.part = part
        """Bytes had of the last line, if it was not at its end."""
        self.restarts = restarts
        """How often the container that is read was restarted."""

    @property
    def times(self) -> tuple[int, ...]:
        """Of the last lines had, the latest last. To be kept whole: fewer than KEPT means that there were no others."""
        return tuple(self._times)

    @property
    def oldest(self) -> int:
        """What is older was had."""
        return min(self._times) if len(self._times) == KEPT else 0

    @property
    def since(self) -> str | None:
        """What to ask the kubelet for; None for all."""
        if not self._times:
            return None
        second = self.oldest // NS or min(self._times) // NS - 1
        return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def begun(self, time: int) -> None:
        self._times.append(time)
        self.part = 0

    def had(self, data: bytes) -> None:
        self.part = 0 if data.endswith(b"\n") else self.part + len(data)


class LineFilter:
    """Takes the bytes of one answer and gives what is new in it, moving the mark along."""

    def __init__(self, mark: LogMark) -> None:
        self._mark = mark
        self._had = Counter(mark.times)
        self._oldest = mark.oldest
        self._cut = (mark.times[-1], mark.part) if mark.part else None
        self._prefix = b""
        self._time: int | None = None
        self._skip = 0
        self._new = False
        self._in_line = False
        self.missed = bool(mark.times)
        """Nothing that was had before is in this answer: nodes throw away the beginning of a log that grows long."""
        self.said = b""
        """Text of the kubelet itself, not of the container: why there is nothing more."""

    def feed(self, chunk: bytes) -> Iterable[LogLine]:
        for text in _pieces(chunk):
            line = self._rest(text) if self._in_line else self._begin(self._prefix + text)
            if line:
                yield line

    def _begin(self, text: bytes) -> LogLine | None:
        found = _TIME.match(text)
        if found is None:
            self._without_time(text)
            return None
        self._prefix, self._in_line, self.said = b"", True, b""
        self._time = nanoseconds(*found.groups())
        self._skip = self._had_of(self._time)
        self._new = not self._skip
        return self._rest(text[found.end() :])

    def _without_time(self, text: bytes) -> None:
        if len(text) < LONGEST_TIME and not text.endswith(b"\n"):
            self._prefix = text  # the time is still coming
            return
        self._prefix, self._in_line, self._time = b"", not text.endswith(b"\n"), None
        self.said = text

    def _had_of(self, time: int) -> int:
        """How many bytes of this line were had before; -1 for all of them."""
        if time < self._oldest:
            self.missed = False
            return -1
        if not self._had[time]:
            return 0
        self.missed = False
        self._had[time] -= 1
        if self._cut and self._cut[0] == time and not self._had[time]:
            return self._cut[1]
        return -1

    def _rest(self, text: bytes) -> LogLine | None:
        ended = text.endswith(b"\n")
        self._in_line = not ended
        if self._time is None:
            self.said += text
            return None
        if self._skip < 0:
            return None
        skipped = min(self._skip, len(text))
        self._skip -= skipped
        data = text[skipped:]
        if not data:
            return None
        if self._new:
            self._mark.begun(self._time)
            self._new = False
        self._mark.had(data)
        return LogLine(self._time, data)


def _pieces(chunk: bytes) -> Iterator[bytes]:
    start = 0
    while end := chunk.find(b"\n", start) + 1:
        yield chunk[start:end]
        start = end
    if start < len(chunk):
        yield chunk[start:]


def nanoseconds(second: bytes, fraction: bytes | None, zone: bytes) -> int:
    return _epoch(second + zone) * NS + int((fraction or b"0").ljust(9, b"0"))


@lru_cache(64)
def _epoch(text: bytes) -> int:
    return int(datetime.fromisoformat(text.decode()).timestamp())
