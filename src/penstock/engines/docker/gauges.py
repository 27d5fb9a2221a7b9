"""What the GPUs of hosts do now. Only where containers of ours have some, and all those hosts side by side.

A look is a container on the host. Whoever wants to know while there is one gets the same answer, so there are never
two. A host that is slow is waited for a while, once: then others go on without it, until it has answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from time import monotonic
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from penstock.engines.base import Run
from penstock.engines.docker import names, nvidia
from penstock.engines.docker.container_settings import ContainerSettings
from penstock.engines.docker.failures import ApiError, Unreachable
from penstock.engines.docker.hosts import Hosts
from penstock.engines.docker.link import Link
from penstock.wire import GpuMeasure

log = logging.getLogger(__name__)
PATIENCE, CLOSING = 10.0, 3.0
"""Seconds: from when a look began, and in which what looks is cleared away at the end."""


class Look(NamedTuple):
    gpus: Mapping[str, GpuMeasure] = {}
    """By uuid; those that cannot be seen are not there."""
    trouble: str | None = None
    """Why none can be seen."""


class Gauges:
    def __init__(self, hosts: Hosts, made: ContainerSettings) -> None:
        self._hosts, self._made = hosts, made
        self._looking: dict[Link, asyncio.Task[Look]] = {}
        self._began: WeakKeyDictionary[Link, float] = WeakKeyDictionary()
        self._used: WeakSet[Link] = WeakSet()
        """Hosts on which containers of ours had GPUs at the last look."""
        self._last: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        tasks = [*self._last, *self._looking.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            _, slow = await asyncio.wait(tasks, timeout=CLOSING)
            for task in slow:  # its host does not answer: what is left there is removed by whoever looks there next
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def all(self) -> dict[str, GpuMeasure]:
        links = [link for link in self._hosts.links() if link.probe.gpus and link.looked.is_set() and _is_used(link)]
        found = await asyncio.gather(*(self.of(link) for link in links))
        return {uuid: gpu for look in found for uuid, gpu in look.gpus.items()}

    async def of(self, link: Link) -> Look:
        name = link.host.name
        if not link.probe.gpus:
            return Look(trouble=link.probe.gpu_trouble or f"Docker on {name} cannot show them")
        looking = self._looking.get(link) or self._begin(link)
        left = self._began[link] + PATIENCE - monotonic()
        done, _ = await asyncio.wait([looking], timeout=max(left, 0))
        return looking.result() if done else Look(trouble=f"{name} does not say it within {PATIENCE:.0f} seconds")

    def care(self, run: Run) -> None:
        """Where nobody has GPUs any more it is looked once again: what is in their memory has changed."""
        for link in [link for link in self._used if link.of(run) and link.looked.is_set() and not _is_used(link)]:
            self._used.discard(link)
            task = asyncio.create_task(self._look_again(link))
            self._last.add(task)
            task.add_done_callback(self._last.discard)

    async def _look_again(self, link: Link) -> None:
        if before := self._looking.get(link):  # it may have seen what was
            await asyncio.wait([before])
        await self.of(link)

    def _begin(self, link: Link) -> asyncio.Task[Look]:
        self._began[link] = monotonic()
        task = self._looking[link] = asyncio.create_task(self._look(link))
        task.add_done_callback(lambda _: self._looking.pop(link, None))
        return task

    async def _look(self, link: Link) -> Look:
        if _is_used(link):
            self._used.add(link)
        try:
            found = await nvidia.readings(link.api, self._made.helper_image, self._made.installation)
        except Unreachable as error:
            _show(link, ())
            return Look(trouble=error.message)
        except ApiError as error:
            if link.probe.gpu_trouble is None:
                log.warning("what the GPUs of %s do is not known: %s", link.host.name, error.message)
            _show(link, (), error.message)
            return Look(trouble=error.message)
        _show(link, found)
        return Look({reading.gpu.uuid: reading.measure for reading in found})


def _is_used(link: Link) -> bool:
    return any(seen.runs and names.GPUS in seen.labels for seen in link.all())


def _show(link: Link, found: Iterable[nvidia.Reading], trouble: str | None = None) -> None:
    """What is in the memory of its GPUs, to whoever asks for the node."""
    used = {reading.gpu.uuid: reading.gpu.memory_used_bytes for reading in found}
    gpus = [gpu.model_copy(update={"memory_used_bytes": used.get(gpu.uuid)}) for gpu in link.probe.gpus]
    link.probe = replace(link.probe, gpus=tuple(gpus), gpu_trouble=trouble)
