"""Wake those who wait for a change of one particular workload."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PATIENCE = 10.0
"""Seconds after which a waiter looks by itself: a second server on the same database wakes nobody here."""


class Listener(asyncio.Event):
    """One who waits for changes. To be cleared before looking, so that what happens meanwhile is not missed."""

    async def change(self, seconds: float = PATIENCE) -> None:
        """Wait for a change, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, PATIENCE)):
                await self.wait()


class Wakeup:
    def __init__(self) -> None:
        self._listeners: dict[str, set[Listener]] = {}
        self.stopping = False
        """The server is about to stop: whoever waits answers with what is now."""

    def stop(self) -> None:
        self.stopping = True
        for workload_id in list(self._listeners):
            self.wake(workload_id)

    def wake(self, workload_id: str) -> None:
        for listener in self._listeners.get(workload_id, ()):
            listener.set()

    @contextmanager
    def listen(self, workload_id: str) -> Iterator[Listener]:
        listener = Listener()
        self._listeners.setdefault(workload_id, set()).add(listener)
        try:
            yield listener
        finally:
            listeners = self._listeners[workload_id]
            listeners.discard(listener)
            if not listeners:
                del self._listeners[workload_id]
