"""Runs that changed, for whoever looks at them: each once, however often it changed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from weakref import WeakSet

from penstock.engines.base import Run


class Changes:
    def __init__(self) -> None:
        self._listeners: WeakSet[_Listener] = WeakSet()

    def tell(self, run: Run) -> None:
        for listener in list(self._listeners):
            listener.tell(run)

    def follow(self) -> AsyncIterator[Run]:
        """What changes from this call on, whenever it is first asked for."""
        listener = _Listener()
        self._listeners.add(listener)
        return _told(listener)


async def _told(listener: _Listener) -> AsyncIterator[Run]:
    while True:
        yield await listener.next()


class _Listener:
    def __init__(self) -> None:
        self._changed: dict[Run, None] = {}
        self._some = asyncio.Event()

    def tell(self, run: Run) -> None:
        self._changed[run] = None
        self._some.set()

    async def next(self) -> Run:
        await self._some.wait()
        run = next(iter(self._changed))
        del self._changed[run]
        if not self._changed:
            self._some.clear()
        return run
