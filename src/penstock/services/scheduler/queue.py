"""Keep the queue of an engine that does not schedule, and place what waits whenever something changed.

Where the engine schedules itself it stays empty: nothing waits here, nothing is held, and there is nothing to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from penstock.background import Tasks
from penstock.domain.model import now
from penstock.domain.nodes import Host, Node, unknown_node
from penstock.domain.scheduling.capacity import Free
from penstock.domain.scheduling.demand import PlacedJob, QueuedJob
from penstock.domain.scheduling.explain import Explanation, WaitCause
from penstock.domain.states import WAITING, Reason
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine
from penstock.errors import PenstockError
from penstock.services.people.people import People
from penstock.services.scheduler.reasons import QueueReasons
from penstock.services.scheduler.state import (
    Homes,
    NotAssigned,
    SchedulerState,
    free_port,
    job_of,
    write_assignments,
)
from penstock.services.wakeup import Wakeup
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
RETRY = 1.0
GPU_LOOK = 5.0
HOST_LOOK = 1.0
"""Seconds between looks at Docker hosts: the engine knows of them without asking."""
PATIENCE = 2.0
"""Seconds that whoever made several things at once waits to be told the place of each."""
SOON = "it starts in a moment"


@dataclass(eq=False)
class SchedulerLoop:
    _db: Database
    _state: SchedulerState
    _reasons: QueueReasons
    _people: People
    _wakeup: Wakeup
    _touch: Callable[[str], None]
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _settled: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when all that waits was looked at; then there is another for the next time."""

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        self._wake.set()
        return [self._schedule_when_woken(), self._look_again(), self._follow_people()]

    def wake(self, seconds: float = 0) -> None:
        """Schedule now, or in so many seconds."""
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._wake.set)
        else:
            self._wake.set()

    async def settled(self) -> None:
        """Wait until all that waits was looked at once more."""
        await self._settled.wait()

    async def _schedule_when_woken(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._schedule()
            except (PenstockError, OSError) as error:
                log.warning("scheduling: %s; trying again", error)
                self.wake(RETRY)
            except Exception:
                log.exception("scheduling: a defect; trying again")
                self.wake(RETRY * 10)

    async def _schedule(self) -> None:
        if self._state.idle:
            return
        await self._state.refresh_nodes()
        await self._locate_volumes()
        while (starts := self._state.pool.decide(now())) or not self._state.pool.settled:
            if not await self._place(starts):
                return
        self._settled.set()
        self._settled = asyncio.Event()
        if pause := await self._reasons.write():
            self.wake(pause)

    async def _locate_volumes(self) -> None:
        """Find out where the volumes of workloads are: there they run, and as long as that is not known they wait."""
        for workload in list(self._state.unlocated.values()):
            try:
                homes = await self._state.homes(await self._db.read(partial(_volumes_of, workload)))
            except PenstockError as error:
                self._state.unlocated_because[workload.id] = WaitCause(Reason.VOLUME_NOT_READY, error.message)
            else:
                self._state.locate(workload, homes)

    async def _place(self, starts: list[PlacedJob]) -> bool:
        """Write down the places. False: something stood in the way, and it is better to look again in a moment."""
        if not starts:  # of very many kinds some were not looked at yet, and others want to be served, too
            await asyncio.sleep(0)
            return True
        ports: dict[str, int] = {}
        for held in starts:  # counted from now on, so that a submit during the write sees it
            ports[held.job.id] = free_port(held.job.id, self._state.ports.values())
            self._state.ports[held.job.id] = ports[held.job.id]
        write = partial(write_assignments, starts=starts, ports=ports, several=self._state.several)
        try:
            refused, bound = await self._db.write(write)
        except Exception:
            for held in starts:
                self._state.pool.enqueue(held.job)
            raise
        for held in starts:
            self._wakeup.wake(held.job.id)
            if held.job.id in refused:
                self._not_assigned(held, refused[held.job.id])
            else:
                self._reasons.forget(held.job.id)
                self._touch(held.job.id)
        for workload in bound:
            if workload.id in self._state.pool.waiting:
                self._state.wait(workload)
                self.wake()
        return not refused

    def _not_assigned(self, held: PlacedJob, why: NotAssigned) -> None:
        if why.elsewhere and why.workload:
            self._state.wait(why.workload)
            self.wake()
            return
        if why.holders:
            for other in why.holders:
                if other.id not in self._state.pool.held:
                    self._state.hold(other)
            self._state.pool.enqueue(held.job)
            self.wake(RETRY)
            return
        self._reasons.forget(held.job.id)
        self._state.release(held.job.id)
        self.wake()
        if why.workload and not why.workload.ended and why.workload.state not in WAITING:
            self._state.hold(why.workload)
            self._touch(why.workload.id)

    async def _look_again(self) -> None:
        """Look again from time to time: a host that comes back tells nobody here, nor does a GPU that another server
        gives back or a disk that has room again. This machine is looked at only while something waits for one of
        these."""
        state = self._state
        while True:
            await asyncio.sleep(HOST_LOOK if state.several else GPU_LOOK)
            if state.several:
                with suppress(PenstockError, OSError):  # the next look is near
                    await state.refresh_nodes()
            full = any(room.node.full for room in state.pool.rooms.values())
            if state.unlocated or any(state.several or full or job.ask.gpus for job in state.pool.waiting.values()):
                self.wake()

    async def _follow_people(self) -> None:
        """Queue what waits anew when rights change: whose nodes somebody may use, and whether they may run anything."""
        change = self._people.change
        while True:
            await change.wait()
            change = self._people.change  # before anything is read: what comes meanwhile is another round
            self._state.refresh_groups()
            for workload in await self._read_waiting():
                if workload.id in self._state:
                    self._state.wait(workload)
            self.wake()

    async def _read_waiting(self) -> list[Workload]:
        while True:
            try:
                return await self._db.read(_waiting)
            except (PenstockError, OSError) as error:
                log.warning("what waits cannot be read: %s; trying again", error)
            await asyncio.sleep(RETRY)


def _volumes_of(workload: Workload, tx: Store) -> list[Volume]:
    return [volume for id_ in set(workload.volume_ids.values()) if (volume := tx.volumes.get(id_))]


def _waiting(tx: Store) -> list[Workload]:
    return tx.workloads.waiting()


class JobQueue:
    def __init__(
        self,
        db: Database,
        engine: Engine,
        settings: Settings,
        wakeup: Wakeup,
        people: People,
        nodes: Callable[[], Awaitable[list[Node]]],
        touch: Callable[[str], None],
    ) -> None:
        self.active = not engine.schedules
        """Do workloads wait here? Otherwise the engine takes all that is to start."""
        self._state = SchedulerState(engine, settings, people, nodes)
        self._pool = self._state.pool
        self._reasons = QueueReasons(db, wakeup, self._pool, self._state.causes_outside)
        self._loop = SchedulerLoop(db, self._state, self._reasons, people, wakeup, touch)
        self._tasks = Tasks()

    async def open(self) -> None:
        if self.active:
            self._state.refresh_groups()
            await self._state.refresh_nodes()

    def start(self) -> None:
        """Begin to place jobs: all that runs was told to `hold`."""
        for loop in self._loop.loops() if self.active else ():
            self._tasks.start(loop)

    async def close(self) -> None:
        await self._tasks.close()

    # what the services ask

    @property
    def limits(self) -> str:
        """Are CPU and memory limits kept, or only counted?"""
        kept = all(room.node.limits_enforced for room in self._pool.rooms.values())
        return "enforced" if kept else "advisory"

    def free(self, node: Node) -> Free | None:
        """Return what is left of a node; None: it was not seen yet."""
        room = self._pool.rooms.get(node.name)
        return room.free if room else None

    def holders(self) -> dict[str, str]:
        """GPU uuid → id of the workload that has it."""
        return self._pool.holders()

    async def candidate(self, workload: Workload, volumes: Iterable[Volume], homes: Homes = ()) -> QueuedJob | None:
        """Return the job of a workload that is not stored yet, to ask about; None: the engine decides about it. `homes`
        are of further volumes, which the engine does not know yet."""
        if not self.active:
            return None
        if self._state.several or workload.spec.resources.gpus:  # what others do on this machine's GPUs nobody tells
            await self._state.refresh_nodes()
        known = list(homes) if self._state.several else []
        for volume in volumes:
            with suppress(PenstockError):  # that is said while it waits
                known += await self._state.homes([volume])
        return job_of(workload, self._state.ask(workload, tuple(sorted(known))))

    def never(self, job: QueuedJob, coming: Iterable[Host] = ()) -> dict[str, str]:
        """Return why it could not run even if nothing else did. `coming` are nodes that are about to be registered, of
        which it is not known what they have."""
        return self._pool.never(job, [unknown_node(host) for host in coming])

    def outlook(self, job: QueuedJob) -> WaitCause | None:
        """Return why a job that came now would wait; None if it would start."""
        return self._pool.outlook(job, now())

    def outlook_together(self, jobs: Sequence[QueuedJob]) -> dict[str, WaitCause | None]:
        """Return the same of several that came at once, each in the way of those after it."""
        pool = self._pool.copy()
        for job in jobs:
            pool.enqueue(job)
        while pool.decide(now()) or not pool.settled:
            pass
        causes = pool.causes(job.id for job in jobs if job.id in pool.waiting)
        return {job.id: causes.get(job.id) for job in jobs}

    def explain(self, workload_id: str) -> Explanation | None:
        """Return why it waits, node by node; None: it does not wait for a place."""
        job = self._pool.waiting.get(workload_id)
        if job is None:
            return None
        found = self._pool.explain(workload_id)
        starts = not self._pool.settled and self._pool.outlook(job, now()) is None
        return replace(found, sentence=SOON) if starts else found

    def causes(self, workload_ids: Iterable[str]) -> dict[str, WaitCause]:
        """Return why each waits as of now, without those of which nothing is known beside what was written."""
        if not self._pool.settled:
            return {}
        return self._pool.causes(id_ for id_ in workload_ids if id_ in self._pool.waiting)

    async def settled_causes(self, workload_ids: Sequence[str]) -> dict[str, WaitCause | None]:
        """Return why each waits once all of them were looked at; None: it has a place. Those that are held up by
        something else are left out, and all where that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not self._pool.settled and any(id_ in self._pool.waiting for id_ in workload_ids):
                    await self._loop.settled()
        placed = {id_: None for id_ in workload_ids if id_ in self._pool.held}
        return placed | self.causes(workload_ids)

    # what the reconciler tells

    def enqueue(self, workload: Workload) -> None:
        """Take up a workload, which may start as soon as there is room."""
        if workload.id in self._state:
            return
        self._reasons.forget(workload.id)
        self._state.wait(workload)
        self._reasons.comes(workload)
        self._loop.wake()

    def hold(self, workload: Workload) -> None:
        """Count what a workload holds by its record."""
        if self.active:
            self._state.hold(workload)

    def give_back(self, workload: Workload) -> None:
        """Queue a workload that could not start where it was placed: it keeps its turn, and is looked at in a
        moment."""
        self._reasons.forget(workload.id)
        self._state.wait(workload)
        self._loop.wake(RETRY)

    def release(self, workload_id: str) -> None:
        self._reasons.forget(workload_id)
        if self._state.release(workload_id):
            self._loop.wake()
