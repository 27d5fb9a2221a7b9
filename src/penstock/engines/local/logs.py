"""Read and follow logs. However many follow a run, its files are watched and read once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.engines.base import LogQuery, Run
from penstock.engines.local.changes import Inotify
from penstock.engines.local.layout import Layout
from penstock.engines.local.state.snapshot import has_ended, lock_is_held, read_began
from penstock.engines.shared.logstore import LogReader

CUT = b"\n[penstock] the disk was full: output from here on could not be kept\n"


class LocalLogs:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._inotify = Inotify()
        self._watches: dict[Run, LogWatch] = {}
        self._readers: dict[tuple[Run, int], LogReader] = {}
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

    async def read(self, run: Run, rank: int, query: LogQuery) -> AsyncIterator[bytes]:
        if query.follow:
            source = self._follow(run, rank, query)
        else:
            source = self._read_now(LogReader(self._layout.run_dir(run), rank), query)
        async for data in source:
            yield data

    async def _follow(self, run: Run, rank: int, query: LogQuery) -> AsyncIterator[bytes]:
        watch = self._watches.get(run) or self._watches.setdefault(
            run, LogWatch(self._inotify, self._layout.run_dir(run) / "logs")
        )
        reader = self._readers.setdefault((run, rank), LogReader(self._layout.run_dir(run), rank))
        watch.followers += 1
        try:
            async for data in self._deliver(run, rank, watch, reader, query):
                yield data
        finally:
            watch.followers -= 1
            if not watch.followers:
                watch.close()
                self._watches.pop(run, None)
                for key in [key for key in self._readers if key[0] == run]:
                    del self._readers[key]

    async def _deliver(
        self, run: Run, rank: int, watch: LogWatch, reader: LogReader, query: LogQuery
    ) -> AsyncIterator[bytes]:
        reader.refresh()
        offset, told = await reader.start(query, self._tails), False
        while True:
            turn = watch.turn
            if reader.turn != turn:
                reader.over = watch.closed or self._over(run, rank)
                reader.refresh()
                reader.turn = turn
            while (found := reader.read(offset))[0]:
                data, offset = found
                yield data
                await asyncio.sleep(0)
            if reader.is_cut and not told:
                yield CUT
            told = reader.is_cut
            if reader.over:
                return
            await watch.next(turn)

    def _over(self, run: Run, rank: int) -> bool:
        """Will nothing more be printed? Ask before the last look at the files, so that nothing is missed."""
        run_dir = self._layout.run_dir(run)
        if (run_dir / "logs" / f"rank-{rank}.end").exists() or has_ended(run_dir):
            return True
        return read_began(run_dir) is not None and not lock_is_held(run_dir)

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

    PAUSE, CROWD, CROWDED_PAUSE = 0.05, 50, 0.2

    def __init__(self, inotify: Inotify, directory: Path) -> None:
        self._inotify, self._directory = inotify, directory
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._wd: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last = float("-inf")
        self.turn = 0
        """It grows with every wake-up: read it, look at the files, then wait for the next."""
        self.followers = 0
        self.closed = False
        """Nothing more will come: the run was removed."""
        self._arm()

    def _arm(self) -> None:
        self._wd = self._inotify.watch_once(self._directory, self._heard)
        if self._wd is None and self._timer is None and self._directory.is_dir():
            self._timer = self._loop.call_later(self.CROWDED_PAUSE, self.wake)  # the kernel is out of watches

    def _heard(self) -> None:
        self._wd = None
        pause = self.CROWDED_PAUSE if self.followers > self.CROWD else self.PAUSE
        wait = self._last + pause - self._loop.time()
        if wait <= 0:
            self._wake_for_news()
        elif self._timer is None:
            self._timer = self._loop.call_later(wait, self._wake_for_news)

    def _wake_for_news(self) -> None:
        self._last = self._loop.time()
        self.wake()

    def wake(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._wd is None:
            self._arm()
        self.turn += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def next(self, turn: int) -> None:
        """Return once there was a wake-up since `turn`."""
        if self.turn != turn or self.closed:
            return
        future = self._loop.create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def close(self) -> None:
        self._inotify.unwatch(self._wd)
        if self._timer:
            self._timer.cancel()
