"""Keep the scheduler's state: nodes, what runs on them and what waits; asked for decisions and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from penstock.domain.nodes import Node
from penstock.domain.scheduling import explain as explaining
from penstock.domain.scheduling.capacity import NodeCapacity, usable
from penstock.domain.scheduling.demand import PlacedJob, QueuedJob
from penstock.domain.scheduling.explain import Explanation, WaitCause
from penstock.domain.scheduling.index import FitIndexes
from penstock.domain.scheduling.limits import Amount, UserUsage
from penstock.domain.scheduling.obstacles import fits_ever
from penstock.domain.scheduling.queue import JobShape, Lane, Queue
from penstock.domain.scheduling.reserve import Reservation
from penstock.domain.scheduling.round import Round, ways, wish
from penstock.domain.users import Group


class Pool:
    """The state of the scheduler: equal to one that was told the same nodes, groups, held and waiting afresh, in any
    order."""

    def __init__(self) -> None:
        self._rooms: dict[str, NodeCapacity] = {}
        self._seen: dict[str, Node] = {}
        """The nodes as last told: the very same again is no news."""
        self._groups: dict[str, Group] = {}
        self._queue = Queue()
        self._held: dict[str, PlacedJob] = {}
        self._on: dict[str, dict[str, PlacedJob]] = {}
        """By node, whether or not that is known."""
        self._usage = UserUsage(self._groups)
        self._total = Amount()
        self._shapes = FitIndexes(self._rooms)
        self._reservations: dict[str, list[Reservation]] = {}
        self._order: Iterator[QueuedJob] = iter(())
        self._places: dict[str, int] | None = None
        self._out: dict[tuple[int, str], set[str]] | None = None
        """Jobs that cannot have a turn, by priority downwards and group."""
        self._generation = 1
        """A number that changes whenever a node could run something that it could not run before, or no longer can."""
        self._settled = False
        """Has nothing happened since a round in which nothing could start?"""
        self._round: tuple[Round, Iterator[PlacedJob | None]] | None = None
        """A round that was broken off before all were looked at."""
        self._expected: datetime | None = None
        """When the first reservation has its room: if that does not come, others may be expected first."""

    def copy(self) -> Pool:
        """Return a copy that can be asked what would happen."""
        other = Pool()
        for group in self._groups.values():
            other.set_group(group)
        for room in self._rooms.values():
            other.see(room.node)
        for held in self._held.values():
            other.hold(held)
        for job in self._queue.jobs.values():
            other.enqueue(job)
        return other

    # what happens

    def see(self, node: Node) -> None:
        """Take note of a node that is there, or is different."""
        if self._seen.get(node.name) is node:
            return
        self._seen[node.name] = node
        before = self._rooms.get(node.name)
        on_it = self._on.get(node.name, {})
        if before and _face(before.node, on_it) == _face(node, on_it):
            return
        self._count(before.node if before else None, node)
        self._rooms[node.name] = NodeCapacity(node, on_it.values())
        if before is None or _nature(before.node) != _nature(node):
            self._generation += 1
        self._changed(node.name, kinds=before is None or _kind(before.node) != _kind(node))

    def lose(self, name: str) -> None:
        """Forget a node that is no longer registered; what runs there is held until it is released."""
        self._seen.pop(name, None)
        if room := self._rooms.pop(name, None):
            self._count(room.node, None)
            self._generation += 1
            self._changed(name, kinds=True)

    def set_group(self, group: Group) -> None:
        if self._groups.get(group.name) != group:
            self._groups[group.name] = group
            self._moved()

    def lose_group(self, name: str) -> None:
        if self._groups.pop(name, None):
            self._moved()

    def enqueue(self, job: QueuedJob) -> None:
        """Let a job wait from now on; one that had places gives them back."""
        self.release(job.id)
        self._queue.add(job)
        self._moved()

    def hold(self, held: PlacedJob) -> None:
        """Count the places that a job has by its record; said again, from another start or with other places."""
        self.release(held.job.id)
        self._held[held.job.id] = held
        self._usage.add(held)
        for name in {place.node for place in held.places}:
            self._on.setdefault(name, {})[held.job.id] = held
            if room := self._rooms.get(name):
                room.take(held)
                self._changed(name)
        self._moved()

    def release(self, workload_id: str) -> bool:
        """Forget a job that is over, or was taken out of the queue. True if that changed anything."""
        if workload_id in self._queue.jobs:
            self._queue.remove(workload_id)
            if not self._queue.jobs:  # nobody is left to keep room for, and nobody need decide that
                self._reservations = {}
            self._moved()
            return True
        held = self._held.pop(workload_id, None)
        if held is None:
            return False
        self._usage.add(held, -1)
        for name in {place.node for place in held.places}:
            del self._on[name][workload_id]
            if room := self._rooms.get(name):
                room.give(workload_id)
                self._changed(name)
        self._moved()
        return True

    def _changed(self, name: str, *, kinds: bool = False) -> None:
        self._shapes.changed(name, kinds=kinds)
        self._moved()

    def _moved(self) -> None:
        self._settled = False
        self._places = self._out = self._round = None

    def _count(self, before: Node | None, after: Node | None) -> None:
        for node, sign in ((before, -1), (after, 1)):
            if node:
                self._total.gpus += sign * len(node.gpus)
                self._total.cpus_milli += sign * node.cpus_milli
                self._total.memory_bytes += sign * node.memory_bytes

    # what is decided

    def decide(self, now: datetime, most: int = 64) -> list[PlacedJob]:
        """Return what starts now, already counted as held. Ask again until nothing more does and all is settled: each
        start moves the turns, and of very many kinds of jobs some are looked at in one go.

        Time alone lets nothing start, so where nothing happened nothing is looked at, unless something should have.
        """
        if self._settled and (self._expected is None or now <= self._expected):
            return []
        self._settled = False
        a_round, turns = self._going_on(now)
        starts: list[PlacedJob] = []
        for held in turns:
            if held is None:
                break
            self.hold(held)
            starts.append(held)
            if len(starts) >= most:
                break
        else:
            self._settled = not starts
        self._round = None if starts or self._settled else (a_round, turns)
        self._reservations = a_round.kept
        self._expected = a_round.expected
        return starts

    def _going_on(self, now: datetime) -> tuple[Round, Iterator[PlacedJob | None]]:
        """Return the round in which some were not looked at yet, if nothing happened since; else another."""
        if self._round:
            self._round[0].go_on(now)
            return self._round
        self._learn()
        a_round = Round(self._queue, self._rooms, self._usage, self._total, self._shapes, now)
        return a_round, a_round.turns()

    def _learn(self) -> None:
        if self._shapes.learn():
            self._queue.sort_by(self._shapes.key)

    # what is asked

    @property
    def settled(self) -> bool:
        """Has everyone that waits been looked at since something happened? Else some of them may start at once."""
        return self._settled

    @property
    def rooms(self) -> Mapping[str, NodeCapacity]:
        return self._rooms

    @property
    def waiting(self) -> Mapping[str, QueuedJob]:
        return self._queue.jobs

    @property
    def held(self) -> Mapping[str, PlacedJob]:
        return self._held

    def ahead(self, workload_id: str) -> int:
        """Return how many wait ahead of it, if those that come now change nothing. What cannot have a turn, for a limit
        or for want of a node, is in nobody's way, and nobody in its."""
        job, out = self._queue.jobs[workload_id], self._kept_out()
        if workload_id in out.get((-job.priority, job.group), ()):
            return 0
        if self._places is None:
            self._places, self._order = {}, self._queue.order(self._usage, self._total, out)
        while workload_id not in self._places:
            self._places[next(self._order).id] = len(self._places)
        return self._places[workload_id]

    def _kept_out(self) -> dict[tuple[int, str], set[str]]:
        if self._out is None:
            self._learn()
            self._out = {
                key: {job.id for line in found.each_line() if self._has_no_turn(line) for job in line.jobs}
                for key, found in self._queue.waiting.items()
            }
        return self._out

    def _has_no_turn(self, line: Lane) -> bool:
        first = line.jobs[0]
        return not self._fits_ever(line.kind) or (self._usage.limits(first.group) and self._beyond(first))

    def _fits_ever(self, kind: JobShape) -> bool:
        """Could any node run this kind? Looked up once for each kind, until the nodes are others."""
        if kind.fits_ever[0] != self._generation:
            kind.fits_ever = (self._generation, fits_ever(kind.ask, (room.node for room in self._rooms.values())))
        return kind.fits_ever[1]

    def _beyond(self, job: QueuedJob) -> bool:
        """Do its limits leave it nothing, for now?"""
        shape = self._shapes.of(job.ask)
        return not ways(job, shape, *wish(job, shape, self._usage), self._usage, self._shapes)

    def holders(self) -> dict[str, str]:
        """GPU uuid → id of the workload that has it."""
        return {uuid: held.job.id for held in self._held.values() for place in held.places for uuid in place.gpus}

    def explain(self, workload_id: str) -> Explanation:
        """Explain why a job waits, with what each node says."""
        job = self._queue.jobs[workload_id]
        return self._scene.explain(job, self.ahead(workload_id))

    def causes(self, workload_ids: Iterable[str]) -> dict[str, WaitCause]:
        """Return why each of these waits: those that ask for the same wait for the same."""
        scene = self._scene
        known: dict[tuple[Any, ...], WaitCause] = {}
        found = {}
        for id_ in workload_ids:
            job = self._queue.jobs[id_]
            alike = (job.ask, job.group, job.user, job.max_duration is None)
            if alike not in known:
                known[alike] = scene.cause(job)
            found[id_] = known[alike].behind(self.ahead(id_))
        return found

    def first(self, most: int) -> list[str]:
        """Return those at the head of the queue, in order."""
        return [job.id for job in islice(self._queue.order(self._usage, self._total, {}), most)]

    def outlook(self, job: QueuedJob, now: datetime) -> WaitCause | None:
        """Return why a job that came now would wait; None if it would start."""
        cause = self._scene.outlook(job, now)
        if cause is None or cause.by_rule:
            return cause
        return cause.behind(self._queue.before(job, self._usage, self._total, self._kept_out()))

    def never(self, job: QueuedJob, coming: Iterable[Node] = ()) -> dict[str, str]:
        """Return why it could not run even if nothing else did, by what it asks for; nothing, if it could. `coming` are
        nodes that are not here yet."""
        return self._scene.never(job, coming)

    @property
    def _scene(self) -> explaining.Explainer:
        self._learn()
        return explaining.Explainer(self._rooms, self._usage, self._total, self._shapes, self._reservations)


def _face(node: Node, held: Mapping[str, PlacedJob]) -> tuple[Any, ...]:
    """Return what of a node a decision depends on: not how full its GPUs' memory is, nor when it was seen."""
    ours = {uuid for each in held.values() for place in each.places for uuid in place.gpus}
    gpus = [(gpu.uuid, gpu.product, gpu.minor, gpu.memory_bytes, usable(gpu) or gpu.uuid in ours) for gpu in node.gpus]
    size = (node.cpus_milli, node.memory_bytes, node.cpu_product, node.labels, gpus)
    return (*size, node.group, node.allows, node.maintenance, node.ready, node.message, node.full)


def _nature(node: Node) -> tuple[Any, ...]:
    """Return what decides whether a node could run something if it were empty and open."""
    gpus = sorted((gpu.uuid, gpu.product) for gpu in node.gpus)
    size = (node.cpus_milli, node.memory_bytes, node.cpu_product, node.labels, gpus)
    return (*size, node.group, node.allows)


def _kind(node: Node) -> tuple[str, set[tuple[str, int]]]:
    return node.group, {(gpu.product, gpu.memory_bytes) for gpu in node.gpus}
