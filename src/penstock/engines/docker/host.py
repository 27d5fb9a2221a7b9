"""One Docker host: its connection, what was last seen on it, its groups' networks, and why it does not answer.

The engine's events are listened to first and everything there is looked at afterwards, so nothing is missed between the
two. When the connection breaks, both are done again. Each host has a task of its own: one that hangs hangs alone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from penstock.background import Backoff, Tasks
from penstock.domain.model import now
from penstock.domain.nodes import Host
from penstock.engines.base import Run
from penstock.engines.docker import names
from penstock.engines.docker.api.client import DockerApi, Fields
from penstock.engines.docker.api.errors import SERVER_ERROR, DockerError, DockerUnreachable
from penstock.engines.docker.api.objects import ContainerRecord, note_in, read_container, read_time
from penstock.engines.docker.events import EventMemory, read_memory
from penstock.engines.docker.gpus import HostProbe, gpus_in_use, probe, without_own_use
from penstock.engines.docker.helpers import DiskSpace, Helpers
from penstock.engines.docker.images import is_marked
from penstock.engines.docker.names import Label
from penstock.engines.docker.settings import ContainerSettings
from penstock.engines.docker.spec import NOTE
from penstock.engines.docker.state import believe_note
from penstock.engines.shared.minder import Note

log = logging.getLogger(__name__)

EVENTS = ("create", "start", "die", "oom", "destroy")
PING_SECONDS, PING_PATIENCE = 10.0, 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
AT_ONCE = 8
OWN_NETWORK = "bridge"
REMOVED_KEPT = 256
FIRST = datetime(1970, 1, 1, tzinfo=UTC)


class HostLink:
    def __init__(self, host: Host, api: DockerApi, made: ContainerSettings, changed: Callable[[Run], None]) -> None:
        self.host = host
        self.api = api
        self.installation = made.installation
        self.helpers = Helpers(api, made)
        self.space = DiskSpace(self.helpers)
        self.networks = GroupNetworks(api, made.installation, made.closed)
        self._changed = changed
        self.info: Fields = {}
        self.probe = HostProbe()
        self.last_seen: datetime | None = None
        """None: nothing there was looked at yet."""
        self.trouble: str | None = f"{host.name} was not reached yet"
        """Why it does not answer; None: it does, and what is known of it is true."""
        self.docker = ""
        """Identifies its Docker from one start to the next by its own network, which it makes anew each time: a copied
        machine has the same `ID` as its original. Where there is no such network, each connection is to another."""
        self.docker_since: datetime | None = None
        """When it started, by its own clock, where that is known."""
        self.tried = asyncio.Event()
        """It was reached, or the first try to do so has failed."""
        self.skew = timedelta()
        """How far its clock is ahead of ours."""
        self._known: dict[str, ContainerRecord] = {}
        self._by_run: dict[Run, dict[str, None]] = {}
        self._removing: set[str] = set()
        """Containers that we remove: their end is no news."""
        self._removed: deque[str] = deque(maxlen=REMOVED_KEPT)
        """Containers that we did remove: an answer that was on its way then is old."""
        self._before: list[ContainerRecord] = []
        """Containers that ran and were removed before we first looked, as far as Docker remembers."""
        self._marked: dict[str, bool] = {}
        """Image id → whether the image has labels of ours."""
        self._probed = ""
        """The Docker that was probed: what is installed on a host is there after a restart."""
        self._tasks = Tasks()

    def open(self) -> None:
        self._tasks.start(self._stay_connected())

    async def close(self) -> None:
        await asyncio.gather(self._tasks.close(), self.space.close())
        await self.api.close()

    # -- what is known -----------------------------------------------------------------------------------------------

    def all(self) -> Iterable[ContainerRecord]:
        return self._known.values()

    def of(self, run: Run) -> list[ContainerRecord]:
        return [self._known[id_] for id_ in self._by_run.get(run, ())]

    def keep(self, seen: ContainerRecord) -> None:
        self._known[seen.id] = seen
        self._by_run.setdefault(seen.run, {})[seen.id] = None

    def note_peak(self, seen: ContainerRecord, used: int) -> None:
        if (known := self._known.get(seen.id)) and used > known.peak:
            self.keep(replace(known, peak=used))

    def removed_before(self, run: Run) -> list[ContainerRecord]:
        """Containers of a run that were removed before we first looked, as far as Docker remembers."""
        return [seen for seen in self._before if seen.run == run]

    @property
    def answers(self) -> bool:
        return self.trouble is None

    def _drop(self, container_id: str) -> None:
        if seen := self._known.pop(container_id, None):
            del self._by_run[seen.run][container_id]
            if not self._by_run[seen.run]:
                del self._by_run[seen.run]

    def require(self) -> None:
        if self.trouble is not None:
            raise DockerUnreachable(self.trouble, host=self.host.name)

    async def remove(self, seen: ContainerRecord, *, force: bool = True) -> None:
        self._removing.add(seen.id)
        try:
            if not seen.gone:
                await self.api.remove(seen.id, force=force)
            self._removed.append(seen.id)
            self._drop(seen.id)
        finally:
            self._removing.discard(seen.id)

    async def look(self, ref: str, *, ends: bool = False) -> ContainerRecord | None:
        """Look at one container, by id or name. `ends`: Docker has just told of its end."""
        found = await self.api.container(ref)
        if found is None:
            self._lost(ref)
            return None
        seen = read_container(found, self.host.name)
        if seen is None or seen.labels.get(Label.INSTALLATION) != self.installation:
            return seen
        if await self._is_marked(str(found["Image"])):
            return None
        if seen.id in self._removing or seen.id in self._removed:
            return seen
        before = self._known.get(seen.id)
        if before:
            seen = replace(seen, peak=before.peak)
        same_end = before is not None and before.ended_at == seen.ended_at
        if seen.has_bash and seen.began and seen.over:
            seen = replace(seen, note=before.note if before and same_end else await self._note(seen.id))
        if before and same_end:
            seen = replace(seen, witness=before.witness)
        if seen.over and ends:
            seen = replace(seen, witness=self.docker)
        elif seen.unwitnessed and self.answers:
            seen = self._witnessed(seen, await read_memory(self.api))
        seen = believe_note(seen)
        self.keep(seen)
        if seen != before:
            self._tell(seen.run)
        return seen

    async def _is_marked(self, image_id: str) -> bool:
        """Has the image labels of ours? We run none that has, so what somebody else made of it is not ours either."""
        if image_id not in self._marked:
            self._marked[image_id] = is_marked(await self.api.image(image_id) or {})
        return self._marked[image_id]

    def _witnessed(self, seen: ContainerRecord, memory: EventMemory) -> ContainerRecord:
        """Note whether Docker saw its end: it says so, or it has run since before that and has forgotten."""
        since = self.docker_since
        forgot = memory.full and not (since and seen.started_at and seen.started_at < since)
        return replace(seen, witness=self.docker if memory.saw_end(seen.id) or forgot else "")

    async def _judge(self) -> None:
        unwitnessed = [seen for seen in self._known.values() if seen.unwitnessed]
        if self.last_seen and not unwitnessed:
            return
        memory = await read_memory(self.api)
        if not self.last_seen:
            self._before = memory.removed(self.host.name, self.installation, self.docker)
        for seen in unwitnessed:
            self.keep(believe_note(self._witnessed(seen, memory)))

    async def _note(self, container_id: str) -> Note:
        try:
            return note_in(await self.api.fetch(container_id, NOTE))
        except DockerUnreachable:
            raise
        except DockerError as error:  # it is just being removed, or its disk is broken: the code must do
            log.debug("%s: no note: %s", container_id, error.message)
            return Note()

    def _lost(self, container_id: str) -> None:
        """Keep a container that someone else removed as it was last."""
        before = self._known.get(container_id)
        if before is None or before.gone or container_id in self._removing:
            return
        ended = before.ended_at or max(now() + self.skew, before.started_at or FIRST)
        self.keep(replace(before, gone=True, ended_at=ended))
        self._tell(before.run)

    def _tell(self, run: Run) -> None:
        """Tell of a change once all was looked at: until then what is known is half old and half new."""
        if self.answers:
            self._changed(run)

    def _tell_all(self) -> None:
        for run in {seen.run for seen in self._known.values()}:
            self._changed(run)

    # -- the connection ----------------------------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                await self._listen()
            except DockerError as error:
                self._away(error.message)
            except Exception as error:
                log.exception("%s: a defect", self.host.name)
                self._away(f"{self.host.name} cannot be understood: {error}")
            if self.last_seen and now() - self.last_seen < timedelta(seconds=PING_SECONDS * 2):
                backoff.reset()
            await backoff.pause()

    async def _listen(self) -> None:
        """Follow the host's events until the connection breaks, which raises."""
        await self.api.agree()
        filters = {"type": ["container"], "event": EVENTS, "label": [names.ours_filter(self.installation)]}
        async with self.api.events(filters) as events:
            await self._look_at_all()
            self._back()
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._ping())
                    tasks.create_task(self._hear(events))
            except* DockerError as errors:
                raise errors.exceptions[0] from None

    async def _hear(self, events: AsyncIterator[Fields]) -> None:
        async for event in events:
            self.last_seen = now()
            container_id = str(event["Actor"]["ID"])
            if event["Actor"]["Attributes"].get(Label.HELPER):  # as long as one starts, Docker says nothing of it
                continue
            await self.look(container_id, ends=event["Action"] == "die")
        raise DockerUnreachable(f"Docker on {self.host.name} has closed the connection", host=self.host.name)

    async def _ping(self) -> None:
        """Ask for a sign of life: a connection that was cut on the way says nothing, nor does a Docker that hangs."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            await self.api.ping(PING_PATIENCE)
            self.last_seen = now()

    async def _look_at_all(self) -> None:
        self.info = await self.api.info()
        self.skew = (read_time(self.info.get("SystemTime")) or now()) - now()
        bridge = await self.api.network(OWN_NETWORK)
        self.docker = str(bridge["Id"]) if bridge else secrets.token_hex(8)
        self.docker_since = read_time(bridge.get("Created")) if bridge else None
        found = await self.api.containers({"label": [names.ours_filter(self.installation)]})
        known = {str(each["Id"]) for each in found if names.run_of(each.get("Labels") or {})}
        known |= {seen.id for seen in self._known.values() if not seen.gone}  # a list that lacks one is no proof
        limit = asyncio.Semaphore(AT_ONCE)

        async def look(container_id: str) -> None:
            async with limit:
                await self.look(container_id)

        await asyncio.gather(*(look(container_id) for container_id in known))
        await self._judge()
        if "clear" not in self._tasks:
            left = [each for each in found if self._is_left_over(each)]
            ids = [str(each["Id"]) for each in left if not await self._is_marked(str(each["ImageID"]))]
            self._tasks.start(self._clear(ids), "clear")

    async def _clear(self, helpers: Iterable[str]) -> None:
        """Remove helpers in the background: Docker removes none whose network or volume a job holds."""
        for said in await asyncio.gather(*map(self.api.remove, helpers), return_exceptions=True):
            if isinstance(said, DockerError):
                log.info("%s: a helper container cannot be removed: %s", self.host.name, said.message)

    def _is_left_over(self, found: Fields) -> bool:
        """Is it a helper that a server which was killed has left behind, or that could not be removed?"""
        is_helper = bool((found.get("Labels") or {}).get(Label.HELPER))
        return is_helper and str(found["Names"][0]).lstrip("/") not in self.helpers.working

    def _back(self) -> None:
        self.last_seen = now()
        log.info("%s answers", self.host.name)
        self.trouble = None
        self.tried.set()
        self._tell_all()
        self.space.doubt()
        if "probe" not in self._tasks and self._probed != self.docker:
            self._tasks.start(self._probe(), "probe")

    def _away(self, said: str) -> None:
        answered, self.trouble = self.answers, said
        self.tried.set()
        if answered:
            log.warning("%s; trying again", said)
            self._tell_all()

    async def _probe(self) -> None:
        docker = self.docker
        try:
            found = await probe(self.helpers, self.info)
            gpus = self.probe.gpus if found.gpu_trouble else without_own_use(found.gpus, gpus_in_use(self.all()))
            self.probe = replace(found, gpus=gpus)
            self._probed = docker
        except DockerError as error:
            log.info("%s cannot be probed: %s", self.host.name, error.message)


class GroupNetworks:
    """The network each group has on a host: created when it is first needed, and only once."""

    def __init__(self, api: DockerApi, installation: str, closed: bool) -> None:
        self._api, self._installation, self._closed = api, installation, closed
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, group: str) -> str:
        """Return the id of a group's network. It stays until the node is deleted: see docs/decisions/docker.md."""
        async with self._locks[group]:
            return await self._oldest(group) or await self._make(group)

    async def _oldest(self, group: str) -> str | None:
        """Return the oldest network of this name. What a killed server asked for may have come later: while there are
        two of a name Docker starts nothing on either, so those that nobody uses are removed."""
        label = [names.ours_filter(self._installation), f"{Label.GROUP}={group}"]
        found = await self._api.networks({"label": label})
        found = sorted(found, key=lambda each: str(each.get("Created")))
        for other in found[1:]:
            with suppress(DockerError):
                await self._api.remove_network(str(other["Id"]))
        return str(found[0]["Id"]) if found else None

    async def _make(self, group: str) -> str:
        labels = {Label.INSTALLATION: self._installation, Label.GROUP: group}
        name = names.network_name(self._installation, group)
        body = {"Name": name, "Driver": "bridge", "CheckDuplicate": True, "Internal": self._closed, "Labels": labels}
        try:
            made = await self._api.create_network(body)
        except DockerUnreachable:
            raise
        except DockerError as error:  # it has no address left, which is no fault of ours
            raise DockerError(error.message, host=error.host, status=SERVER_ERROR) from error
        return await self._oldest(group) or made

    async def remove_all(self) -> None:
        """Remove all networks of ours; one that something still uses, Docker keeps."""
        with suppress(DockerError):
            for network in await self._api.networks({"label": [names.ours_filter(self._installation)]}):
                with suppress(DockerError):
                    await self._api.remove_network(str(network["Id"]))
