"""Reserve room for jobs at the head of the queue, so that backfilled jobs never delay them.

The first that waits of each shape has a reservation: the nodes where it will have room first beside what is kept for
those before it, and when that is. A later job may use these nodes if it is over by then, or if it fits beside all that
is kept there. Where the ends of what runs are not known, it must fit beside what is free now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import merge
from typing import cast

from penstock.domain.scheduling.capacity import Free, Moment, NodeUsage, count, spend
from penstock.domain.scheduling.demand import Ask, QueuedJob
from penstock.domain.scheduling.index import FitIndex, Step

SURE, UNSURE, NOT_BEFORE = range(3)
"""How sure it is when something ends: the first part of a `Moment`."""
LAST = "~"
"""The id that comes last at the same moment: nodes of which something is kept."""
INSTANT = timedelta(microseconds=1)


def reserve(
    job: QueuedJob, places: int, shape: FitIndex, kept: Kept, rooms: Mapping[str, NodeUsage], now: datetime
) -> Reservation | None:
    """Reserve places for a job where it has room first; None: nowhere."""
    nodes: dict[str, int] = {}
    total = 0
    last: Moment = (SURE, now, "")
    for later, when, name, more in _steps(job, places, shape, kept, rooms, now):
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


def _steps(
    job: QueuedJob, places: int, shape: FitIndex, kept: Kept, rooms: Mapping[str, NodeUsage], now: datetime
) -> Iterator[Step]:
    """Yield the steps of the shape; but nodes of which something is kept are looked at anew."""
    own = (step for step in shape.steps(places) if step[2] not in kept)
    return merge(
        own, *(_beside(job, places, shape, kept[name], rooms[name], now) for name in kept if shape.fits_empty(name))
    )


def _beside(
    job: QueuedJob, places: int, shape: FitIndex, kept: Sequence[Reservation], room: NodeUsage, now: datetime
) -> Iterator[Step]:
    """Yield how much more room a node has at each moment, or less: what begins too late is not over before another's
    turn comes."""
    name, had = room.node.name, 0
    for later, when, free in _moments(job, shape, kept, room, now):
        fits = count(shape.ask, shape.widest.products, free, room.node)
        if fits != had:
            yield (1, when, name, fits - had) if later else (0, room.key(shape.ask.gpus > 0), name, fits)
        had = fits
        if had >= places:
            return


def _moments(
    job: QueuedJob, shape: FitIndex, kept: Sequence[Reservation], room: NodeUsage, now: datetime
) -> Iterator[tuple[int, Moment, Free]]:
    """Yield what it may use of a node: now, whenever that may change, and once what has no end is gone."""
    if room.node.name in shape.widest.counts:
        yield 0, (SURE, now, ""), beside(kept, room, over(job, now))
    for moment in _known(job, kept, room, now):
        yield 1, (SURE, moment, LAST), beside_from(kept, room, moment, over(job, moment))
    endless = [each for each in kept if each.ends is None]
    free = room.free
    for held, free in room.later:
        if held.ends is None:
            yield 1, held.end_key, spent(endless, room, free)
    starts = [each.starts for each in endless]
    if any(held.ends is None for held in room.held.values()) or None in starts:
        yield 1, (UNSURE, now, LAST), free
    else:  # one that has not begun must be over first
        yield 1, (NOT_BEFORE, min((each for each in starts if each), default=now), LAST), free


def _known(job: QueuedJob, kept: Iterable[Reservation], room: NodeUsage, now: datetime) -> list[datetime]:
    """Return when something ends there, or it becomes too late to be over in time."""
    ends = [max(held.ends, now) for held in room.held.values() if held.ends]
    found = {*ends, *(each.ends for each in kept if each.ends)}
    if job.max_duration is not None:
        lasts = timedelta(seconds=job.max_duration)
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


def beside(kept: Iterable[Reservation], room: NodeUsage, end: datetime | None) -> Free:
    """Return what of this node a job may use from now until `end` without delaying one of these."""
    those = [each for each in kept if each.begins_before(end)]
    free = spent((each for each in those if each.starts is None), room, room.free)
    return _common(free, those, room, {each.starts for each in those if each.starts})


def beside_from(kept: Iterable[Reservation], room: NodeUsage, begins: datetime, end: datetime | None) -> Free:
    """Return the same for a job that begins later."""
    those = [each for each in kept if each.begins_before(end)]
    starts = {each.starts for each in those if each.starts and each.starts > begins}
    return _common(_at(those, room, begins), those, room, starts)


def spent(kept: Iterable[Reservation], room: NodeUsage, free: Free) -> Free:
    for each in kept:
        free = spend(each.ask, each.products, each.nodes[room.node.name], free, room.node)
    return free


def _common(free: Free, kept: Sequence[Reservation], room: NodeUsage, moments: Iterable[datetime]) -> Free:
    """Return what is free throughout: there is less when something starts, and only then."""
    for moment in moments:
        free = free.common(_at(kept, room, moment))
    return free


def _at(kept: Iterable[Reservation], room: NodeUsage, moment: datetime) -> Free:
    return spent((each for each in kept if each.has_its_room(moment)), room, room.free_at(moment))
