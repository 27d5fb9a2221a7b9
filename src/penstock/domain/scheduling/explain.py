"""Explain why a job does not start now: in one sentence, and node by node.

Nodes of groups it may not use are never mentioned: they read as if they were not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from penstock.domain.nodes import Node
from penstock.domain.quantities import count_cpus, show_bytes, show_cpus
from penstock.domain.scheduling.capacity import NodeCapacity
from penstock.domain.scheduling.demand import Ask, QueuedJob
from penstock.domain.scheduling.fit import count, needed_cpus, needed_memory, share
from penstock.domain.scheduling.index import FitIndex, FitIndexes
from penstock.domain.scheduling.limits import Amount, UserUsage
from penstock.domain.scheduling.obstacles import (
    NO_NODE,
    Obstacle,
    closed,
    foreign,
    gpu_words,
    never,
    never_shared,
    never_there,
    obstacles,
    short,
)
from penstock.domain.scheduling.queue import Came, came
from penstock.domain.scheduling.reserve import Kept, Reservation, beside, over
from penstock.domain.scheduling.round import ways, wish
from penstock.domain.states import Reason, State

KEPT = "room is kept for those ahead in the queue"
NAMED = 3
"""How many nodes are named in one sentence."""


@dataclass(frozen=True)
class NodeAnswer:
    """What stands in the way on one node; nothing, if it has room."""

    node: str
    obstacles: tuple[Obstacle, ...] = ()

    def __str__(self) -> str:
        said = "; ".join(each.message for each in self.obstacles)
        return f"node {self.node}: {said or 'has room'}"


@dataclass(frozen=True)
class Explanation:
    sentence: str
    """Why it waits."""
    ahead: int | None
    """How many are before it in the queue; None: it is turned down."""
    answers: tuple[NodeAnswer, ...] = ()


class Explainer:
    """Explain jobs from the state of the scheduler as it is now."""

    def __init__(
        self, rooms: Mapping[str, NodeCapacity], usage: UserUsage, total: Amount, shapes: FitIndexes, kept: Kept
    ) -> None:
        self._rooms = rooms
        self._usage = usage
        self._total = total
        self._shapes = shapes
        self._kept = kept

    def seen_by(self, ask: Ask) -> list[NodeCapacity]:
        found = (room for room in self._rooms.values() if ask.may_use(room.node))
        return sorted(found, key=lambda room: room.node.name)

    def _looked_at(self, ask: Ask) -> FitIndex:
        shape = self._shapes.of(ask)
        shape.look()
        return shape

    def explain(self, job: QueuedJob, ahead: int) -> Explanation:
        shape = self._looked_at(job.ask)
        most, _ = wish(job, shape, self._usage)
        answers = tuple(self._answer(job, shape, most, room) for room in self.seen_by(job.ask))
        cause = self.cause(job)
        return Explanation(cause.message, None if cause.by_rule else ahead, answers)

    def cause(self, job: QueuedJob) -> WaitCause:
        """Return why a job waits, without its place in the queue."""
        shape = self._looked_at(job.ask)
        _, least = wish(job, shape, self._usage)
        return (
            self._nowhere_ever(job.ask, shape, least)
            or self._limit(job, least)
            or self._lack(job, shape, self._left(job, shape), least)
            or _kept(job)
        )

    def outlook(self, job: QueuedJob, now: datetime) -> WaitCause | None:
        """Return why a job that is not in the queue would wait; None if it would start."""
        shape = self._looked_at(job.ask)
        _, least = wish(job, shape, self._usage)
        left = self._left(job, shape)
        cause = (
            self._nowhere_ever(job.ask, shape, least) or self._limit(job, least) or self._lack(job, shape, left, least)
        )
        if cause is None and left and self._beside_all(job, left, now) < least:
            cause = _kept(job)
        return cause

    def never(self, job: QueuedJob, coming: Iterable[Node] = ()) -> dict[str, str]:
        """Return why it could never run, by what it asks for: first what no node has, then what a limit forbids."""
        places = 1 if job.ask.array else job.ask.places
        rooms, cpus = self.seen_by(job.ask), self._usage.shares_ever(job)
        rooms += [NodeCapacity(node) for node in coming if job.ask.may_use(node)]
        found = self._usage.never(job, places) | never(job.ask, rooms)
        if not found and cpus is not None and (said := never_shared(job.ask, places, rooms, cpus)):
            found["cpus"] = f"{said}; {self._usage.tightest(job, ever=True)} may have {show_cpus(cpus)} at once"
        return found

    def _beside_all(self, job: QueuedJob, shape: FitIndex, now: datetime) -> int:
        """Return how many places there are beside what is kept for others."""
        changed: dict[str, int] = {}
        for name, kept in self._kept.items():
            if name in shape.widest.counts:
                free = beside(self._before(job, kept), self._rooms[name], over(job, now))
                changed[name] = count(job.ask, shape.widest.products, free, self._rooms[name].node)
        if job.ask.together:
            return max((shape.widest.counts | changed).values(), default=0)
        return shape.widest.total + sum(fits - shape.widest.counts[name] for name, fits in changed.items())

    def _before(self, job: QueuedJob, kept: Iterable[Reservation]) -> list[Reservation]:
        """Return the reservations of jobs that have their turn before this one."""
        mine = self._turn(job)
        return [each for each in kept if self._turn(each.job) < mine]

    def _turn(self, job: QueuedJob) -> tuple[int, float, Came]:
        return -job.priority, self._usage.of(job.group).share_of(self._total), came(job)

    def _limit(self, job: QueuedJob, least: int) -> WaitCause | None:
        said = self._usage.why(job, least) if self._usage.places_now(job) < least else None
        return beyond_limit(said) if said else None

    def _left(self, job: QueuedJob, shape: FitIndex) -> FitIndex | None:
        """Return the nodes that would do and that its limits leave it."""
        most, least = wish(job, shape, self._usage)
        found = ways(job, shape, most, least, self._usage, self._shapes)
        if not found:
            return None
        found[0][0].look()
        return found[0][0]

    # one sentence for all nodes

    def _nowhere_ever(self, ask: Ask, shape: FitIndex, least: int) -> WaitCause | None:
        """Return the cause if no node could run it, whatever ends and opens."""
        if shape.would_do(ask, least):
            return None
        reasons = never(ask, self.seen_by(ask))
        return no_node_fits(reasons.values()) if reasons else None

    def _lack(self, job: QueuedJob, shape: FitIndex, left: FitIndex | None, least: int) -> WaitCause | None:
        ask = job.ask
        if not shape.would_do(ask, least):
            return no_room(self._nowhere(ask))
        if left is None or not left.would_do(ask, least):
            who = self._usage.tightest(job)
            return beyond_limit(f"its share of a node's CPUs is more than the limits of {who} leave")
        return None if left.room_for(ask) >= least else no_room(self._shortage(ask, left, least))

    def _shortage(self, ask: Ask, left: FitIndex, least: int) -> str:
        rooms = [room for room in self.seen_by(ask) if left.fits_empty(room.node.name)]
        if len(rooms) == 1:
            return _short_there(ask, least, rooms[0]) or _some(ask, left, least)
        return _short_everywhere(ask, rooms) if least == 1 else _some(ask, left, least)

    def _nowhere(self, ask: Ask) -> str:
        """Say which nodes would do, were they open."""
        rooms = self.seen_by(ask)
        if not rooms:
            return NO_NODE
        shut = [(room.node.name, closed(ask, room.node)) for room in rooms if not never_there(ask, room.node)]
        said = [f"{name} {found[0].message}" for name, found in shut if found]
        more = f"; and {len(said) - NAMED} more" if len(said) > NAMED else ""
        return "; ".join(said[:NAMED]) + more if said else "too few nodes have what it asks for"

    # each node by itself

    def _answer(self, job: QueuedJob, shape: FitIndex, most: int, room: NodeCapacity) -> NodeAnswer:
        found = obstacles(job.ask, room) + self._beyond(job, room)
        fits = shape.widest.counts.get(room.node.name, 0)
        kept = self._before(job, self._kept.get(room.node.name, ()))
        if not found and kept:
            free = beside(kept, room, None)
            if count(job.ask, shape.widest.products, free, room.node) < min(most, fits):
                found.append(Obstacle("kept", "has room, but it is kept for one that is ahead in the queue"))
        if not found and fits < most:
            found.append(Obstacle("places", f"has room for {fits} of {most} places"))
        return NodeAnswer(room.node.name, tuple(found))

    def _beyond(self, job: QueuedJob, room: NodeCapacity) -> list[Obstacle]:
        """Return the obstacle of limits that leave less than its share of this node."""
        ever = self._usage.shares_ever(job)
        if ever is None or never_there(job.ask, room.node):
            return []
        need = share(room.node.cpus_milli, job.ask, room.node) * (job.ask.places if job.ask.together else 1)
        said = self._usage.why_share(job, need)
        return [Obstacle("limits", f"{said}, its share of the node", passes=need <= ever)] if said else []


def _kept(job: QueuedJob) -> WaitCause:
    if job.max_duration is None:
        return no_room(f"{KEPT}; with a max_duration it might pass them")
    return no_room(f"{KEPT}; its max_duration does not show that it would not delay them")


def _some(ask: Ask, shape: FitIndex, least: int) -> str:
    if ask.together:
        return f"its {least} nodes run on one host, and at most {shape.room_for(ask)} have room on one now"
    return f"{shape.widest.total} of {least} places have room, and it starts with all or none"


def _short_there(ask: Ask, places: int, room: NodeCapacity) -> str | None:
    """Say what the only node that would do lacks for all places together."""
    node, free = room.node, room.free
    there = [gpu for gpu in node.gpus if ask.takes(gpu)]
    gpus, has = places * ask.gpus, sum(free.gpus[product] for product in {gpu.product for gpu in there})
    if gpus > has:
        busy = foreign(there, room)
        words = f"needs {gpus} {gpu_words(ask.products, gpus)}; {has} of {len(there)} are free"
        return words + (f", {busy}" if busy else "")
    cpus, memory = places * needed_cpus(ask, node), places * needed_memory(ask, node)
    if cpus > free.cpus_milli:
        left, all_ = show_cpus(max(free.cpus_milli, 0)), show_cpus(node.cpus_milli)
        return f"needs {count_cpus(cpus)}; {left} of {all_} are free"
    if memory > free.memory_bytes:
        left, all_ = show_bytes(max(free.memory_bytes, 0)), show_bytes(node.memory_bytes)
        return f"needs {show_bytes(memory)} of memory; {left} of {all_} are free"
    return None


def _short_everywhere(ask: Ask, rooms: list[NodeCapacity]) -> str:
    """Say what all of several nodes lack, and where there is most of it."""
    lacks = {room.node.name: short(ask, room) for room in rooms}
    common = [key for key in ("accelerators", "cpus", "memory") if all(_has(key, found) for found in lacks.values())]
    if common:
        most = max(rooms, key=lambda room: _left(common[0], ask, room))
        found = next(each for each in lacks[most.node.name] if each.key == common[0])
        return f"no node has enough free: at most, {most.node.name} {found.message}"
    nearest = min(rooms, key=lambda room: len(lacks[room.node.name]))
    said = "; ".join(each.message for each in lacks[nearest.node.name])
    return f"no node has all it needs free: {nearest.node.name} {said}"


def _has(key: str, found: list[Obstacle]) -> bool:
    return any(each.key == key for each in found)


def _left(key: str, ask: Ask, room: NodeCapacity) -> int:
    if key == "accelerators":
        return sum(left for product, left in room.free.gpus.items() if ask.takes_product(product))
    return room.free.cpus_milli if key == "cpus" else room.free.memory_bytes


RULES = frozenset({Reason.QUOTA, Reason.NOT_ALLOWED, Reason.NO_NODE_FITS})
SCHEDULING = RULES | {Reason.NO_AVAILABLE_RESOURCES, Reason.VOLUME_NOT_READY}
"""The reasons that a scheduler gives for those that it looked at."""


@dataclass(frozen=True)
class WaitCause:
    """Why a job waits."""

    reason: Reason
    message: str
    ahead: int | None = None
    """How many are before it in the queue; None: nobody is, or it is turned down."""

    @property
    def state(self) -> State:
        """Return the state: turned down until something else than room changes, or waiting for room."""
        return State.DENIED if self.by_rule else State.QUEUED

    @property
    def by_rule(self) -> bool:
        return self.reason in RULES

    def behind(self, ahead: int) -> WaitCause:
        """Return it with its place in the queue, unless it is turned down."""
        return self if self.by_rule or not ahead else replace(self, ahead=ahead)


def no_room(message: str) -> WaitCause:
    return WaitCause(Reason.NO_AVAILABLE_RESOURCES, message)


def no_node_fits(reasons: Iterable[str]) -> WaitCause:
    said = f"can never start on the nodes there are now: {'; '.join(reasons)}; it starts once a node can run it"
    return WaitCause(Reason.NO_NODE_FITS, said)


def beyond_limit(message: str) -> WaitCause:
    return WaitCause(Reason.QUOTA, message)
