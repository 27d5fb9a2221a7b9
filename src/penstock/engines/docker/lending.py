"""Places in a group's network that are made before the job is there which takes them.

To give a container a network of its own takes Docker longer than all the rest of its start. So where a group has
started something, a container that does nothing waits in the group's network for the next job, which then has that
one's network and shares nothing else with it, as the containers of a pod do. Each serves one job and goes when that
ends; one that nobody wanted for a while goes, too.

Nothing has to be remembered for this: whose network a job has stands in its container.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, NamedTuple

from penstock.domain.nodes import Host
from penstock.engines.base import Launch, Run
from penstock.engines.docker import names
from penstock.engines.docker.api import Fields
from penstock.engines.docker.container_settings import ContainerSettings
from penstock.engines.docker.failures import ApiError
from penstock.engines.docker.helping import ended
from penstock.engines.docker.hosts import Hosts
from penstock.engines.docker.images import have
from penstock.engines.docker.link import FOR_EVER, Link
from penstock.engines.docker.networks import Networks

log = logging.getLogger(__name__)
QUIET = 0.2
"""Seconds without a start on the host, before one is made for the next: what starts now comes first."""
WANTED = 600.0
"""Seconds that one waits for a job."""
FORGOTTEN = WANTED + 300.0
"""After so long nobody wants it any more: whoever made it is gone."""
LOOK_SECONDS, PATIENCE = 5.0, 3.0
FOR_LONG = str(10**9)


class Spare(NamedTuple):
    id: str
    since: float


class LenderGone(ApiError):
    """The network that a container was to have is not there any more. It did not start."""


def is_about_lender(message: str, lender: str) -> bool:
    """So Docker says, before anything of the job ran, that the lender has ended: by its id, or by its processes'."""
    return bool(lender) and (lender in message or "/ns/net" in message)


class Lending:
    def __init__(self, hosts: Hosts, networks: Networks, made: ContainerSettings) -> None:
        self._hosts, self._networks, self._made = hosts, networks, made
        self._starting: list[Link] = []
        """Hosts on which something is being started, once for each."""
        self._spares: dict[tuple[Link, str], Spare] = {}
        """By host and group."""
        self._taken: set[str] = set()
        """Lent to a job whose container is still to be made."""
        self._making: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        self._later(self._look())

    async def close(self) -> None:
        await ended(list(self._tasks))
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(self._give_up(list(self._spares)), *map(self._tidy, self._hosts.links()))

    async def stay_on(self, hosts: Sequence[Host]) -> None:
        """On others nothing of this is left."""
        addresses = {host.name: host.address for host in hosts}
        left = [place for place in self._spares if addresses.get(place[0].host.name) != place[0].host.address]
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._give_up(left)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- to a job ----------------------------------------------------------------------------------------------------

    @contextmanager
    def lent(self, links: Sequence[Link], launch: Launch) -> Iterator[str | None]:
        """While it is started there: a container whose network it can have, if one waits. Nodes of one job each have a
        name in theirs, and of an array many begin at once: those have networks of their own."""
        self._starting += links
        alone = self._made.lends and launch.spec.parts == 1
        lender = self._take(links[0], launch.group) if alone else None
        try:
            yield lender
        finally:
            self._taken.discard(lender or "")
            for link in links:
                self._starting.remove(link)
            if alone:
                self._later(self._make_when_quiet(links[0], launch.group))

    def _take(self, link: Link, group: str) -> str | None:
        spare = self._spares.pop((link, group), None)
        if spare is None or link.lenders.get(spare.id, FOR_EVER) == FOR_EVER:
            return None
        self._taken.add(spare.id)
        return spare.id

    async def _make_when_quiet(self, link: Link, group: str) -> None:
        await asyncio.sleep(QUIET)
        await self._tidy(link)
        if link in self._starting or link in self._making or (link, group) in self._spares or not _may_lend(link):
            return
        self._making.add(link)
        try:
            self._spares[link, group] = Spare(await self._make(link, group), monotonic())
        except ApiError as error:  # the next job has a network of its own
            log.info("no network is held ready on %s: %s", link.host.name, error.message)
        finally:
            self._making.discard(link)

    async def _make(self, link: Link, group: str) -> str:
        await have(link.api, self._made.helper_image)
        body = _lender(self._made, group, await self._networks.of(link, group))
        name = f"{self._made.installation}-network-{secrets.token_hex(6)}"
        making = asyncio.ensure_future(link.api.create(name, body))
        try:
            made = await asyncio.shield(making)
            await link.api.start(made)
        except BaseException:  # whoever gives up while it is being made leaves nothing
            with suppress(ApiError):
                await link.api.remove(await making)
            raise
        link.lenders.setdefault(made, monotonic())
        return made

    # -- and back ----------------------------------------------------------------------------------------------------

    def care(self, run: Run) -> None:
        """Where it has ended, the network that it had is of no use any more."""
        for link in self._hosts.links():
            if any(seen.over and seen.lender in link.lenders for seen in link.of(run)):
                self._later(self._tidy(link))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._later(self._give_up([place for place, spare in self._spares.items() if _is_old(place[0], spare)]))
            for link in self._hosts.links():
                self._later(self._tidy(link))

    async def _give_up(self, places: Collection[tuple[Link, str]]) -> None:
        """A host that does not answer keeps them until somebody comes back to it."""
        spares = [(link, self._spares.pop((link, group))) for link, group in places]
        await asyncio.gather(*(self._remove(link, spare.id) for link, spare in spares if link.looked.is_set()))

    async def _tidy(self, link: Link) -> None:
        if not link.looked.is_set() or link in self._making:
            return
        used = {seen.lender for seen in link.all() if not seen.over}
        used |= {spare.id for spare in self._spares.values()} | self._taken
        had = {seen.lender for seen in link.all() if seen.over}
        for lender, since in list(link.lenders.items()):
            if lender not in used and (lender in had or monotonic() - since > FORGOTTEN):
                await self._remove(link, lender)

    async def _remove(self, link: Link, lender: str) -> None:
        try:
            await link.api.remove(lender)
        except ApiError as error:  # it is tried again
            log.debug("%s: %s", lender, error.message)


def _may_lend(link: Link) -> bool:
    return link.looked.is_set() and not link.host.maintenance


def _is_old(link: Link, spare: Spare) -> bool:
    return link.host.maintenance or monotonic() - spare.since > WANTED


def _lender(made: ContainerSettings, group: str, network: str) -> Fields:
    return {
        "Image": made.helper_image,
        "Entrypoint": ["sleep"],
        "Cmd": [FOR_LONG],
        "User": "65534:65534",
        "Labels": {names.INSTALLATION: made.installation, names.LENDER: group},
        "HostConfig": {
            "NetworkMode": network,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "PidsLimit": 16,
            "Memory": 16 << 20,
            "LogConfig": {"Type": "none"},
        },
    }
