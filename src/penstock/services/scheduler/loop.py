"""Place what waits whenever something changed, and write down why the rest waits on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from penstock.domain.model import now
from penstock.domain.scheduling.demand import PlacedJob
from penstock.domain.scheduling.explain import WaitCause
from penstock.domain.states import WAITING, Reason
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.errors import PenstockError
from penstock.services.people.people import People
from penstock.services.scheduler.demand import Assignment, NotAssigned, free_port, write_assignments
from penstock.services.scheduler.reasons import WaitReasons
from penstock.services.scheduler.state import SchedulerState
from penstock.services.wakeup import Wakeup
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
RETRY = 1.0
GPU_LOOK = 5.0
HOST_LOOK = 1.0
"""Seconds between looks at Docker hosts: the engine knows of them without asking."""


class SchedulerLoop:
    def __init__(
        self,
        db: Database,
        state: SchedulerState,
        reasons: WaitReasons,
        people: People,
        wakeup: Wakeup,
        touch: Callable[[str], None],
    ) -> None:
        self._db = db
        self._state = state
        self._pool = state.pool
        self._reasons = reasons
        self._people = people
        self._wakeup = wakeup
        self._touch = touch
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
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
        while (starts := self._pool.decide(now())) or not self._pool.settled:
            if not await self._place(starts):
                return
        self._settled.set()
        self._settled = asyncio.Event()
        await self._write_reasons()

    async def _write_reasons(self) -> None:
        """Write why the rest waits, at most once a second: a queue that moves says something new all the time."""
        if (pause := self._reasons.pause()) > 0:
            self.wake(pause)
            return
        await self._reasons.write(self._reasons.due())
        if self._reasons.behind:
            self.wake()

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
        ports, assignments = self._state.ports, []
        for held in starts:  # counted from now on, so that a submit during the write sees it
            port = ports[held.job.id] = free_port(held.job.id, ports.values())
            hosts = tuple(place.node for place in held.places) if self._state.several else ()
            assignments.append(Assignment(held, port, hosts))
        try:
            refused, bound = await self._db.write(lambda tx: write_assignments(tx, assignments))
        except Exception:
            for held in starts:
                self._pool.enqueue(held.job)
            raise
        for held in starts:
            self._wakeup.wake(held.job.id)
            if held.job.id in refused:
                self._not_assigned(held, refused[held.job.id])
            else:
                self._reasons.forget(held.job.id)
                self._touch(held.job.id)
        for workload in bound:
            if workload.id in self._pool.waiting:
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
                if other.id not in self._pool.held:
                    self._state.hold(other)
            self._pool.enqueue(held.job)
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
            full = any(room.node.full for room in self._pool.rooms.values())
            if state.unlocated or any(state.several or full or job.ask.gpus for job in self._pool.waiting.values()):
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
