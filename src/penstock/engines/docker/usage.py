"""Measure what containers and GPUs use, and end containers that hold too much on their disks.

Docker does not tell the peak memory of a program after its end, limits neither what is written into a container nor a
volume, and knows nothing of GPUs: so what runs is looked at now and then. A look at GPUs or disks is a container on the
host, so it is never repeated sooner than it is worth.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from penstock.background import Backoff, Tasks
from penstock.domain.nodes import Gpu
from penstock.domain.quantities import show_bytes
from penstock.engines.base import Run
from penstock.engines.docker.api.client import Fields
from penstock.engines.docker.api.errors import DockerError, DockerUnreachable
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.gpus import gpus_in_use, read_gpus, without_own_use
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.names import Label
from penstock.engines.docker.volumes import DockerClaims
from penstock.wire.measures import GpuMeasure

log = logging.getLogger(__name__)


# -- memory ------------------------------------------------------------------------------------------------------------

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


class MemoryPeaks:
    """Keeps the peak memory of programs without a minder. Where the kernel keeps it itself (control groups of version
    1), what was between two looks is in it; elsewhere it is the largest of what was seen."""

    def __init__(self, hosts: DockerHosts) -> None:
        self._hosts = hosts
        self._watches = Tasks()

    async def close(self) -> None:
        await self._watches.close()

    def watch(self, run: Run) -> None:
        for seen in self._hosts.parts(run).values():
            if seen.runs and not seen.has_bash and seen.id not in self._watches:
                self._watches.start(self._watch(seen), seen.id)

    async def _watch(self, seen: ContainerRecord) -> None:
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while self._hosts.still_runs(seen):
            with suppress(DockerError):  # the next look is near
                link = self._hosts.link(seen.host)
                link.note_peak(seen, peak_in(await link.api.stats(seen.id, once=True)))
            await backoff.pause()


def peak_in(stats: Fields) -> int:
    memory = stats.get("memory_stats") or {}
    return int(memory.get("max_usage") or memory.get("usage") or 0)


# -- disks -------------------------------------------------------------------------------------------------------------

SLOWER = 20
"""The next look waits this many times as long as one takes: looking at many files never becomes most of the work."""
Full = Callable[[ContainerRecord, str], Awaitable[None]]


class DiskLimits:
    """Measures the disk use of containers that asked for a limit. It ends those beyond it without waiting for whoever
    keeps the records: a disk fills up in seconds."""

    def __init__(self, hosts: DockerHosts, claims: DockerClaims, every: int, full: Full) -> None:
        self._hosts, self._claims = hosts, claims
        self._every = float(max(every, 1))
        self._full = full
        self._watches = Tasks()

    async def close(self) -> None:
        await self._watches.close()

    def watch(self, run: Run) -> None:
        for seen in self._hosts.parts(run).values():
            if seen.runs and seen.labels.get(Label.DISK) and seen.id not in self._watches:
                self._watches.start(self._watch(seen), seen.id)

    async def empty(self, run: Run) -> None:
        """Empty the scratch disks of a run that has ended: its containers stay for their logs, and may for long."""
        for seen in self._hosts.parts(run).values():
            if seen.over and seen.began and not seen.gone:
                link = self._hosts.link(seen.host)
                if scratch := _scratch(await link.api.container(seen.id)):
                    await self._claims.emptied(link, list(scratch.values()))

    async def _watch(self, seen: ContainerRecord) -> None:
        limits: dict[str, int] = json.loads(seen.labels[Label.DISK])
        pause = self._every
        while True:
            await asyncio.sleep(pause)
            if not self._hosts.still_runs(seen):
                return
            before = monotonic()
            try:
                if said := await self._too_much(seen, limits):
                    await self._full(seen, said)
                    return
            except DockerError as error:
                log.info("%s: its disk use cannot be measured: %s", seen.name, error.message)
            pause = max(self._every, (monotonic() - before) * SLOWER)

    async def _too_much(self, seen: ContainerRecord, limits: dict[str, int]) -> str | None:
        link = self._hosts.link(seen.host)
        found = await link.api.container(seen.id, size="" in limits)
        if found is None:
            return None
        wanted = {path: name for path, name in _scratch(found).items() if "" in limits or path in limits}
        sizes = dict(zip(wanted, await self._claims.measured(link, list(wanted.values())), strict=True))
        for path, size in sizes.items():
            if path in limits and size > limits[path]:
                return f"{path} holds more than its size {show_bytes(limits[path])}."
        if "" in limits and sum(sizes.values()) + int(found.get("SizeRw") or 0) > limits[""]:
            return f"It holds more outside its volumes than its disk_size {show_bytes(limits[''])}."
        return None


def _scratch(found: Fields | None) -> dict[str, str]:
    """Path → the Docker volume that was made for this container alone, which has a hash for a name."""
    mounts = [each for each in (found or {}).get("Mounts") or () if each.get("Type") == "volume"]
    volumes = {str(mount["Destination"]): str(mount.get("Name")) for mount in mounts}
    return {path: name for path, name in volumes.items() if len(name) == 64 and not set(name) - set("0123456789abcdef")}


# -- GPUs --------------------------------------------------------------------------------------------------------------

PATIENCE = 10.0
"""Seconds that whoever asks waits for one host."""
IDLE_SECONDS = 30.0
"""So often each host is looked at, whether or not anything of ours runs there."""


class HostGpuUse(NamedTuple):
    gpus: Mapping[str, GpuMeasure] = {}
    """By uuid; those that cannot be seen are not there."""
    trouble: str | None = None
    """Why none can be seen."""


class HostGpus:
    """Looks at what the GPUs of hosts do: often where our containers use some, seldom elsewhere. Whoever wants to know
    while there is a look gets the same answer, so there are never two."""

    def __init__(self, hosts: DockerHosts) -> None:
        self._hosts = hosts
        self._tasks = Tasks()
        """By host the look at its GPUs that is under way."""

    def open(self) -> None:
        self._tasks.start(self._look_at_idle())

    async def close(self) -> None:
        await self._tasks.close()

    async def all(self) -> dict[str, GpuMeasure]:
        links = [link for link in self._shown() if _has_gpus(link.all())]
        found = await asyncio.gather(*(self.of(link) for link in links))
        return {uuid: gpu for use in found for uuid, gpu in use.gpus.items()}

    def _shown(self) -> list[HostLink]:
        """The hosts that answer and can show their GPUs."""
        return [link for link in self._hosts.answering() if link.probe.gpus]

    async def of(self, link: HostLink) -> HostGpuUse:
        name = link.host.name
        if not link.probe.gpus:
            return HostGpuUse(trouble=link.probe.gpu_trouble or f"Docker on {name} cannot show them")
        look = self._under_way(link)
        done, _ = await asyncio.wait([look], timeout=PATIENCE)
        slow = HostGpuUse(trouble=f"{name} does not say it within {PATIENCE:.0f} seconds")
        return look.result() if done else slow

    async def _look_at_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_SECONDS)  # when a host was probed it was looked at, too
            for link in self._shown():
                self._under_way(link)

    def _under_way(self, link: HostLink) -> asyncio.Task[HostGpuUse]:
        return self._tasks.get(link) or self._tasks.start(self._look(link), link)

    async def _look(self, link: HostLink) -> HostGpuUse:
        ours = gpus_in_use(link.all())
        try:
            found = await read_gpus(link.helpers)
        except DockerUnreachable as error:
            _show(link, ())
            return HostGpuUse(trouble=error.message)
        except DockerError as error:
            if link.probe.gpu_trouble is None:
                log.warning("the GPUs of %s cannot be measured: %s", link.host.name, error.message)
            _show(link, (), error.message)
            return HostGpuUse(trouble=error.message)
        _show(link, without_own_use((reading.gpu for reading in found), ours | gpus_in_use(link.all())))
        return HostGpuUse({reading.gpu.uuid: reading.measure for reading in found})


def _has_gpus(containers: Iterable[ContainerRecord]) -> bool:
    return any(seen.runs and bool(seen.gpus) for seen in containers)


def _show(link: HostLink, found: Iterable[Gpu], trouble: str | None = None) -> None:
    """Keep what is on a host's GPUs for whoever asks for the node; where they could not be looked at, who else had
    them last."""
    seen = {gpu.uuid: gpu for gpu in found}
    gpus = [seen.get(gpu.uuid) or gpu.model_copy(update={"memory_used_bytes": None}) for gpu in link.probe.gpus]
    link.probe = replace(link.probe, gpus=tuple(gpus), gpu_trouble=trouble)
