"""Measure what the GPUs of hosts do: often where our containers use some, seldom elsewhere.

A look is a container on the host. Whoever wants to know while there is one gets the same answer, so there are never
two. A host that is slow is waited for a while, once: then others go on without it, until it has answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from penstock.domain.nodes import Gpu
from penstock.engines.base import Run
from penstock.engines.docker import names, probe
from penstock.engines.docker.api.errors import DockerError, DockerUnreachable
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.helpers import end_tasks
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import DockerHosts
from penstock.wire.measures import GpuMeasure

log = logging.getLogger(__name__)
PATIENCE = 10.0
"""Seconds, from when a look began."""
IDLE_SECONDS = 30.0
"""After this long a host is looked at, whether or not anything of ours runs there."""


class HostGpuUse(NamedTuple):
    gpus: Mapping[str, GpuMeasure] = {}
    """By uuid; those that cannot be seen are not there."""
    trouble: str | None = None
    """Why none can be seen."""


class HostGpus:
    def __init__(self, hosts: DockerHosts) -> None:
        self._hosts = hosts
        self._looking: dict[HostLink, asyncio.Task[HostGpuUse]] = {}
        self._began: WeakKeyDictionary[HostLink, float] = WeakKeyDictionary()
        self._having: dict[Run, set[HostLink]] = {}
        """The hosts on which a run has GPUs."""
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        self._later(self._look_at_idle())

    async def close(self) -> None:
        await end_tasks([*self._tasks, *self._looking.values()])

    async def all(self) -> dict[str, GpuMeasure]:
        links = [link for link in self._shown() if _has_gpus(link.all())]
        found = await asyncio.gather(*(self.of(link) for link in links))
        return {uuid: gpu for look in found for uuid, gpu in look.gpus.items()}

    def _shown(self) -> list[HostLink]:
        """Those that answer and can show their GPUs."""
        return [link for link in self._hosts.links() if link.probe.gpus and link.looked.is_set()]

    async def of(self, link: HostLink) -> HostGpuUse:
        name = link.host.name
        if not link.probe.gpus:
            return HostGpuUse(trouble=link.probe.gpu_trouble or f"Docker on {name} cannot show them")
        looking = self._looking.get(link) or self._begin(link)
        left = self._began[link] + PATIENCE - monotonic()
        done, _ = await asyncio.wait([looking], timeout=max(left, 0))
        return looking.result() if done else HostGpuUse(trouble=f"{name} does not say it within {PATIENCE:.0f} seconds")

    def care(self, run: Run) -> None:
        """Where it has no GPUs any more it is looked once again: what is in their memory has changed."""
        before = self._having.pop(run, set())
        having = {link for link in self._hosts.links() if _has_gpus(link.of(run))}
        if having:
            self._having[run] = having
        for link in before - having:
            self._later(self._look_again(link))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at_idle(self) -> None:
        while True:
            await asyncio.sleep(min(IDLE_SECONDS, 1))
            for link in self._shown():
                if link not in self._looking and self._is_due(link):
                    self._begin(link)

    def _is_due(self, link: HostLink) -> bool:
        """When it was probed it was looked at, too."""
        return self._began.setdefault(link, monotonic()) + IDLE_SECONDS <= monotonic()

    async def _look_again(self, link: HostLink) -> None:
        if before := self._looking.get(link):  # it may have seen what was
            await asyncio.wait([before])
        await self.of(link)

    def _begin(self, link: HostLink) -> asyncio.Task[HostGpuUse]:
        self._began[link] = monotonic()
        task = self._looking[link] = asyncio.create_task(self._look(link))
        task.add_done_callback(lambda _: self._looking.pop(link, None))
        return task

    async def _look(self, link: HostLink) -> HostGpuUse:
        ours = probe.held_by(link.all())
        try:
            found = await probe.readings(link.helpers)
        except DockerUnreachable as error:
            _show(link, ())
            return HostGpuUse(trouble=error.message)
        except DockerError as error:
            if link.probe.gpu_trouble is None:
                log.warning("what the GPUs of %s do is not known: %s", link.host.name, error.message)
            _show(link, (), error.message)
            return HostGpuUse(trouble=error.message)
        _show(link, probe.judged((reading.gpu for reading in found), ours | probe.held_by(link.all())))
        return HostGpuUse({reading.gpu.uuid: reading.measure for reading in found})


def _has_gpus(containers: Iterable[ContainerRecord]) -> bool:
    return any(seen.runs and bool(seen.labels.get(names.GPUS)) for seen in containers)


def _show(link: HostLink, found: Iterable[Gpu], trouble: str | None = None) -> None:
    """What is on its GPUs, to whoever asks for the node. Of one that could not be looked at, who else had it."""
    seen = {gpu.uuid: gpu for gpu in found}
    gpus = [seen.get(gpu.uuid) or gpu.model_copy(update={"memory_used_bytes": None}) for gpu in link.probe.gpus]
    link.probe = replace(link.probe, gpus=tuple(gpus), gpu_trouble=trouble)
