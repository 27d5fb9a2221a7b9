"""Which runs changed, for whoever listens: each once, however often it changed since they last looked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from penstock.engines.base import Run

SLOWEST, PER_PART = 2.0, 0.0005
"""Seconds in which changes of a large run are told as one: to look at it costs as much as it has parts."""
AT_ONCE = 100
"""Runs of so few parts are told at once."""


class Changes:
    def __init__(self) -> None:
        self._listeners: set[_Listener] = set()

    def tell(self, run: Run, parts: int = 1) -> None:
        wait = min(SLOWEST, PER_PART * parts) if parts > AT_ONCE else 0.0
        for listener in self._listeners:
            listener.tell(run, wait)

    def listen(self) -> AsyncIterator[Run]:
        """From now on, not only from the first look on: what changes in between is told, too."""
        listener = _Listener()
        self._listeners.add(listener)
        return self._told(listener)

    async def _told(self, listener: _Listener) -> AsyncIterator[Run]:
        try:
            while True:
                yield await listener.next()
        finally:
            self._listeners.discard(listener)
            listener.close()


class _Listener:
    """Runs that changed and were not yet looked at, each once."""

    def __init__(self) -> None:
        self._changed: dict[Run, None] = {}
        self._later: dict[Run, asyncio.TimerHandle] = {}
        self._some = asyncio.Event()

    def tell(self, run: Run, wait: float) -> None:
        if not wait:
            self._now(run)
        elif run not in self._changed and run not in self._later:
            self._later[run] = asyncio.get_running_loop().call_later(wait, self._now, run)

    def _now(self, run: Run) -> None:
        self._later.pop(run, None)
        self._changed[run] = None
        self._some.set()

    async def next(self) -> Run:
        await self._some.wait()
        run = next(iter(self._changed))
        del self._changed[run]
        if not self._changed:
            self._some.clear()
        return run

    def close(self) -> None:
        for timer in self._later.values():
            timer.cancel()
