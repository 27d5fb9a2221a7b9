"""Reserve room for jobs at the head of the queue, so that backfilled jobs never delay them.

The first that waits of each shape has a reservation: the nodes where it will have room first beside what is kept for
those before it, and when that is. A later job may use these nodes if it is over by then, or if it fits beside all that
is kept there. Where the ends of what runs are not known, it must fit beside what is free now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import cast

from penstock.domain.scheduling.capacity import Free, Moment, NodeCapacity
from penstock.domain.scheduling.demand import Ask, PlacedJob, QueuedJob
from penstock.domain.scheduling.fit import count, first_end, spend
from penstock.domain.scheduling.index import FitIndex, Step

SURE, UNSURE, NOT_BEFORE = range(3)
"""How sure it is when something ends: the first part of a `Moment`."""
LAST = "~"
"""The id that comes last at the same moment: nodes of which something is kept."""
INSTANT = timedelta(microseconds=1)


def reserve(
    job: QueuedJob, places: int, shape: FitIndex, kept: Kept, rooms: Mapping[str, NodeCapacity], now: datetime
) -> Reservation | None:
    """Reserve places for a job where it has room first; None: nowhere."""
    nodes: dict[str, int] = {}
    total = 0
    last: Moment = (SURE, now, "")
    for later, when, name, more in _Steps(job, places, shape, kept, rooms, now).steps():
        if later:
            last = cast(Moment, when)
        nodes[name] = nodes.get(name, 0) + more
        total += more
        if job.ask.together and nodes[name] >= places:
            return _reservation(job, shape, {name: places}, last, now)
        if not job.ask.together and total >= places:
            nodes[name] -= total - places
            return _reservation(job, shape, {each: number for each, number in nodes.items() if number}, last, now)
    return None


def _reservation(job: QueuedJob, shape: FitIndex, nodes: dict[str, int], last: Moment, now: datetime) -> Reservation:
    """Make the reservation. What should be over already is expected to end any moment."""
    how, when, _ = last
    starts = None if how == UNSURE else max(when, now)
    return Reservation(
        job, shape.ask, shape.widest.products, starts, over(job, starts) if starts and how == SURE else None, nodes
    )


class _Steps:
    def __init__(
        self, job: QueuedJob, places: int, shape: FitIndex, kept: Kept, rooms: Mapping[str, NodeCapacity], now: datetime
    ) -> None:
        self._job = job
        self._places = places
        self._shape = shape
        self._kept = kept
        self._rooms = rooms
        self._now = now

    def steps(self) -> Iterator[Step]:
        """Yield the steps of the shape; but nodes of which something is kept are looked at anew, when they could be
        next."""
        self._shape.look()
        shared = [guess for name in self._kept for guess in self._guess(self._rooms[name])]
        heapify(shared)
        for step in self._shape.steps(self._places):
            if step[2] not in self._kept:
                while shared and shared[0] < step:
                    yield from self._next(shared)
                yield step
        while shared:
            yield from self._next(shared)

    def _guess(self, room: NodeCapacity) -> list[Step]:
        name = room.node.name
        if name in self._shape.widest.counts:
            return [(0, room.key(self._shape.ask.gpus > 0), name, 0)]
        return [(1, room.soonest, name, 0)] if room.soonest and self._shape.fits_empty(name) else []

    def _next(self, shared: list[Step]) -> Iterator[Step]:
        step = heappop(shared)
        if step[3]:
            yield step
            return
        for each in self._beside(self._rooms[step[2]]):
            heappush(shared, each)

    def _beside(self, room: NodeCapacity) -> Iterator[Step]:
        """Yield how much more room a node has at each moment, or less: what begins too late is not over before
        another's turn comes."""
        name, kept, had = room.node.name, self._kept[room.node.name], 0
        for later, when, free in self._moments(room, kept):
            fits = count(self._shape.ask, self._shape.widest.products, free, room.node)
            if fits != had:
                yield (1, when, name, fits - had) if later else (0, room.key(self._shape.ask.gpus > 0), name, fits)
            had = fits
            if had >= self._places:
                return

    def _moments(self, room: NodeCapacity, kept: Iterable[Reservation]) -> Iterator[tuple[int, Moment, Free]]:
        """Yield what it may use of a node: now, whenever that may change, and once what has no end is gone. Before
        there is room at all, there is none beside."""
        job, now, later = self._job, self._now, room.later
        if room.node.name in self._shape.widest.counts:
            yield 0, (SURE, now, ""), beside(kept, room, over(job, now))
        else:
            later = later[first_end(self._shape.ask, self._shape.widest.products, 1, room) :]
        for moment in self._known([held for held, _ in later], kept):
            yield 1, (SURE, moment, LAST), beside_from(kept, room, moment, over(job, moment))
        endless = [each for each in kept if each.ends is None]
        free = room.free
        for held, free in later:
            if held.ends is None:
                yield 1, held.end_key, spent(endless, room, free)
        starts = [each.starts for each in endless]
        if any(held.ends is None for held in room.held.values()) or None in starts:
            yield 1, (UNSURE, now, LAST), free
        else:  # one that has not begun must be over first
            yield 1, (NOT_BEFORE, min((each for each in starts if each), default=now), LAST), free

    def _known(self, held: Sequence[PlacedJob], kept: Iterable[Reservation]) -> list[datetime]:
        """Return when something ends from the first of these on, or it becomes too late to be over in time."""
        now = self._now
        ends = [max(each.ends, now) for each in held if each.ends]
        found = {*ends, *(each.ends for each in kept if each.ends)}
        if self._job.max_duration is not None:
            lasts = timedelta(seconds=self._job.max_duration)
            found |= {each.starts - lasts + INSTANT for each in kept if each.starts and each.starts - lasts >= now}
        return sorted(found)


