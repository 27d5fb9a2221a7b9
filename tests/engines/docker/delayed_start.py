"""What stands between an engine and Docker: one request to start something gets no answer, and arrives late."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from pathlib import Path

_START = re.compile(rb"POST \S+/containers/\w+/start ")
_REMOVE = re.compile(rb"DELETE \S+/containers/\w+\?v=1 ")
"""Not by force, as only that is removed which may not run."""


class Arrives(StrEnum):
    never = "never"
    at_once = "at once"
    """Only the answer is lost."""
    before_the_removal = "before the removal"
    after_the_removal = "after the removal"
    """Or, if there is none, before the next request to start it."""


class DelayedStart:
    def __init__(self, engine: Path, here: Path, arrives: Arrives) -> None:
        self._engine, self._here = engine, here
        self._arrives = arrives
        self._kept: bytes | None = None
        self._armed = False
        self._served: set[asyncio.Task[None]] = set()
        self.starts = 0
        """How many requests to start something have reached Docker since then."""

    def arm(self) -> None:
        """It is the next one."""
        self._armed, self.starts = True, 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """The address for the engine's document."""
        server = await asyncio.start_unix_server(self._accept, self._here)
        try:
            yield f"unix://{self._here}"
        finally:
            server.close()
            await asyncio.gather(*self._served, return_exceptions=True)  # whoever connected is gone by now

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._served.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asks = await asyncio.open_unix_connection(self._engine)
        back = asyncio.create_task(_pipe(answers, writer))
        try:
            while data := await reader.read(1 << 16):
                if _START.match(data) and self._armed:
                    self._armed, self._kept = False, data
                    if self._arrives is Arrives.at_once:
                        await self._let_on()
                    return
                if _START.match(data) or (_REMOVE.match(data) and self._arrives is Arrives.before_the_removal):
                    await self._let_on()
                self.starts += bool(_START.match(data))
                asks.write(data)
                await asks.drain()
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            for each in (asks, writer):
                each.transport.abort()
            await asyncio.sleep(0)

    async def _let_on(self) -> None:
        """The request that was kept, and a little time for what it starts."""
        data, self._kept = self._kept, None
        if data is None or self._arrives is Arrives.never:
            return
        self.starts += 1
        answers, asks = await asyncio.open_unix_connection(self._engine)
        asks.write(data)
        await answers.readuntil(b"\r\n\r\n")
        asks.close()
        await self._until_over(data)

    async def _until_over(self, data: bytes) -> None:
        """Short programs have ended then, and others run."""
        name = data.split()[1].rpartition(b"/")[0]
        for _ in range(20):
            answers, asks = await asyncio.open_unix_connection(self._engine)
            asks.write(b"GET " + name + b"/json HTTP/1.0\r\nHost: docker\r\n\r\n")
            state = await answers.read()
            asks.close()
            if b'"Status":"exited"' in state:
                return
            await asyncio.sleep(0.1)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
