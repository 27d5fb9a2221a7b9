"""Watch the directories of runs and the end of their supervisors, and tell which runs changed.

A supervisor that is killed leaves no trace in any file. A handle on its process tells when to look; what is true then
is still said by the lock, which its sandboxes hold until the last of them is gone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from pathlib import Path

from penstock.engines.base import Run
from penstock.engines.local import state
from penstock.engines.local.inotify import Inotify
from penstock.engines.local.layout import Layout
from penstock.engines.local.logs import Following
from penstock.engines.shared.wakeup import Changes

PATIENCE = 1.0
"""Seconds in which the sandboxes of a killed supervisor end by themselves."""
UNITS_A_SECOND = 20_000
"""An array of ten thousand changes with each start and end, and whoever is told looks at all of it: the longer it is,
the more changes are told at once."""


@dataclass
class _Watched:
    wd: int | None
    pause: float = 0.0
    pidfd: int = -1
    timer: asyncio.TimerHandle | None = None


class Watching:
    def __init__(self, layout: Layout, following: Following) -> None:
        self._layout, self._following = layout, following
        self._inotify = Inotify()
        self._loop = asyncio.get_running_loop()
        self._watched: dict[Run, _Watched] = {}
        self._awaited: set[Run] = set()
        self._changes = Changes()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, run: Run, pid: int | None, indexes: int = 0) -> None:
        """`indexes` is how many an array has."""
        if run in self._watched:
            return
        wd = self._inotify.watch(self._layout.run_dir(run), lambda: self._changed(run))
        watched = self._watched[run] = _Watched(wd, indexes / UNITS_A_SECOND)
        self._awaited.discard(run)
        try:
            watched.pidfd = os.pidfd_open(pid or -1)
        except (OSError, ValueError):
            self._gone(run)
            return
        self._loop.add_reader(watched.pidfd, self._gone, run)
        if state.ended(self._layout.run_dir(run)):  # it was quicker than we were
            self._tell(run)

    def await_began(self, run: Run) -> None:
        """A server that is gone was just starting it: look again when that came to something or to nothing."""
        if run not in self._awaited:
            self._awaited.add(run)
            self._later(self._after_start(run))

    async def _after_start(self, run: Run) -> None:
        run_dir = self._layout.run_dir(run)
        patience = self._loop.time() + PATIENCE
        while state.read_began(run_dir) is None and state.lock_is_held(run_dir):
            await self._wait_for_lock(run_dir, patience)
        self._awaited.discard(run)
        self._tell(run)

    def drop(self, run: Run) -> None:
        if watched := self._watched.pop(run, None):
            self._inotify.unwatch(watched.wd)
            self._close(watched)
            if watched.timer:
                watched.timer.cancel()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for run in list(self._watched):
            self.drop(run)
        self._inotify.close()

    def changes(self) -> AsyncIterator[Run]:
        return self._changes.follow()

    def _changed(self, run: Run) -> None:
        watched = self._watched.get(run)
        if watched and watched.pause:
            if watched.timer is None:
                watched.timer = self._loop.call_later(watched.pause, self._tell, run)
            return
        self._tell(run)

    def _tell(self, run: Run) -> None:
        if watched := self._watched.get(run):
            watched.timer = None
        self._changes.tell(run)

    def _close(self, watched: _Watched) -> None:
        if watched.pidfd >= 0:
            self._loop.remove_reader(watched.pidfd)
            os.close(watched.pidfd)
            watched.pidfd = -1

    def _gone(self, run: Run) -> None:
        if watched := self._watched.get(run):
            self._close(watched)
        self._later(self._after_lock(run))

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wait_for_lock(self, run_dir: Path, patience: float) -> None:
        await asyncio.sleep(0.02)  # the kernel tells nobody that a lock is free
        if self._loop.time() > patience:
            await asyncio.to_thread(state.end_leftovers, run_dir)

    async def _after_lock(self, run: Run) -> None:
        """The sandboxes of a killed supervisor end a moment after it."""
        run_dir = self._layout.run_dir(run)
        patience = self._loop.time() + PATIENCE
        while not state.ended(run_dir) and state.lock_is_held(run_dir):
            await self._wait_for_lock(run_dir, patience)
        self._tell(run)
        self._following.ring(run)
