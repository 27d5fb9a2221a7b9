"""Wakes those who follow a log when there is more of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.engines.base import Run

PAUSE, CROWD, CROWDED_PAUSE = 0.02, 50, 0.2
"""Seconds between two wake-ups of those who follow one log, and when they are many."""


class Wake:
    """One unit's followers. What comes quickly after another wakes them once, a moment later."""

    def __init__(self) -> None:
        self.turn = 0
        """Grows with every ring: read it, look at the files, then wait for the next."""
        self.followers = 0
        self.closed = False
        """Nothing more will come: the run was removed."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._last = float("-inf")

    def ring(self) -> None:
        loop = asyncio.get_running_loop()
        pause = CROWDED_PAUSE if self.followers > CROWD else PAUSE
        wait = self._last + pause - loop.time()
        if wait <= 0:
            self._ring()
        elif self._timer is None:
            self._timer = loop.call_later(wait, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._last = asyncio.get_running_loop().time()
        self.turn += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def next(self, turn: int) -> None:
        """Return once it has rung since `turn`."""
        if self.turn != turn or self.closed:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()


class Wakes:
    def __init__(self) -> None:
        self._wakes: dict[tuple[Run, int], Wake] = {}

    def ring(self, run: Run, part: int) -> None:
        if wake := self._wakes.get((run, part)):
            wake.ring()

    def ring_all(self, run: Run) -> None:
        for (of, _), wake in list(self._wakes.items()):
            if of == run:
                wake.ring()

    def close(self, run: Run) -> None:
        for (of, _), wake in list(self._wakes.items()):
            if of == run:
                wake.closed = True
                wake.ring()

    @contextmanager
    def listen(self, run: Run, part: int) -> Iterator[Wake]:
        wake = self._wakes.setdefault((run, part), Wake())
        wake.followers += 1
        try:
            yield wake
        finally:
            wake.followers -= 1
            if not wake.followers:
                wake.close()
                self._wakes.pop((run, part), None)
