"""The queue: what waits, what holds which resources, and the loop that decides.

Rebuilt from the store on start; the store has the last word on every decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.domain.model import now
from penstock.domain.nodes import Host, Node, unknown_node
from penstock.domain.quantities import parse_cpus
from penstock.domain.scheduling.capacity import Free
from penstock.domain.scheduling.demand import Ask, Held, QueuedJob, ask_of
from penstock.domain.scheduling.explain import Cause, Explanation
from penstock.domain.scheduling.pool import Pool
from penstock.domain.states import WAITING, Reason
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine, HasHosts
from penstock.errors import PenstockError
from penstock.services.people.people import People
from penstock.services.scheduler.demand import Placed, Refused, free_port, held_of, job_of, write_placed
from penstock.services.scheduler.reasons import Saying
from penstock.services.wakeup import Bell
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
RETRY = 1.0
GPU_LOOK = 5.0
HOST_LOOK = 1.0
"""Of Docker hosts the engine knows without asking them."""

LOOK_PATIENCE = 2.0
"""Seconds that whoever made several things at once waits to be told the place of each."""

SOON = "it starts in a moment"

Homes = tuple[tuple[str, str], ...]
"""Names of volumes, and the node each is on."""


class Placement:
    def __init__(
        self,
        db: Database,
        engine: Engine,
        settings: Settings,
        bell: Bell,
        touch: Callable[[str], None],
        people: People,
        nodes: Callable[[], Awaitable[list[Node]]],
    ) -> None:
        self._db = db
        self._engine = engine
        self._bell = bell
        self._touch = touch
        self._people = people
        self._nodes = nodes
        """As they may be used: what runs on them is in the records."""
        self._default_cpus = parse_cpus(settings.default_cpus)
        self._hosts = engine if isinstance(engine, HasHosts) else None
        """Where there are nodes to choose from, that come and go."""
        self._several = self._hosts is not None
        self._pool = Pool()
        self._coming: dict[str, Workload] = {}
        """They wait, and where their volumes are is to be found out."""
        self._unknown: dict[str, Cause] = {}
        """Of those: why nobody can tell."""
        self._barred: dict[str, Workload] = {}
        """Nothing of their users starts any more."""
        self._ports: dict[str, int] = {}
        self._groups: set[str] = set()
        self._saying = Saying(db, bell, self._pool, self._outside)
        self._wake = asyncio.Event()
        self._looked = asyncio.Event()
        """Set when all that waits was looked at; then there is another for the next time."""

    async def open(self) -> None:
        self._learn_groups()
        await self.look()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        self._wake.set()
        return [self._schedule_when_woken(), self._look_again(), self._follow_people()]

    async def look(self) -> None:
        """What nodes there are."""
        nodes = {node.name: node for node in await self._nodes()}
        for node in nodes.values():
            self._pool.see(node)
        for name in self._pool.rooms.keys() - nodes.keys():
            self._pool.lose(name)

    # what the other services ask

    @property
    def limits_enforced(self) -> bool:
        return all(room.node.limits_enforced for room in self._pool.rooms.values())

    def free(self, node: Node) -> Free | None:
        """What is left of it; None: it was not seen yet."""
        room = self._pool.rooms.get(node.name)
        return room.free if room else None

    def holders(self) -> dict[str, str]:
        """GPU uuid → id of the workload that has it."""
        return self._pool.holders()

    def never(self, job: QueuedJob, coming: Iterable[Host] = ()) -> dict[str, str]:
        """`coming` are nodes that are about to be registered: what they have is not known yet."""
        return self._pool.never(job, [unknown_node(host) for host in coming])

    def outlook(self, job: QueuedJob) -> Cause | None:
        """Why one that came now would wait; None if it would start."""
        return self._pool.outlook(job, now())

    def outlook_together(self, jobs: Sequence[QueuedJob]) -> dict[str, Cause | None]:
        """The same of several that came at once, each in the way of those after it."""
        pool = self._pool.copy()
        for job in jobs:
            pool.enqueue(job)
        while pool.decide(now()) or not pool.settled:
            pass
        causes = pool.causes(job.id for job in jobs if job.id in pool.waiting)
        return {job.id: causes.get(job.id) for job in jobs}

    def explain(self, workload_id: str) -> Explanation | None:
        """None: it does not wait for a place."""
        job = self._pool.waiting.get(workload_id)
        if job is None:
            return None
        found = self._pool.explain(workload_id)
        starts = not self._pool.settled and self._pool.outlook(job, now()) is None
        return replace(found, sentence=SOON) if starts else found

    def causes(self, workload_ids: Iterable[str]) -> dict[str, Cause]:
        """Why each waits, as of now; not of those of which nothing is known beside what was said."""
        if not self._pool.settled:
            return {}
        return self._pool.causes(id_ for id_ in workload_ids if id_ in self._pool.waiting)

    async def said_of(self, workload_ids: Sequence[str]) -> dict[str, str | None]:
        """What each waits for once all of them were looked at; None: it has a place. Not of those that are held up by
        something else, and of none where that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_PATIENCE):
                while not self._pool.settled and any(id_ in self._pool.waiting for id_ in workload_ids):
                    await self._looked.wait()
        placed = {id_: None for id_ in workload_ids if id_ in self._pool.held}
        return placed | {id_: cause.message for id_, cause in self.causes(workload_ids).items()}

    async def candidate(self, workload: Workload, volumes: Iterable[Volume], homes: Homes = ()) -> QueuedJob:
        """Return one that is not stored yet, to ask about; `homes` are of further volumes, which the engine does not
        know yet."""
        if self._several or workload.spec.resources.gpus:  # what others do on this machine's GPUs nobody tells
            await self.look()
        known = list(homes) if self._several else []
        for volume in volumes:
            with suppress(PenstockError):  # that is said while it waits
                known += await self._homes([volume])
        return job_of(workload, self._ask(workload, tuple(sorted(known))))

    async def _homes(self, volumes: Iterable[Volume]) -> Homes:
        """Of those that are on one node's disk: what mounts them must run there."""
        if self._hosts is None:
            return ()
        homes = [(volume.name, await self._hosts.volume_node(volume)) for volume in volumes]
        return tuple(sorted((name, node) for name, node in homes if node))

    # what the reconciler says

    def enqueue(self, workload: Workload) -> None:
        """It may start as soon as there is room."""
        id_ = workload.id
        if id_ in self._pool.waiting or id_ in self._coming or id_ in self._barred:
            return
        self._forget(id_)
        self._wait(workload)
        self._saying.comes(workload)
        self._wake.set()

    def _wait(self, workload: Workload) -> None:
        if self._people.barred(workload.user):
            self._barred[workload.id] = workload
        elif self._several and workload.volume_ids:
            self._coming[workload.id] = workload
        else:
            self._pool.enqueue(job_of(workload, self._ask(workload)))

    def remember(self, workload: Workload) -> None:
        """It holds resources, by the record."""
        only = next(iter(self._pool.rooms), "")
        self._pool.hold(held_of(workload, self._ask(workload), only))
        self._ports[workload.id] = workload.master_port or 0

    def give_back(self, workload: Workload) -> None:
        """It could not start where it was placed: in the queue again where it was, in a moment."""
        self._forget(workload.id)
        self._wait(workload)
        asyncio.get_running_loop().call_later(RETRY, self._wake.set)

    def release(self, workload_id: str) -> None:
        if self._forget(workload_id):
            self._wake.set()

    def _forget(self, workload_id: str) -> bool:
        """True if that made room, or moved the queue."""
        self._saying.forget(workload_id)
        self._ports.pop(workload_id, None)
        self._coming.pop(workload_id, None)
        self._unknown.pop(workload_id, None)
        self._barred.pop(workload_id, None)
        return self._pool.release(workload_id)

    def _outside(self) -> dict[str, Cause]:
        """Why those wait that are not in the pool."""
        barred = {id_: self._people.barred(workload.user) or "" for id_, workload in self._barred.items()}
        return {id_: Cause(Reason.NOT_ALLOWED, said) for id_, said in barred.items()} | self._unknown

    def _ask(self, workload: Workload, homes: Homes = ()) -> Ask:
        return ask_of(
            workload.spec,
            self._default_cpus,
            indexes=len(workload.indexes) or None,
            groups=self._people.node_groups(workload.user),
            shares=self._several,
            together=self._several,
            volumes=homes,
            shell=workload.session,
        )

    # the loops

    async def _schedule_when_woken(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._schedule()
            except (PenstockError, OSError) as error:
                log.warning("scheduling: %s; trying again", error)
                self._wake_in(RETRY)
            except Exception:
                log.exception("scheduling: a defect; trying again")
                self._wake_in(RETRY * 10)

    def _wake_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._wake.set)

    async def _schedule(self) -> None:
        if not self._pool.waiting and not self._coming and not self._barred:
            return
        await self.look()
        await self._find_volumes()
        while (starts := self._pool.decide(now())) or not self._pool.settled:
            if not await self._place(starts):
                return
        self._looked.set()
        self._looked = asyncio.Event()
        await self._say()

    async def _say(self) -> None:
        """Why the rest waits; at most once a second, for a queue that moves says something new all the time."""
        if (pause := self._saying.pause()) > 0:
            self._wake_in(pause)
            return
        await self._saying.say(self._saying.due())
        if self._saying.behind:
            self._wake.set()

    async def _find_volumes(self) -> None:
        """Where a workload's volumes are, it runs; as long as nobody can tell, it waits."""
        for workload in list(self._coming.values()):
            try:
                homes = await self._homes(await self._db.read(partial(_volumes_of, workload)))
            except PenstockError as error:
                self._unknown[workload.id] = Cause(Reason.VOLUME_NOT_READY, error.message)
                continue
            self._unknown.pop(workload.id, None)
            if self._coming.pop(workload.id, None):
                self._pool.enqueue(job_of(workload, self._ask(workload, homes)))

    async def _place(self, starts: list[Held]) -> bool:
        """Writes them down. False: something stood in the way, and it is better to look again in a moment."""
        if not starts:  # of very many kinds some were not looked at yet, and others want to be served, too
            await asyncio.sleep(0)
            return True
        placed = []
        for held in starts:  # counted from now on, so that a submit during the write sees it
            port = self._ports[held.job.id] = free_port(held.job.id, self._ports.values())
            hosts = tuple(place.node for place in held.places) if self._several else ()
            placed.append(Placed(held, port, hosts))
        try:
            refused, bound = await self._db.write(lambda tx: write_placed(tx, placed))
        except Exception:
            for held in starts:
                self._pool.enqueue(held.job)
            raise
        for held in starts:
            self._bell.ring(held.job.id)
            if held.job.id in refused:
                self._not_placed(held, refused[held.job.id])
            else:
                self._saying.forget(held.job.id)
                self._touch(held.job.id)
        for workload in bound:
            if workload.id in self._pool.waiting:
                self._ask_again(workload)
                self._wake.set()
        return not refused

    def _not_placed(self, held: Held, why: Refused) -> None:
        if why.elsewhere and why.workload:
            self._ask_again(why.workload)
            self._wake.set()
            return
        if why.holders:
            for other in why.holders:
                if other.id not in self._pool.held:
                    self.remember(other)
            self._pool.enqueue(held.job)
            self._wake_in(RETRY)
            return
        self.release(held.job.id)
        if why.workload and not why.workload.ended and why.workload.state not in WAITING:
            self.remember(why.workload)
            self._touch(why.workload.id)

    async def _look_again(self) -> None:
        """A host that comes back tells nobody here, nor does a GPU that another server gives back or a disk that has
        room again: look, but at this machine only while something waits for one of these."""
        while True:
            await asyncio.sleep(HOST_LOOK if self._several else GPU_LOOK)
            if self._several:
                with suppress(PenstockError, OSError):  # the next look is near
                    await self.look()
            full = any(room.node.full for room in self._pool.rooms.values())
            if self._coming or any(self._several or full or job.ask.gpus for job in self._pool.waiting.values()):
                self._wake.set()

    # who may what

    async def _follow_people(self) -> None:
        change = self._people.change
        while True:
            await change.wait()
            change = self._people.change  # before anything is read: what comes meanwhile is another round
            self._learn_groups()
            for workload in await self._waiting():
                if workload.id in self._pool.waiting or workload.id in self._coming or workload.id in self._barred:
                    self._ask_again(workload)
            self._wake.set()

    async def _waiting(self) -> list[Workload]:
        while True:
            try:
                return await self._db.read(_waiting)
            except (PenstockError, OSError) as error:
                log.warning("what waits cannot be read: %s; trying again", error)
            await asyncio.sleep(RETRY)

    def _ask_again(self, workload: Workload) -> None:
        """Whose nodes they may use, and whether they may anything, may be different now."""
        self._pool.release(workload.id)
        self._coming.pop(workload.id, None)
        self._barred.pop(workload.id, None)
        self._wait(workload)

    def _learn_groups(self) -> None:
        groups = {group.name: group for group in self._people.all_groups()}
        for group in groups.values():
            self._pool.set_group(group)
        for name in self._groups - groups.keys():
            self._pool.lose_group(name)
        self._groups = set(groups)


def _volumes_of(workload: Workload, tx: Store) -> list[Volume]:
    return [volume for id_ in set(workload.volume_ids.values()) if (volume := tx.volumes.get(id_))]


def _waiting(tx: Store) -> list[Workload]:
    return tx.workloads.waiting()
