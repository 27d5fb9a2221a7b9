"""The queue of an engine that does not schedule: what waits, what holds which resources, and the loop that decides.

Rebuilt from the store on start; the store has the last word on every decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.domain.nodes import Node
from penstock.domain.quantities import parse_cpus
from penstock.domain.workloads import WAITING, Reason, Spec, State, Wants, Workload
from penstock.engines.base import Engine
from penstock.errors import PenstockError
from penstock.services import scheduler
from penstock.services.bell import Bell
from penstock.services.ports import free_port
from penstock.services.scheduler import Ask, Decision
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
RETRY = 1.0
GPU_LOOK = 5.0
HOST_LOOK = 1.0
"""Of Docker hosts the engine knows without asking them."""
NO_NODE = Node(name="no node", cpus_milli=0, memory_bytes=0, ready=False, limits_enforced=True)


@dataclass
class Queue:
    """What waits, in order, and what holds resources."""

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


class Placement:
    def __init__(
        self, db: Database, engine: Engine, settings: Settings, bell: Bell, touch: Callable[[str], None]
    ) -> None:
        self._db = db
        self._engine = engine
        self._bell = bell
        self._touch = touch
        self._default_cpus = parse_cpus(settings.default_cpus)
        self._queue = Queue()
        self._node: Node | None = None
        self._wake = asyncio.Event()

    async def open(self) -> None:
        await self._look()

    async def look_again(self) -> None:
        """Before something is judged by what there is."""
        if self._moving:
            await self._look()

    async def _look(self) -> None:
        """The first node that takes work. Docker hosts come and go, and there may be none."""
        nodes = await self._engine.nodes()
        ready = [node for node in nodes if node.ready and not node.maintenance]
        self._node = next(iter(ready or nodes), NO_NODE)

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        self._wake.set()
        return [self._schedule_when_woken(), self._look_at_gpus()]

    # what the other services ask

    @property
    def node(self) -> Node:
        if self._node is None:
            raise RuntimeError("the placement is not open")
        return self._node

    def ask_of(self, spec: Spec, indexes: tuple[int, ...] = ()) -> Ask:
        return scheduler.ask_of(spec, self._default_cpus, self.node, len(indexes) or None)

    def never(self, spec: Spec) -> dict[str, str]:
        return scheduler.never(self.ask_of(spec), self.node, self.room())

    def outlook(self, spec: Spec) -> str | None:
        """Why a workload submitted now would wait; None if it would start."""
        lack = scheduler.shortage(self.ask_of(spec), self.room(), self.node)
        ahead = len(self._queue.waiting)
        if lack and ahead:
            return f"{lack}; {ahead} ahead in the queue"
        return lack or (f"{ahead} ahead in the queue" if ahead else None)

    def holders(self) -> dict[str, str]:
        """GPU uuid → id of the workload that has it."""
        return {uuid: workload_id for workload_id, (_, uuids) in self._queue.held.items() for uuid in uuids}

    def room(self) -> scheduler.Room:
        room = scheduler.room_of(self.node)
        for taken, uuids in self._queue.held.values():
            room = room.less(taken, uuids)
        return room

    # what the reconciler says

    def enqueue(self, workload: Workload) -> None:
        """It may start as soon as there is room."""
        if workload.id in self._queue.waiting:
            return
        self._queue.forget(workload.id)
        ask = self.ask_of(workload.spec, workload.indexes)
        if ask.cpus_milli:
            self._queue.waiting[workload.id] = ask
        else:  # it takes nothing from those that wait
            self._queue.waiting = {workload.id: ask} | self._queue.waiting
        if workload.reason is Reason.NO_AVAILABLE_RESOURCES and workload.message:
            self._queue.said[workload.id] = workload.message
        else:
            self._queue.unsaid.add(workload.id)
        self._wake.set()

    def remember(self, workload: Workload) -> None:
        """It holds resources, by the record."""
        ask = self.ask_of(workload.spec, workload.indexes)
        if workload.spec.array and workload.gpus:
            ask = ask.on(len(workload.gpus))
        self._queue.held[workload.id] = (ask, tuple(uuid for place in workload.gpus for uuid in place))
        self._queue.ports[workload.id] = workload.master_port or 0

    def give_back(self, workload: Workload) -> None:
        """It could not start where it was placed: first in the queue again, in a moment."""
        self._queue.forget(workload.id)
        self._queue.waiting = {workload.id: self.ask_of(workload.spec, workload.indexes)} | self._queue.waiting
        asyncio.get_running_loop().call_later(RETRY, self._wake.set)

    def release(self, workload_id: str) -> None:
        if self._queue.forget(workload_id):
            self._wake.set()

    # the loop

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
        if self.node.gpus or self._moving:
            await self._look()
        decisions = scheduler.decide(queue.waiting, queue.held, self.node)
        starts = [decision for decision in decisions if decision.waits is None]
        says = {d.workload_id: d.waits for d in decisions if d.waits and queue.said.get(d.workload_id) != d.waits}
        for workload_id in queue.unsaid.difference(d.workload_id for d in decisions):
            says[workload_id] = "others are ahead in the queue"
        if not starts and not says:
            return
        for decision in starts:
            self._hold(decision)
        host = self.node.name if self._moving else None
        placed = await self._db.write(lambda tx: _record(tx, starts, says, self.node.name, queue.ports, host))
        queue.said |= says
        queue.unsaid -= set(says)
        for decision in starts:
            self._bell.ring(decision.workload_id)
            if decision.workload_id in placed:
                self._touch(decision.workload_id)
            else:
                self.release(decision.workload_id)

    def _hold(self, decision: Decision) -> None:
        """Counted from now on, so that a submit during the write sees it."""
        ask = self._queue.waiting.pop(decision.workload_id)
        if len(decision.gpus) != ask.nodes:
            ask = ask.on(len(decision.gpus))
        self._queue.unsaid.discard(decision.workload_id)
        self._queue.held[decision.workload_id] = (ask, tuple(uuid for place in decision.gpus for uuid in place))
        self._queue.ports[decision.workload_id] = free_port(decision.workload_id, self._queue.ports.values())

    async def _look_at_gpus(self) -> None:
        """A GPU that another server gives back tells nobody: look, but only while something here waits for one."""
        while True:
            await asyncio.sleep(HOST_LOOK if self._moving else GPU_LOOK)
            if self._moving:
                await self._look()
            if any(ask.gpus or self._moving for ask in self._queue.waiting.values()):
                self._wake.set()

    @property
    def _moving(self) -> bool:
        """Do nodes come and go?"""
        return self._engine.name == "docker"


def _record(
    tx: Store,
    starts: list[Decision],
    says: dict[str, str],
    node: str,
    ports: Mapping[str, int],
    host: str | None = None,
) -> set[str]:
    """Writes what was decided. A workload stopped meanwhile is left alone. `host`: where there are others."""
    placed = set()
    for decision in starts:
        workload = tx.workloads.get(decision.workload_id)
        if workload and workload.state in WAITING and workload.wants is Wants.RUN:
            workload = tx.workloads.move(workload, State.ASSIGNED, Reason.PLACED, f"on {node}")
            tx.workloads.move(
                workload,
                State.LAUNCHING,
                Reason.PLACED,
                gpus=decision.gpus,
                master_port=ports[workload.id],
                hosts=(host,) * max(len(decision.gpus), 1) if host else (),
            )
            placed.add(workload.id)
    for workload_id, message in says.items():
        workload = tx.workloads.get(workload_id)
        if workload and workload.state in WAITING:
            tx.workloads.move(workload, State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, message)
    return placed
