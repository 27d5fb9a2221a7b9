"""Keep the queue of an engine that does not schedule: what the services ask of it, and what the reconciler tells it.

Where the engine schedules itself it stays empty: nothing waits here, nothing is held, and there is nothing to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from penstock.background import Tasks
from penstock.domain.model import now
from penstock.domain.nodes import Host, Node, unknown_node
from penstock.domain.scheduling.capacity import Free
from penstock.domain.scheduling.demand import QueuedJob
from penstock.domain.scheduling.explain import Explanation, WaitCause
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine
from penstock.errors import PenstockError
from penstock.services.people.people import People
from penstock.services.scheduler.demand import job_of
from penstock.services.scheduler.loop import RETRY, SchedulerLoop
from penstock.services.scheduler.reasons import WaitReasons
from penstock.services.scheduler.state import Homes, SchedulerState
from penstock.services.wakeup import Wakeup
from penstock.settings import Settings
from penstock.store.database import Database

PATIENCE = 2.0
"""Seconds that whoever made several things at once waits to be told the place of each."""

SOON = "it starts in a moment"


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
        self._reasons = WaitReasons(db, wakeup, self._pool, self._state.causes_outside)
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
