"""Run one round over the queue: each job gets nodes, or room is reserved for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from heapq import heapify, heappop, heapreplace

from penstock.domain.scheduling.capacity import NodeCapacity
from penstock.domain.scheduling.choose import Chooser
from penstock.domain.scheduling.demand import FOR_EVER, Ask, PlacedJob, QueuedJob, lasts
from penstock.domain.scheduling.fit import half
from penstock.domain.scheduling.index import FitIndex, FitIndexes
from penstock.domain.scheduling.limits import Amount, UserUsage
from penstock.domain.scheduling.queue import Came, JobShape, Lane, Queue, WaitingJobs, came
from penstock.domain.scheduling.reserve import RESERVATIONS, Reservation, reserve

KINDS = 256
"""How many different asks are looked at in one go."""
ENDLESS = FOR_EVER + 1


def wish(job: QueuedJob, shape: FitIndex, usage: UserUsage) -> tuple[int, int]:
    """Return how many places a job would like, and how many it needs to start."""
    if not job.ask.array:
        return job.ask.places, job.ask.places
    most = max(min(job.ask.places, shape.capacity, usage.places_ever(job)), 1)
    if (cpus := usage.shares_ever(job)) is not None:
        most = max((places for _, places in shape.bounds(cpus, most, 1)), default=1)
    return most, half(most)


def ways(
    job: QueuedJob, shape: FitIndex, most: int, least: int, usage: UserUsage, shapes: FitIndexes
) -> list[tuple[FitIndex, int]]:
    """Return the nodes that its limits leave it, and how many places there, the best first; nothing: it is beyond a
    limit."""
    most = min(most, usage.places_now(job))
    if most < least:
        return []
    cpus = usage.shares_now(job)
    if cpus is None:
        return [(shape, most)]
    return [(shapes.within(shape, each), places) for each, places in shape.bounds(cpus, most, least)]


class Round:
    def __init__(
        self,
        queue: Queue,
        rooms: Mapping[str, NodeCapacity],
        usage: UserUsage,
        total: Amount,
        shapes: FitIndexes,
        now: datetime,
    ) -> None:
        self.kept: dict[str, list[Reservation]] = {}
        """The reservations by node, in the order of their turns."""
        self._queue = queue
        self._rooms = rooms
        self._usage = usage
        self._total = total
        self._shapes = shapes
        self._now = now
        self._choosing = Chooser(rooms, self.kept, now)
        self._shares: dict[str, float] = {}
        self._reserved: set[Ask] = set()
        self._too_long: dict[JobShape, int] = {}
        """For each kind that had its turn: nothing that lasts so long, or longer, can start any more."""
        self._out: set[Lane] = set()
        """Lanes that are beyond a limit of their user or group."""

    def go_on(self, now: datetime) -> None:
        self._now = self._choosing.now = now

    def turns(self) -> Iterator[PlacedJob | None]:
        """Yield the jobs that start, one by one; the caller takes each out of the queue and into its rooms. None: so
        many kinds were looked at that something else should have its turn before the others are."""
        heap = [(key[0], self._share(key[1]), *came(each.jobs[0]), key) for key, each in self._queue.waiting.items()]
        heapify(heap)
        lines: dict[tuple[int, str], list[tuple[Came, Lane]]] = {}
        while heap:
            turn, key = heap[0][:4], heap[0][4]
            if key not in lines:
                lines[key] = self._lines(self._queue.waiting[key])
            mine = lines[key]
            if not mine:
                heappop(heap)
            elif turn != (fresh := (key[0], self._share(key[1]), *mine[0][0])):
                heapreplace(heap, (*fresh, key))  # its group has more by now, or its first cannot start
            else:
                line = mine[0][1]
                if self._enough(line):
                    yield None
                if self._might_start(line) and (held := self._attempt(line, line.jobs[0])):
                    yield held
                    self._shares.pop(key[1], None)
                    self._choosing.changed(place.node for place in held.places)
                following = self._following(key, line.kind)
                if following:
                    heapreplace(mine, following)
                else:
                    heappop(mine)

    @property
    def expected(self) -> datetime | None:
        """Return when the first reservation has its room, if that is known."""
        return min((each.starts for kept in self.kept.values() for each in kept if each.starts), default=None)

    def _lines(self, waiting: WaitingJobs) -> list[tuple[Came, Lane]]:
        """Return the first of each kind of which anything might still start."""
        found = [first for kind, lines in waiting.lines.items() if (first := self._first(kind, lines.values()))]
        heapify(found)
        return found

    def _following(self, key: tuple[int, str], kind: JobShape) -> tuple[Came, Lane] | None:
        waiting = self._queue.waiting.get(key)
        return self._first(kind, waiting.lines[kind].values()) if waiting and kind in waiting.lines else None

    def _first(self, kind: JobShape, lines: Iterable[Lane]) -> tuple[Came, Lane] | None:
        too_long = self._too_long.get(kind, ENDLESS)
        if not too_long:
            return None
        first = None
        for line in lines:
            if (first is None or line.came < first.came) and line.lasts < too_long and line not in self._out:
                first = line
        return (first.came, first) if first else None

    def _enough(self, line: Lane) -> bool:
        looked_at = len(self._too_long)
        return line.kind not in self._too_long and looked_at > 0 and looked_at % KINDS == 0

    def _might_start(self, line: Lane) -> bool:
        return line.lasts < self._too_long.get(line.kind, ENDLESS) and line not in self._out

    def _share(self, group: str) -> float:
        share = self._shares.get(group)
        if share is None:
            share = self._shares[group] = self._usage.of(group).share_of(self._total)
        return share

    def _attempt(self, line: Lane, job: QueuedJob) -> PlacedJob | None:
        """Place a job; None: it waits. Beyond a limit of its user or group it is in nobody's way; else room is kept for
        it."""
        kind = line.kind
        self._too_long.setdefault(kind, ENDLESS)
        shape = self._shapes.of(kind.ask)
        most, least = wish(job, shape, self._usage)
        found = ways(job, shape, most, least, self._usage, self._shapes)
        for nodes, number in found:
            if places := self._choosing.find(job, nodes, number, least):
                return PlacedJob(job, places, self._now)
        if not found:
            self._out.add(line)
            return None
        best = found[0][0]
        self._keep(job, best, least)
        if kind.ask.array or best is not shape:  # where, and how many places are enough, depends on its limits
            self._out.add(line)
        else:
            self._too_long[kind] = self._shortest_too_long(job, shape, kind) if shape.widest.total >= least else 0
        return None

    def _shortest_too_long(self, like: QueuedJob, shape: FitIndex, kind: JobShape) -> int:
        """Return the shortest duration that cannot pass: there is room, but it is kept for others."""
        found, places = like.lasts, kind.ask.places
        for duration in sorted(kind.durations, key=lasts, reverse=True):
            if lasts(duration) < found:
                if self._choosing.find(replace(like, max_duration=duration), shape, places, places):
                    break
                found = lasts(duration)
        return found

    def _keep(self, job: QueuedJob, shape: FitIndex, places: int) -> None:
        if shape.ask in self._reserved or len(self._reserved) >= RESERVATIONS:
            return
        if found := reserve(job, places, shape, self.kept, self._rooms, self._now):
            self._reserved.add(shape.ask)
            self._choosing.changed(found.nodes)
            for name in found.nodes:
                self.kept.setdefault(name, []).append(found)
