"""The log of a workload as one stream: the bytes of its node, or the prefixed lines of several."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from penstock.domain.users import Caller
from penstock.domain.workloads import WAITING, Workload
from penstock.engines.base import Engine, LogQuery, Run
from penstock.errors import Invalid, Problem
from penstock.services import lookup
from penstock.store.database import Database

LONGEST_LINE = 64 * 1024
PATIENCE = 60.0


class Logs:
    def __init__(self, db: Database, engine: Engine) -> None:
        self._db = db
        self._engine = engine

    async def open(self, caller: Caller, ref: str, node: int | None, query: LogQuery) -> AsyncIterator[bytes]:
        """Checks everything before the first byte, so that an error is an error and not a broken stream."""
        workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref))
        if node is not None and not 0 <= node < workload.spec.nodes:
            problem = Problem(f"there is no node {node}", field="node", hint=f"0 to {workload.spec.nodes - 1}")
            raise Invalid("The log cannot be shown.", problems=[problem])
        ranks = list(range(workload.spec.nodes)) if node is None else [node]
        return self._stream(workload, ranks, query)

    async def _stream(self, workload: Workload, ranks: list[int], query: LogQuery) -> AsyncIterator[bytes]:
        if query.follow and not await self._placed(workload.id):
            return
        run = Run(workload.id, workload.attempt)
        if len(ranks) == 1:
            async for chunk in self._engine.logs(run, ranks[0], query):
                yield chunk
            return
        streams = {rank: _lines(rank, self._engine.logs(run, rank, query)) for rank in ranks}
        merged = _merged(streams) if query.follow else _in_turn(streams)
        async for chunk in merged:
            yield chunk

    async def _placed(self, workload_id: str) -> bool:
        """Waits until it is placed; False if it ended or vanished without."""
        while True:
            seen = self._db.version
            workload = await self._db.read(lambda tx: tx.workloads.get(workload_id))
            if workload is None or (workload.ended and workload.started_at is None):
                return False
            if workload.state not in WAITING:
                return True
            await self._db.changed(seen, PATIENCE)


async def _lines(rank: int, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines, each prefixed; a line that never ends is cut rather than kept."""
    prefix = b"node-%d | " % rank
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines.append(rest)
            rest = b""
        if lines:
            yield b"".join(prefix + line + b"\n" for line in lines)
    if rest:
        yield prefix + rest + b"\n"


async def _in_turn(streams: dict[int, AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
    for stream in streams.values():
        async for chunk in stream:
            yield chunk


async def _merged(streams: dict[int, AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
    """As they come. One slot: a slow reader slows the readers of the files, and nothing piles up."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)

    async def pump(stream: AsyncIterator[bytes]) -> None:
        try:
            async for chunk in stream:
                await queue.put(chunk)
        except OSError as error:
            await queue.put(b"[penstock] the log cannot be read: %s\n" % str(error).encode())
        await queue.put(None)

    tasks = [asyncio.create_task(pump(stream)) for stream in streams.values()]
    try:
        left = len(tasks)
        while left:
            chunk = await queue.get()
            if chunk is None:
                left -= 1
            else:
                yield chunk
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
