"""Read and follow the logs Docker keeps, and resume after a lost connection.

Each piece comes behind its time. Who comes back asks for what is not older than the last one had, and leaves out as
many of that very moment as were had.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime

from penstock.engines.base import LogQuery, Run
from penstock.engines.docker.api.errors import DockerError, DockerNotFound, DockerUnreachable, translated_errors
from penstock.engines.docker.api.http import FrameReader
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.hosts import DockerHosts

_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})Z ")
NS = 1_000_000_000
PAUSE = 0.5
Changed = Callable[[], AsyncIterator[Run]]
Ended = Callable[[Run, int], bool]
"""Says whether a part will never begin."""


class ContainerLogs:
    def __init__(self, hosts: DockerHosts, changes: Changed, ended: Ended) -> None:
        self._hosts, self._changes, self._ended = hosts, changes, ended

    async def read(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        seen = await self._begun(run, part) if query.follow else self._hosts.parts(run).get(part)
        if seen is None or not seen.began or seen.gone:
            return
        mark = ReadPosition()
        tail, since = query.tail, query.since
        while True:
            try:
                async for data in self._once(seen, query.follow, tail, since, mark):
                    yield data
            except DockerNotFound:
                return
            except DockerUnreachable:
                if not query.follow:
                    with translated_errors():
                        raise
            if not query.follow or await self._is_over(seen):
                return
            if mark.last or tail is not None:  # what was asked for as a tail has been had
                tail = None
                since = since if mark.last else datetime.now(UTC)
            await asyncio.sleep(PAUSE)

    async def _begun(self, run: Run, part: int) -> ContainerRecord | None:
        """Wait until a part has begun; None if it never will."""
        changes = self._changes()
        look = asyncio.ensure_future(anext(changes))
        try:
            while True:
                seen = self._hosts.parts(run).get(part)
                if seen and seen.began:
                    return seen
                if self._ended(run, part):
                    return None
                await look
                look = asyncio.ensure_future(anext(changes))
        finally:
            look.cancel()

    async def _is_over(self, seen: ContainerRecord) -> bool:
        """Ask the host whether the container has ended: its stream may end for other reasons."""
        try:
            link = self._hosts.link(seen.host)
            now = await link.look(seen.id)
        except DockerError:
            return False
        return now is None or now.over

    async def _once(
        self, seen: ContainerRecord, follow: bool, tail: int | None, since: datetime | None, mark: ReadPosition
    ) -> AsyncIterator[bytes]:
        link = self._hosts.link(seen.host)
        given = {"follow": "1" if follow else "0", "tail": "all" if tail is None or mark.last else str(tail)}
        if mark.last:
            given["since"] = f"{mark.last // NS}.{mark.last % NS:09d}"
        elif since is not None:
            given["since"] = f"{(since + link.skew).timestamp():.6f}"
        lines = _TerminalLines() if seen.tty else _FramedLines()
        async with link.api.logs(seen.id, **given) as pieces:
            mark.back()
            async for piece in pieces:
                if fresh := mark.new_of(lines.feed(piece)):
                    yield fresh
        if fresh := mark.new_of([lines.rest] if lines.rest else []):
            yield fresh


class ReadPosition:
    """Remembers how far a reader has come."""

    def __init__(self) -> None:
        self.last = 0
        self._had = 0
        """How many lines of that moment the reader has had."""
        self._skip = 0

    def back(self) -> None:
        self._skip = self._had

    def new_of(self, lines: Iterable[bytes]) -> bytes:
        """Return what the reader has not had of these lines, without their times."""
        return b"".join(data for time, data in map(split_time, lines) if self._is_new(time))

    def _is_new(self, time: int) -> bool:
        if time < self.last:
            return self._skip == 0  # the two outputs may be a little out of order, but not what was had
        if time == self.last and self._skip:
            self._skip -= 1
            return False
        if time > self.last:
            self.last, self._had, self._skip = time, 0, 0
        self._had += 1
        return True


class _FramedLines:
    rest = b""

    def __init__(self) -> None:
        self._frames = FrameReader()

    def feed(self, data: bytes) -> list[bytes]:
        return [line for _, line in self._frames.feed(data)]


class _TerminalLines:
    """Splits the log of a terminal, which has no frames, only lines."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [line + b"\n" for line in lines]


def split_time(line: bytes) -> tuple[int, bytes]:
    found = _TIME.match(line)
    if not found:
        return 0, line
    moment = datetime.fromisoformat(found[1].decode()).replace(tzinfo=UTC)
    return int(moment.timestamp()) * NS + int(found[2]), line[found.end() :]
