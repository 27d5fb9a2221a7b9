"""The log of a workload as one stream: the bytes of its node, or the prefixed lines of several."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from penstock.domain.users import Caller
from penstock.domain.workloads import WAITING, Workload
from penstock.engines.base import Engine, LogQuery, Run
from penstock.errors import Invalid, Problem
from penstock.services import lookup
from penstock.services.bell import Bell
from penstock.store.database import Database

LONGEST_LINE = 64 * 1024


class Logs:
    def __init__(self, db: Database, engine: Engine, bell: Bell) -> None:
        self._db = db
        self._engine = engine
        self._bell = bell

    async def open(self, caller: Caller, ref: str, node: int | None, query: LogQuery) -> AsyncIterator[bytes]:
        """Checks everything before the first byte, so that an error is an error and not a broken stream."""
        workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref))
        if node is not None and not 0 <= node < workload.spec.nodes:
            problem = Problem(f"there is no node {node}", field="node", hint=f"0 to {workload.spec.nodes - 1}")
            raise Invalid("The log cannot be shown.", problems=[problem])
        ranks = list(range(workload.spec.nodes)) if node is None else [node]
        return self._stream(workload, ranks, query)

    async def _stream(self, workload: Workload, ranks: list[int], query: LogQuery) -> AsyncIterator[bytes]:
        if query.follow and not await self._until(workload.id, _is_placed):
            return
        run = Run(workload.id, workload.attempt)
        if len(ranks) == 1:
            stream = self._engine.logs(run, ranks[0], query)
        else:
            streams = {rank: _lines(rank, self._engine.logs(run, rank, query)) for rank in ranks}
            stream = _merged(streams) if query.follow else _in_turn(streams)
        if query.follow and workload.started_at is None:
            stream = self._given_up_if_never_started(workload.id, stream)
        async for chunk in stream:
            yield chunk

    async def _given_up_if_never_started(self, workload_id: str, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A launch may fail, and then the engine has nothing to follow and never will."""
        first = asyncio.ensure_future(anext(stream, None))
        never = asyncio.create_task(self._until(workload_id, _has_started))
        try:
            await asyncio.wait([first, never], return_when=asyncio.FIRST_COMPLETED)
            if not first.done() and not never.result():
                return
            chunk = await first
        finally:
            first.cancel()
            never.cancel()
        if chunk is not None:
            yield chunk
            async for chunk in stream:
                yield chunk

    async def _until(self, workload_id: str, holds: Callable[[Workload], bool]) -> bool:
        """Waits until it holds; False if the workload ended or vanished without ever having started."""
        with self._bell.listen(workload_id) as rung:
            while True:
                rung.clear()
                workload = await self._db.read(lambda tx: tx.workloads.get(workload_id))
                if workload is None or (workload.ended and workload.started_at is None):
                    return False
                if holds(workload):
                    return True
                await rung.wait()


def _is_placed(workload: Workload) -> bool:
    return workload.state not in WAITING


def _has_started(workload: Workload) -> bool:
    return workload.started_at is not None


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
