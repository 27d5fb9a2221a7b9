"""The threads that talk to the database, so that the event loop never waits for a disk.

A few readers, each with its own connection, take calls from one queue. One writer takes everything that is queued at
once and commits it once: while a commit waits for the disk the next batch gathers, so many clients share each wait
(group commit). A call is answered only after its commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from penstock.store.session import Outcome, Session, Store

BATCH = 256
"""How many calls share a commit at most, so that the first does not wait for too many others."""


class Call(NamedTuple):
    function: Callable[[Store], Any]
    future: asyncio.Future[Any]


Queue = SimpleQueue[Call | None]
"""None is the end."""

Report = Callable[[Sequence[tuple[Call, Outcome]], bool], None]
"""Told in the thread what came of some calls, and whether they changed something."""


def start_reader(number: int, session: Session, queue: Queue, report: Report) -> Thread:
    return _start(f"store-reader-{number}", _read, session, queue, report)


def start_writer(session: Session, queue: Queue, report: Report) -> Thread:
    return _start("store-writer", _write, session, queue, report)


def _start(name: str, work: Callable[..., None], *args: Any) -> Thread:
    thread = Thread(target=work, args=args, name=name, daemon=True)
    thread.start()
    return thread


def _read(session: Session, queue: Queue, report: Report) -> None:
    while (call := queue.get()) is not None:
        if call.future.cancelled():
            continue
        try:
            outcome = Outcome(session.read(call.function))
        except BaseException as error:
            outcome = Outcome(error=error)
        report([(call, outcome)], False)
    session.close()


def _write(session: Session, queue: Queue, report: Report) -> None:
    more = True
    while more:
        calls, more = _gather(queue)
        if calls:
            outcomes, wrote = session.write([call.function for call in calls])
            report(list(zip(calls, outcomes, strict=True)), wrote)
            session.keep_reserve()
    session.close()


def _gather(queue: Queue) -> tuple[list[Call], bool]:
    """Waits for one call, takes what else is there, and says whether more may come."""
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
