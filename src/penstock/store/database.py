"""The database as the server uses it: `await db.read(...)`, `await db.write(...)`, `await db.changed(...)`.

    volumes = await db.read(lambda tx: tx.volumes.find("data", group))
    await db.write(lambda tx: tx.volumes.add(volume, account))

The function runs in another thread, in a transaction; it must only use `tx` and what it was given, and do nothing that
waits. A write is durable when it returns.

A few readers, each with its own connection, take calls from one queue. One writer takes everything that is queued at
once and commits it once: while a commit waits for the disk the next batch gathers, so many clients share each wait
(group commit). A call is answered only after its commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from sqlalchemy import URL

from penstock.errors import StartRefused, StorageFull, Unavailable
from penstock.store.connections import make_engine, parse_url, prepare_file, translated
from penstock.store.reserve import DiskReserve
from penstock.store.schema import prepare
from penstock.store.session import DatabaseSession, Store, WriteResult

T = TypeVar("T")

READERS = 4


class Database:
    """Use `await Database.open(url)`."""

    def __init__(self, sessions: Sequence[DatabaseSession], reserve: DiskReserve | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._reserve = reserve
        self._closed = False
        self._nobody_waits = False
        self._waiters: set[asyncio.Future[None]] = set()
        self.version = time.time_ns() // 1_000_000
        """Another number after each commit that changed something. Begins at the clock, so that one that a client
        kept from before a restart is not met again."""
        self._reads: Queue = SimpleQueue()
        self._writes: Queue = SimpleQueue()
        writer, *readers = sessions
        self._threads = [_start("store-writer", _write, writer, self._writes, self._report)]
        self._threads += [_start("store-reader", _read, reader, self._reads, self._report) for reader in readers]

    @classmethod
    async def open(cls, url: str, *, lock: bool = True) -> Self:
        """Open the database; raises StartRefused where it cannot or must not be used. Without `lock` the caller has it
        already (leader.py)."""
        return cls(*await asyncio.to_thread(_sessions, parse_url(url), lock))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._wake()
        self._writes.put(None)
        for _ in range(READERS):
            self._reads.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        if self._reserve:
            self._reserve.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def read(self, function: Callable[[Store], T]) -> T:
        return await self._call(self._reads, function)

    async def write(self, function: Callable[[Store], T]) -> T:
        """Run a function and return its value when it is on the disk. If it raises, nothing it wrote is kept."""
        return await self._call(self._writes, function)

    async def changed(self, seen: int, timeout: float) -> int:
        """Return the version as soon as it is not `seen`, or as it is after `timeout` seconds."""
        if self.version == seen and not self._closed and not self._nobody_waits:
            waiter = self._loop.create_future()
            timer = self._loop.call_later(timeout, _settle, waiter, WriteResult())
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiters.discard(waiter)
        return self.version

    async def _call(self, queue: Queue, function: Callable[[Store], T]) -> T:
        if self._closed:
            raise Unavailable("The server is stopping.", hint="Try again when it is back.")
        future: asyncio.Future[T] = self._loop.create_future()
        queue.put(Call(function, future))
        return await future

    def _report(self, results: Sequence[tuple[Call, WriteResult]], wrote: bool) -> None:
        """In a thread of the store: hands the results over, all at once."""
        try:
            self._loop.call_soon_threadsafe(self._deliver, results, wrote)
        except RuntimeError:
            return  # The loop is closed: nobody is left to hear it.

    def _deliver(self, results: Sequence[tuple[Call, WriteResult]], wrote: bool) -> None:
        if wrote:
            self.version += 1
        for call, outcome in results:
            _settle(call.future, outcome)
        if wrote:
            self._wake()

    def stop_waiting(self) -> None:
        """Answers all who wait for a change, now and from now on: the server is about to stop."""
        self._nobody_waits = True
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            _settle(waiter, WriteResult())


def _settle(future: asyncio.Future[Any], outcome: WriteResult) -> None:
    if future.done():
        return
    if outcome.error is None:
        future.set_result(outcome.value)
    elif isinstance(outcome.error, StopIteration):  # The one exception that a future refuses to carry.
        future.set_exception(RuntimeError("StopIteration left a function of the store"))
    else:
        future.set_exception(outcome.error)


def _sessions(url: URL, lock: bool) -> tuple[list[DatabaseSession], DiskReserve | None]:
    """Open the writer's and the readers' sessions, after the schema was made ready."""
    prepare_file(url)
    sessions: list[DatabaseSession] = []
    reserve = DiskReserve(url.database or "") if url.get_backend_name() == "sqlite" else None
    try:
        writing, reading = make_engine(url, writes=True, lock=lock), make_engine(url, writes=False)
        if reserve:
            reserve.hold_index()
            sessions.append(DatabaseSession(writing, reserve))
            reserve.hold_log()  # before another connection can be the last that is closed
        prepare(writing)
        for session in sessions:
            session.keep_reserve()
        sessions += [DatabaseSession(engine) for engine in ([] if reserve else [writing]) + [reading] * READERS]
        return sessions, reserve
    except BaseException as error:
        for session in sessions:
            session.close()
        if reserve:
            reserve.release()
        reason = translated(error)
        if isinstance(reason, StorageFull | Unavailable):
            raise StartRefused(reason.message, hint=reason.hint) from None
        raise


BATCH = 256
"""How many calls share a commit at most, so that the first does not wait for too many others."""


class Call(NamedTuple):
    function: Callable[[Store], Any]
    future: asyncio.Future[Any]


Queue = SimpleQueue[Call | None]
"""None is the end."""

Report = Callable[[Sequence[tuple[Call, WriteResult]], bool], None]
"""Told in the thread what came of some calls, and whether they changed something."""


def _start(name: str, work: Callable[..., None], *args: Any) -> Thread:
    thread = Thread(target=work, args=args, name=name, daemon=True)
    thread.start()
    return thread


def _read(session: DatabaseSession, queue: Queue, report: Report) -> None:
    while (call := queue.get()) is not None:
        if call.future.cancelled():
            continue
        try:
            outcome = WriteResult(session.read(call.function))
        except BaseException as error:
            outcome = WriteResult(error=error)
        report([(call, outcome)], False)
    session.close()


def _write(session: DatabaseSession, queue: Queue, report: Report) -> None:
    more = True
    while more:
        calls, more = _gather(queue)
        if calls:
            outcomes, wrote = session.write([call.function for call in calls])
            report(list(zip(calls, outcomes, strict=True)), wrote)
            session.keep_reserve()
    session.close()


def _gather(queue: Queue) -> tuple[list[Call], bool]:
    """Wait for one call, take what else is there, and say whether more may come."""
    calls: list[Call] = []
    call = queue.get()
    while call is not None:
        if not call.future.cancelled():
            calls.append(call)
        if len(calls) == BATCH:
            return calls, True
        try:
            call = queue.get_nowait()
        except Empty:
            return calls, True
    return calls, False
