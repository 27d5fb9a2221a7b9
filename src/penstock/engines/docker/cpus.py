"""Give containers CPUs of their own, and share the rest among all others.

Docker knows nothing of CPUs that are someone's alone: those who share are moved off them, whenever a container with its
own is made or has ended. Which are whose is read from the containers, so a server that comes back puts it right.
"""

from __future__ import annotations

import asyncio
import logging
from weakref import WeakKeyDictionary

from penstock.background import Tasks
from penstock.engines.base import Run
from penstock.engines.docker.api.errors import DockerError
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.names import Label

log = logging.getLogger(__name__)


class DedicatedCpus:
    def __init__(self, hosts: DockerHosts) -> None:
        self._hosts = hosts
        self._locks: WeakKeyDictionary[HostLink, asyncio.Lock] = WeakKeyDictionary()
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()

    def watch(self, run: Run) -> None:
        """Move what shares CPUs where something changed on a host of this run."""
        for link in self._hosts.links():
            if link.of(run) and link.answers and _misplaced(link):
                self._tasks.start(self._later(link))

    async def _later(self, link: HostLink) -> None:
        try:
            await self.keep_apart(link)
        except DockerError as error:  # it is looked at again when the host is back
            log.warning("the shared CPUs of %s cannot be changed: %s", link.host.name, error.message)

    async def keep_apart(self, link: HostLink) -> None:
        """Return once the containers that share CPUs keep off those that are someone's alone."""
        async with self._locks.setdefault(link, asyncio.Lock()):
            for seen in _misplaced(link):
                try:
                    await link.api.update(seen.id, {"CpusetCpus": shared_cpus(link) or _all(link)})
                except DockerError:
                    after = await link.look(seen.id)
                    if after and not after.over:
                        raise
                else:
                    await link.look(seen.id)


def shared_cpus(link: HostLink) -> str:
    """Return the CPUs that are shared, as Docker writes them; empty: all, since nobody has any alone, or since none is
    left to share."""
    taken = {cpu for seen in link.all() if not seen.over for cpu in own_cpus(seen)}
    return ",".join(str(cpu) for cpu in range(_count(link)) if cpu not in taken) if taken else ""


def own_cpus(seen: ContainerRecord) -> list[int]:
    return [int(cpu) for cpu in seen.labels.get(Label.CPUS, "").split(",") if cpu.isdecimal()]


def _misplaced(link: HostLink) -> list[ContainerRecord]:
    """Return the containers that share other CPUs than they should."""
    allowed = shared_cpus(link)
    right = (allowed,) if allowed else ("", _all(link))
    return [seen for seen in link.all() if not seen.over and not own_cpus(seen) and seen.cpuset not in right]


def _count(link: HostLink) -> int:
    return int(link.info.get("NCPU") or 0)


def _all(link: HostLink) -> str:
    return ",".join(map(str, range(_count(link))))
