"""Run work in the background: tasks that end together, and pauses that grow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Hashable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class Tasks:
    """Background tasks of one owner. A defect in one of them is logged; `close` ends them all."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._by_key: dict[Hashable, asyncio.Task[Any]] = {}

    def start(self, work: Coroutine[Any, Any, T], key: Hashable = None) -> asyncio.Task[T]:
        """Start a task; with a key it is found by `get` for as long as it runs."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        if key is not None:
            self._by_key[key] = task
        task.add_done_callback(partial(self._done, key))
        return task

    def get(self, key: Hashable) -> asyncio.Task[Any] | None:
        return self._by_key.get(key)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._by_key.get(key) is task:
            del self._by_key[key]
        if not task.cancelled() and (error := task.exception()):
            log.error("a defect in the background", exc_info=error)


class Backoff:
    """Seconds to pause between tries: twice as long each time, up to the longest."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._next = first

    def next(self) -> float:
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause

    def reset(self) -> None:
        self._next = self._first

    async def pause(self) -> None:
        await asyncio.sleep(self.next())
