"""Keep the peak memory of programs without a minder, which Docker does not tell after their end.

So those that run are looked at, often at first and then now and then. Where the kernel keeps the peak itself (control
groups of version 1), what was between two looks is in it; elsewhere it is the largest of what was seen.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from penstock.engines.base import Run
from penstock.engines.docker.api.client import Fields
from penstock.engines.docker.api.errors import DockerError
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.hosts import DockerHosts

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


class MemoryPeaks:
    def __init__(self, hosts: DockerHosts) -> None:
        self._hosts = hosts
        self._watching: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        tasks = list(self._watching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def care(self, run: Run) -> None:
        for seen in self._hosts.parts(run).values():
            if seen.runs and not seen.has_bash and seen.id not in self._watching:
                task = self._watching[seen.id] = asyncio.create_task(self._watch(seen))
                task.add_done_callback(lambda _, id_=seen.id: self._watching.pop(id_, None))  # type: ignore[misc]

    async def _watch(self, seen: ContainerRecord) -> None:
        pause = FIRST_PAUSE
        while (known := self._hosts.parts(seen.run).get(seen.part)) and known.id == seen.id and known.runs:
            with suppress(DockerError):  # the next look is near
                await self._look(seen)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _look(self, seen: ContainerRecord) -> None:
        link = self._hosts.link(seen.host)
        used = peak_in(await link.api.stats(seen.id, once=True))
        for known in link.of(seen.run):
            if known.id == seen.id and used > known.peak:
                link.keep(replace(known, peak=used))


def peak_in(stats: Fields) -> int:
    memory = stats.get("memory_stats") or {}
    return int(memory.get("max_usage") or memory.get("usage") or 0)
