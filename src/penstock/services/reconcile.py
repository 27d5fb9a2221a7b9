"""Brings what is wanted (the store) and what is (the engine) together, one workload at a time.

A step reads the record, asks the engine, acts, and writes what it saw. Every step can be repeated, so a crash between
any two lines is mended by taking the step again: on start all active workloads are stepped once. A workload is stepped
when it was submitted, stopped or deleted, and when the engine says that its run changed; never on a timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.domain.model import now
from penstock.domain.nodes import Node
from penstock.domain.quantities import parse_cpus, parse_duration
from penstock.domain.workloads import WAITING, Reason, Spec, State, Wants, Workload
from penstock.engines.base import Engine, Run
from penstock.errors import PenstockError
from penstock.services import scheduler
from penstock.services.bell import Bell
from penstock.services.ports import free_port
from penstock.services.runs import Runs
from penstock.services.scheduler import Ask, Decision
from penstock.services.uploads import Uploads
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
RETRY = 1.0
GPU_LOOK = 5.0
HOUR = 3600.0


@dataclass
class Queue:
    """What waits, in order, and what holds resources: the scheduler's view, rebuilt from the store on start."""

    waiting: dict[str, Ask] = field(default_factory=dict)
    held: dict[str, tuple[Ask, tuple[str, ...]]] = field(default_factory=dict)
    unsaid: set[str] = field(default_factory=set)
    """Waiting, and not yet told why."""
    said: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def forget(self, workload_id: str) -> bool:
        """True if that made room, or moved the queue."""
        self.unsaid.discard(workload_id)
        self.said.pop(workload_id, None)
        self.ports.pop(workload_id, None)
        waited = self.waiting.pop(workload_id, None)
        return self.held.pop(workload_id, None) is not None or waited is not None

    def give_back(self, workload_id: str) -> None:
        ask, _ = self.held.pop(workload_id)
        self.ports.pop(workload_id, None)
        self.waiting = {workload_id: ask} | self.waiting