RESERVATIONS = 8
"""How many shapes have room reserved; further ones keep their order, but no room."""


@dataclass(frozen=True)
class Reservation:
    job: QueuedJob
    ask: Ask
    """Of one place."""
    products: tuple[str, ...]
    starts: datetime | None
    """At the latest; None: nobody knows when what is in its way ends, and that may be any moment."""
    ends: datetime | None
    """None is not known."""
    nodes: dict[str, int]
    """How many of its places are there."""

    def begins_before(self, end: datetime | None) -> bool:
        """Might what ends then, or nobody knows when, delay it?"""
        return self.starts is None or end is None or self.starts < end

    def has_its_room(self, moment: datetime) -> bool:
        if self.starts is None:
            return True
        return self.starts <= moment and (self.ends is None or moment < self.ends)


Kept = Mapping[str, Sequence[Reservation]]
"""Reservations by node, in the order of their turns."""


def over(job: QueuedJob, begins: datetime) -> datetime | None:
    """Return when a job that begins then has ended; None is not known."""
    return None if job.max_duration is None else begins + timedelta(seconds=job.max_duration)


def beside(kept: Iterable[Reservation], room: NodeCapacity, end: datetime | None) -> Free:
    """Return what of this node a job may use from now until `end` without delaying one of these."""
    those = [each for each in kept if each.begins_before(end)]
    free = spent((each for each in those if each.starts is None), room, room.free)
    return _common(free, those, room, {each.starts for each in those if each.starts})


def beside_from(kept: Iterable[Reservation], room: NodeCapacity, begins: datetime, end: datetime | None) -> Free:
    """Return the same for a job that begins later."""
    those = [each for each in kept if each.begins_before(end)]
    starts = {each.starts for each in those if each.starts and each.starts > begins}
    return _common(_at(those, room, begins), those, room, starts)


def spent(kept: Iterable[Reservation], room: NodeCapacity, free: Free) -> Free:
    for each in kept:
        free = spend(each.ask, each.products, each.nodes[room.node.name], free, room.node)
    return free


def _common(free: Free, kept: Sequence[Reservation], room: NodeCapacity, moments: Iterable[datetime]) -> Free:
    """Return what is free throughout: there is less when something starts, and only then."""
    for moment in moments:
        free = free.common(_at(kept, room, moment))
    return free


def _at(kept: Iterable[Reservation], room: NodeCapacity, moment: datetime) -> Free:
    return spent((each for each in kept if each.has_its_room(moment)), room, room.free_at(moment))
