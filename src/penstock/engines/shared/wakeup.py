"""Collect which runs have changed, each once, for whoever looks at them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from weakref import WeakSet

from penstock.engines.base import Run

SLOWEST, PER_PART = 2.0, 0.0005
"""Seconds in which changes of a large run are told as one: looking at it costs as much as it has parts."""
AT_ONCE = 100
"""The most parts of a run whose changes are told at once."""


class Changes:
    def __init__(self) -> None:
        self._listeners: WeakSet[_Listener] = WeakSet()

    def tell(self, run: Run, parts: int = 1) -> None:
        wait = min(SLOWEST, PER_PART * parts) if parts > AT_ONCE else 0.0
        for listener in list(self._listeners):
            listener.tell(run, wait)

    def follow(self) -> AsyncIterator[Run]:
        """Return what changes from this call on, whenever it is first asked for."""
        listener = _Listener()
        self._listeners.add(listener)
        return _told(listener)


async def _told(listener: _Listener) -> AsyncIterator[Run]:
    while True:
        yield await listener.next()


class _Listener:
    def __init__(self) -> None:
        self._changed: dict[Run, None] = {}
        self._later: set[Run] = set()
        self._some = asyncio.Event()

    def tell(self, run: Run, wait: float) -> None:
        if not wait:
            self._now(run)
        elif run not in self._changed and run not in self._later:
            self._later.add(run)
            asyncio.get_running_loop().call_later(wait, self._now, run)

    def _now(self, run: Run) -> None:
        self._later.discard(run)
        self._changed[run] = None
        self._some.set()

    async def next(self) -> Run:
        await self._some.wait()
        run = next(iter(self._changed))
        del self._changed[run]
        if not self._changed:
            self._some.clear()
        return run
