"""Read and follow logs. However many follow a run, its files are watched once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.engines.base import LogQuery, Run
from penstock.engines.local.changes import NEXT_WRITE, Inotify
from penstock.engines.local.layout import Layout
from penstock.engines.local.state.snapshot import has_begun, has_ended, lock_is_held
from penstock.engines.shared.logstore import LogReader

CUT = b"\n[penstock] the disk was full: output from here on could not be kept\n"
PAUSE = 0.05
"""Seconds between two wake-ups of those who follow: a job that prints all the time costs no more than these."""
POLL = 0.2
"""Seconds between two looks where the kernel is out of watches."""


class LocalLogs:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._inotify = Inotify()
        self._watches: dict[Run, LogWatch] = {}
        self._tails = ThreadPoolExecutor(2, "penstock-tail")

    def close(self) -> None:
        for run in list(self._watches):
            self.forget(run)
        self._inotify.close()
        self._tails.shutdown(wait=False, cancel_futures=True)

    def wake(self, run: Run) -> None:
        """Wake followers after a change that no file of the log shows: the run began, or its supervisor is gone."""
        if watch := self._watches.get(run):
            watch.wake()

    def forget(self, run: Run) -> None:
        if watch := self._watches.get(run):
            watch.closed = True
            watch.wake()

    def read(self, run: Run, rank: int, query: LogQuery) -> AsyncIterator[bytes]:
        reader = LogReader(self._layout.run_dir(run), rank)
        return self._follow(run, rank, reader, query) if query.follow else self._read_now(reader, query)

    async def _follow(self, run: Run, rank: int, reader: LogReader, query: LogQuery) -> AsyncIterator[bytes]:
        if run not in self._watches:
            self._watches[run] = LogWatch(self._inotify, self._layout.run_dir(run) / "logs")
        watch = self._watches[run]
        watch.followers += 1
        try:
            async for data in self._deliver(run, rank, watch, reader, query):
                yield data
        finally:
            watch.followers -= 1
            if not watch.followers:
                watch.close()
                self._watches.pop(run, None)

    async def _deliver(
        self, run: Run, rank: int, watch: LogWatch, reader: LogReader, query: LogQuery
    ) -> AsyncIterator[bytes]:
        reader.refresh()
        offset, told = await reader.start(query, self._tails), False
        while True:
            turned, over = watch.turned, watch.closed or self._over(run, rank)
            reader.refresh()
            while (found := reader.read(offset))[0]:
                data, offset = found
                yield data
                await asyncio.sleep(0)
            if reader.is_cut and not told:
                yield CUT
            told = reader.is_cut
            if over:
                return
            await turned.wait()

    def _over(self, run: Run, rank: int) -> bool:
        """Will nothing more be printed? Ask before the last look at the files, so that nothing is missed."""
        run_dir = self._layout.run_dir(run)
        if (run_dir / "logs" / f"rank-{rank}.end").exists() or has_ended(run_dir):
            return True
        return has_begun(run_dir) and not lock_is_held(run_dir)

    async def _read_now(self, reader: LogReader, query: LogQuery) -> AsyncIterator[bytes]:
        reader.refresh()
        offset, end = await reader.start(query, self._tails), reader.size()
        while offset < end and (found := reader.read(offset))[0]:
            data, offset = found
            yield data
            await asyncio.sleep(0)
        if reader.is_cut:
            yield CUT


class LogWatch:
    """Wakes those who follow one run's logs.

    The kernel's watch fires once. Those who wait are woken, at once if it was quiet and otherwise after a pause, and
    only then is it set again. So a job that prints all the time costs a few wake-ups a second, however much it prints.
    """

    def __init__(self, inotify: Inotify, directory: Path) -> None:
        self._inotify, self._directory = inotify, directory
        self._loop = asyncio.get_running_loop()
        self._wd: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last = float("-inf")
        self.turned = asyncio.Event()
        """Set by the next wake-up, which puts another in its place: take it, look at the files, then wait for it."""
        self.followers = 0
        self.closed = False
        """Nothing more will come: the run was removed."""
        self._arm()

    def _arm(self) -> None:
        self._wd = self._inotify.watch(self._directory, self._heard, NEXT_WRITE)
        if self._wd is None and self._directory.is_dir():
            self._timer = self._loop.call_later(POLL, self.wake)

    def _heard(self) -> None:
        self._wd = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._last + PAUSE, self.wake)

    def wake(self) -> None:
        self._last = self._loop.time()
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._wd is None:
            self._arm()
        self.turned.set()
        self.turned = asyncio.Event()

    def close(self) -> None:
        self._inotify.unwatch(self._wd)
        if self._timer:
            self._timer.cancel()