class Reconciler:
    def __init__(self, db: Database, engine: Engine, settings: Settings, uploads: Uploads, bell: Bell) -> None:
        self._db = db
        self._engine = engine
        self._uploads = uploads
        self._bell = bell
        self._runs = Runs(db, engine, uploads, parse_duration(settings.stop_grace))
        self._default_cpus = parse_cpus(settings.default_cpus)
        self._retention = timedelta(seconds=parse_duration(settings.retention))
        self._queue = Queue()
        self._node: Node | None = None
        self._wake = asyncio.Event()
        self._steps: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._launching = asyncio.Semaphore(8)

    # life

    async def open(self) -> None:
        self._node = (await self._engine.nodes())[0]
        active, deleted = await self._db.read(lambda tx: (tx.workloads.active(), tx.workloads.deleted()))
        for workload in active:
            self._remember(workload)
        for workload in [*active, *deleted]:
            if workload.state not in WAITING:
                self.touch(workload.id)
        loops = (self._watch_engine(), self._schedule_when_woken(), self._look_at_gpus(), self._tidy())
        self._loops = [asyncio.create_task(loop) for loop in loops]
        self._wake.set()

    async def close(self) -> None:
        tasks = [*self._loops, *self._steps.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # what the other services say and ask

    @property
    def node(self) -> Node:
        if self._node is None:
            raise RuntimeError("the reconciler is not open")
        return self._node

    def ask_of(self, spec: Spec) -> Ask:
        return scheduler.ask_of(spec, self._default_cpus)

    def outlook(self, ask: Ask) -> str | None:
        """Why a workload submitted now would wait; None if it would start."""
        lack = scheduler.shortage(ask, self.room(), self.node)
        ahead = len(self._queue.waiting)
        if lack and ahead:
            return f"{lack}; {ahead} ahead in the queue"
        return lack or (f"{ahead} ahead in the queue" if ahead else None)

    def submitted(self, workload: Workload) -> None:
        self._remember(workload)
        self._wake.set()

    def touch(self, workload_id: str) -> None:
        """Something about this workload changed: look at it soon, once."""
        if workload_id in self._steps:
            self._again.add(workload_id)
        else:
            self._steps[workload_id] = asyncio.create_task(self._step_until_quiet(workload_id))

    def holders(self) -> dict[str, str]:
        """GPU uuid → id of the workload that has it."""
        return {uuid: workload_id for workload_id, (_, uuids) in self._queue.held.items() for uuid in uuids}

    def room(self) -> scheduler.Room:
        room = scheduler.room_of(self.node)
        for taken, uuids in self._queue.held.values():
            room = room.less(taken, uuids)
        return room

    # one workload

    def _remember(self, workload: Workload) -> None:
        ask = self.ask_of(workload.spec)
        if workload.state in WAITING:
            self._queue.waiting[workload.id] = ask
            if workload.state is State.INSERTED:
                self._queue.unsaid.add(workload.id)
            elif workload.message:
                self._queue.said[workload.id] = workload.message
        elif not workload.ended:
            self._queue.held[workload.id] = (ask, tuple(uuid for rank in workload.gpus for uuid in rank))
            self._queue.ports[workload.id] = workload.master_port or 0

    async def _step_until_quiet(self, workload_id: str) -> None:
        try:
            while True:
                self._again.discard(workload_id)
                await self._step(workload_id)
                if workload_id not in self._again:
                    break
        except (PenstockError, OSError) as error:
            log.warning("%s: %s; trying again", workload_id, error)
            asyncio.get_running_loop().call_later(RETRY, self.touch, workload_id)
        except Exception:
            log.exception("%s: a defect; trying again", workload_id)
            asyncio.get_running_loop().call_later(RETRY * 10, self.touch, workload_id)
        finally:
            self._steps.pop(workload_id, None)

    async def _step(self, workload_id: str) -> None:
        workload = await self._db.read(lambda tx: tx.workloads.get(workload_id))
        if workload is None or workload.state is State.DELETED:
            if workload:
                await self._remove(workload)
            self._release(workload_id)
        elif workload.ended:
            self._release(workload_id)
        elif workload.state not in WAITING:
            async with self._launching:
                after = await self._runs.advance(workload)
            self._bell.ring(workload_id)
            if after.state is State.QUEUED:
                self._queue.give_back(workload_id)
                asyncio.get_running_loop().call_later(RETRY, self._wake.set)
            elif after.ended:
                self._release(workload_id)

    def _release(self, workload_id: str) -> None:
        if self._queue.forget(workload_id):
            self._wake.set()

    async def _remove(self, workload: Workload) -> None:
        for attempt in range(1, workload.attempt + 1):
            await self._engine.remove(Run(workload.id, attempt))
        await self._db.write(lambda tx: tx.workloads.remove(workload.id))

    # the queue

    async def _schedule_when_woken(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._schedule()
            except (PenstockError, OSError) as error:
                log.warning("scheduling: %s; trying again", error)
                asyncio.get_running_loop().call_later(RETRY, self._wake.set)
            except Exception:
                log.exception("scheduling: a defect; trying again")
                asyncio.get_running_loop().call_later(RETRY * 10, self._wake.set)

    async def _schedule(self) -> None:
        queue = self._queue
        if not queue.waiting:
            return
        if self.node.gpus:
            self._node = (await self._engine.nodes())[0]
        decisions = scheduler.decide(queue.waiting, queue.held, self.node)
        starts = [decision for decision in decisions if decision.waits is None]
        says = {d.workload_id: d.waits for d in decisions if d.waits and queue.said.get(d.workload_id) != d.waits}
        for workload_id in queue.unsaid.difference(d.workload_id for d in decisions):
            says[workload_id] = "others are ahead in the queue"
        if not starts and not says:
            return
        for decision in starts:
            self._hold(decision)
        placed = await self._db.write(lambda tx: _record(tx, starts, says, self.node.name, queue.ports))
        queue.said |= says
        queue.unsaid -= set(says)
        for decision in starts:
            self._bell.ring(decision.workload_id)
            if decision.workload_id in placed:
                self.touch(decision.workload_id)
            else:
                self._release(decision.workload_id)

    def _hold(self, decision: Decision) -> None:
        """Counted from now on, so that a submit during the write sees it."""
        ask = self._queue.waiting.pop(decision.workload_id)
        self._queue.unsaid.discard(decision.workload_id)
        self._queue.held[decision.workload_id] = (ask, tuple(uuid for rank in decision.gpus for uuid in rank))
        self._queue.ports[decision.workload_id] = free_port(decision.workload_id, self._queue.ports.values())

    # loops

    async def _watch_engine(self) -> None:
        async for run in self._engine.changes():
            self.touch(run.workload_id)

    async def _look_at_gpus(self) -> None:
        """A GPU that another server gives back tells nobody: look, but only while something here waits for one."""
        while True:
            await asyncio.sleep(GPU_LOOK)
            if any(ask.gpus for ask in self._queue.waiting.values()):
                self._wake.set()

    async def _tidy(self) -> None:
        while True:
            with suppress(PenstockError, OSError):
                await self._end_retention()
                in_use = {
                    id_ for w in await self._db.read(lambda tx: tx.workloads.active()) for id_ in w.files.values()
                }
                await self._uploads.prune(in_use)
            await asyncio.sleep(HOUR)

    async def _end_retention(self) -> None:
        before = now() - self._retention

        def expire(tx: Store) -> list[str]:
            ids: list[str] = tx.workloads.ended_before(before)
            for workload_id in ids:
                workload = tx.workloads.get(workload_id)
                if workload:
                    tx.workloads.move(workload, State.DELETED, Reason.RETENTION, wants=Wants.DELETE)
            tx.submissions.prune(before)
            return ids

        for workload_id in await self._db.write(expire):
            self.touch(workload_id)


def _record(tx: Store, starts: list[Decision], says: dict[str, str], node: str, ports: Mapping[str, int]) -> set[str]:
    """Writes what was decided. A workload stopped meanwhile is left alone."""
    placed = set()
    for decision in starts:
        workload = tx.workloads.get(decision.workload_id)
        if workload and workload.state in WAITING and workload.wants is Wants.RUN:
            workload = tx.workloads.move(workload, State.ASSIGNED, Reason.PLACED, f"on {node}")
            tx.workloads.move(
                workload, State.LAUNCHING, Reason.PLACED, gpus=decision.gpus, master_port=ports[workload.id]
            )
            placed.add(workload.id)
    for workload_id, message in says.items():
        workload = tx.workloads.get(workload_id)
        if workload and workload.state in WAITING:
            tx.workloads.move(workload, State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, message)
    return placed
