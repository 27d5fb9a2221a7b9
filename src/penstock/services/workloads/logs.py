"""Serve the log of a workload as one stream: of one node as it is, of several with prefixes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from penstock.domain.policy import Kind, Verb
from penstock.domain.states import WAITING
from penstock.domain.users import Caller
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine, LogQuery, Run
from penstock.errors import Invalid, PenstockError, Problem
from penstock.services import lookup
from penstock.services.people.people import People
from penstock.services.wakeup import Wakeup
from penstock.store.database import Database
from penstock.store.session import Store

LONGEST_LINE = 64 * 1024
FOLLOWED_AT_ONCE = 1000


class WorkloadLogs:
    def __init__(self, db: Database, engine: Engine, wakeup: Wakeup, people: People) -> None:
        self._db = db
        self._engine = engine
        self._wakeup = wakeup
        self._people = people

    async def open(
        self, caller: Caller, ref: str, query: LogQuery, part: int | None = None, attempt: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Check everything before the first byte, so that an error is an error and not a broken stream."""
        workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref, Verb.logs))
        if problem := _problem(workload, query, part, attempt):
            raise Invalid("The log cannot be shown.", problems=[problem])
        stream = self._stream(workload, part, attempt, query)
        stream = stream if query.follow else await begun(stream)
        return self._people.while_allowed(stream, caller, Verb.logs, Kind.Workload, workload.group)

    async def _stream(
        self, workload: Workload, part: int | None, attempt: int | None, query: LogQuery
    ) -> AsyncGenerator[bytes, None]:
        """Stream one attempt; or all of them, each with a line of ours before it once there is a second."""
        number = attempt or (workload.attempt if query.tail is not None else 1)
        while True:
            if query.follow and not await self._until(workload.id, number, lambda found: found.state not in WAITING):
                return
            async for chunk in self._attempt(workload, number, part, query):
                yield chunk
            if attempt is not None or not await self._goes_on(workload.id, number, query.follow):
                return
            number += 1
            yield b"[penstock] attempt %d\n" % number

    async def _attempt(
        self, workload: Workload, attempt: int, part: int | None, query: LogQuery
    ) -> AsyncIterator[bytes]:
        run = Run.of(workload, attempt)
        parts = await self._parts(workload, attempt) if part is None else [part]
        if workload.spec.parts == 1 or part is not None:
            stream = self._engine.logs(run, parts[0], query) if parts else _nothing()
        else:
            word = b"index" if workload.spec.array else b"node"
            streams = {each: _lines(b"%s-%d | " % (word, each), self._engine.logs(run, each, query)) for each in parts}
            stream = _merged(streams) if query.follow else _in_turn(streams)
        if query.follow:
            stream = self._given_up_if_never_started(workload.id, attempt, stream)
        async for chunk in stream:
            yield chunk

    async def _parts(self, workload: Workload, attempt: int) -> list[int]:
        """Return the parts that an attempt ran: later ones of an array only those that had failed."""
        if not workload.spec.array or attempt == 1:
            return list(range(workload.spec.parts))
        current = await self._db.read(lambda tx: tx.workloads.get(workload.id))
        if current and current.attempt == attempt:
            return list(current.indexes) or list(range(workload.spec.parts))
        units = await self._db.read(lambda tx: tx.workloads.units(workload.id, attempt))
        return sorted({unit.index for unit in units})

    async def _goes_on(self, workload_id: str, attempt: int, follow: bool) -> bool:
        """Is there a further attempt, now or, for one who follows, later?"""
        if follow:
            return await self._until(workload_id, attempt + 1, lambda _: True)
        workload = await self._db.read(lambda tx: tx.workloads.get(workload_id))
        return workload is not None and workload.attempt > attempt and workload.state not in WAITING

    async def _given_up_if_never_started(
        self, workload_id: str, attempt: int, stream: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        """Stop waiting if the launch failed: then the engine has nothing to follow and never will."""
        first = asyncio.ensure_future(anext(stream, None))
        started = asyncio.create_task(self._until(workload_id, attempt, lambda found: found.started_at is not None))
        try:
            await asyncio.wait([first, started], return_when=asyncio.FIRST_COMPLETED)
            if not first.done() and await self._never_ran(workload_id, attempt, started=started.result()):
                return
            chunk = await first
        finally:
            first.cancel()
            started.cancel()
        if chunk is not None:
            yield chunk
            async for chunk in stream:
                yield chunk

    async def _never_ran(self, workload_id: str, attempt: int, *, started: bool) -> bool:
        """Is the workload over without any of its units having begun?"""

        def look(tx: Store) -> bool:
            workload = tx.workloads.get(workload_id)
            over = not started or workload is None or workload.attempt > attempt
            return over and not any(unit.started_at for unit in tx.workloads.units(workload_id, attempt))

        return await self._db.read(look)

    async def _until(self, workload_id: str, attempt: int, holds: Callable[[Workload], bool]) -> bool:
        """Wait until it holds for this attempt or a later one came; False if the workload ended or vanished before."""
        with self._wakeup.listen(workload_id) as listener:
            while True:
                listener.clear()
                workload = await self._db.read(lambda tx: tx.workloads.get(workload_id))
                if workload is None or (workload.attempt < attempt and workload.ended):
                    return False
                if workload.attempt > attempt or (workload.attempt == attempt and holds(workload)):
                    return True
                if workload.ended:
                    return False
                await listener.change()


async def begun(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Return the same stream with its first piece at hand: whoever has the log was reached.

    Who is lost later can no longer become an error's status, so the log says where it breaks off, and why.
    """
    first = await anext(stream, None)

    async def whole() -> AsyncGenerator[bytes, None]:
        async with aclosing(stream):
            if first is not None:
                yield first
            try:
                async for chunk in stream:
                    yield chunk
            except PenstockError as error:
                yield f"\n[penstock] the log breaks off here: {error}\n".encode()

    return whole()


def _problem(workload: Workload, query: LogQuery, part: int | None, attempt: int | None) -> Problem | None:
    if problem := lookup.part_problem(workload, part):
        return problem
    if attempt is not None and attempt > workload.attempt:
        return Problem(f"there is no attempt {attempt}", field="attempt", hint=f"1 to {workload.attempt}")
    if part is None and query.follow and workload.spec.parts > FOLLOWED_AT_ONCE:
        said = f"{workload.spec.parts:,} cannot be followed at once, {FOLLOWED_AT_ONCE} at most"
        field = "index" if workload.spec.array else "node"
        return Problem(said, field=field, hint="name one, or do not follow")
    return None


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


async def _lines(prefix: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split into whole lines, each with the prefix; a line that never ends is cut rather than kept."""
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
    """Merge streams as they come. One slot: a slow reader slows the readers of the files, and nothing piles up."""
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
