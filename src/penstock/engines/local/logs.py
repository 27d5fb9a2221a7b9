"""Read and follow logs: however many follow a run, its files are watched and read once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from penstock.engines.base import LogQuery, Run
from penstock.engines.local import state
from penstock.engines.local.inotify import Bell, Inotify
from penstock.engines.local.layout import Layout
from penstock.engines.shared.logstore import LogReader

CUT = b"\n[penstock] the disk was full: output from here on could not be kept\n"


class Following:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._inotify = Inotify()
        self._bells: dict[Run, Bell] = {}
        self._readers: dict[tuple[Run, int], LogReader] = {}
        self._tails = ThreadPoolExecutor(2, "penstock-tail")

    def close(self) -> None:
        for run in list(self._bells):
            self.forget(run)
        self._inotify.close()
        self._tails.shutdown(wait=False, cancel_futures=True)

    def ring(self, run: Run) -> None:
        """Something happened that no file of the log shows: it began, or its supervisor is gone."""
        if bell := self._bells.get(run):
            bell.ring()

    def forget(self, run: Run) -> None:
        if bell := self._bells.get(run):
            bell.closed = True
            bell.ring()

    async def read(self, run: Run, rank: int, query: LogQuery) -> AsyncIterator[bytes]:
        if query.follow:
            source = self._follow(run, rank, query)
        else:
            source = self._read_now(LogReader(self._layout.run_dir(run), rank), query)
        async for data in source:
            yield data

    async def _follow(self, run: Run, rank: int, query: LogQuery) -> AsyncIterator[bytes]:
        bell = self._bells.get(run) or self._bells.setdefault(
            run, Bell(self._inotify, self._layout.run_dir(run) / "logs")
        )
        reader = self._readers.setdefault((run, rank), LogReader(self._layout.run_dir(run), rank))
        bell.followers += 1
        try:
            async for data in self._deliver(run, rank, bell, reader, query):
                yield data
        finally:
            bell.followers -= 1
            if not bell.followers:
                bell.close()
                self._bells.pop(run, None)
                for key in [key for key in self._readers if key[0] == run]:
                    del self._readers[key]

    async def _deliver(
        self, run: Run, rank: int, bell: Bell, reader: LogReader, query: LogQuery
    ) -> AsyncIterator[bytes]:
        reader.refresh()
        offset, told = await reader.start(query, self._tails), False
        while True:
            turn = bell.turn
            if reader.turn != turn:
                reader.over = bell.closed or self._over(run, rank)
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
            await bell.next(turn)

    def _over(self, run: Run, rank: int) -> bool:
        """Nothing more will be printed: asked before the last look at the files, so that nothing is missed."""
        run_dir = self._layout.run_dir(run)
        if (run_dir / "logs" / f"rank-{rank}.end").exists() or state.ended(run_dir):
            return True
        return state.read_began(run_dir) is not None and not state.lock_is_held(run_dir)

    async def _read_now(self, reader: LogReader, query: LogQuery) -> AsyncIterator[bytes]:
        reader.refresh()
        offset, end = await reader.start(query, self._tails), reader.size()
        while offset < end and (found := reader.read(offset))[0]:
            data, offset = found
            yield data
            await asyncio.sleep(0)
        if reader.is_cut:
            yield CUT
