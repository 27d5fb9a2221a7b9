"""Measure the disk use of containers that asked for a limit, and end those beyond it.

Docker limits neither what is written into a container nor a volume. The next look waits twenty times as long as one
takes, so that looking at many files never becomes most of the work.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from penstock.domain.quantities import show_bytes
from penstock.engines.base import Run
from penstock.engines.docker import names
from penstock.engines.docker.api.client import Fields
from penstock.engines.docker.api.errors import DockerError
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.volumes import DockerClaims

log = logging.getLogger(__name__)
SLOWER = 20
Full = Callable[[ContainerRecord, str], Awaitable[None]]


class DiskLimits:
    def __init__(self, hosts: DockerHosts, claims: DockerClaims, every: int, full: Full) -> None:
        self._hosts, self._claims = hosts, claims
        self._every = max(every, 1)
        self._full = full
        self._watching: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        tasks = list(self._watching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def care(self, run: Run) -> None:
        for seen in self._hosts.parts(run).values():
            if seen.runs and seen.labels.get(names.DISK) and seen.id not in self._watching:
                task = self._watching[seen.id] = asyncio.create_task(self._watch(seen))
                task.add_done_callback(lambda _, id_=seen.id: self._watching.pop(id_, None))  # type: ignore[misc]

    async def empty(self, run: Run) -> None:
        """What was on the scratch disks of one that has ended: its containers stay for their logs, and may for long."""
        for seen in self._hosts.parts(run).values():
            if seen.over and seen.began and not seen.gone:
                link = self._hosts.link(seen.host)
                if scratch := _scratch(await link.api.container(seen.id)):
                    await self._claims.emptied(link, list(scratch.values()))

    async def _watch(self, seen: ContainerRecord) -> None:
        limits: dict[str, int] = json.loads(seen.labels[names.DISK])
        pause = float(self._every)
        while True:
            await asyncio.sleep(pause)
            known = self._hosts.parts(seen.run).get(seen.part)
            if known is None or known.id != seen.id or not known.runs:
                return
            before = asyncio.get_running_loop().time()
            try:
                if said := await self._too_much(seen, limits):
                    await self._full(seen, said)
                    return
            except DockerError as error:
                log.info("%s: what it holds on its disks is not known: %s", seen.name, error.message)
            pause = max(float(self._every), (asyncio.get_running_loop().time() - before) * SLOWER)

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
    """Path → the Docker volume that was made for this container alone."""
    return {
        str(mount["Destination"]): str(mount["Name"])
        for mount in (found or {}).get("Mounts") or ()
        if mount.get("Type") == "volume" and _is_anonymous(str(mount.get("Name")))
    }


def _is_anonymous(name: str) -> bool:
    return len(name) == 64 and all(letter in "0123456789abcdef" for letter in name)
