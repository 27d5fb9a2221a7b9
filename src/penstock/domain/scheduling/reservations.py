"""Room kept for those that wait at the head of the queue, so that nothing behind them delays them.

The first that waits of each shape has a reservation: the nodes where it will have room first beside what is kept for
those before it, and when that is. A later job may use these nodes if it is over by then, or if it fits beside all that
is kept there. Where the ends of what runs are not known, it must fit beside what is free now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.domain.scheduling.asks import Ask, Job
from penstock.domain.scheduling.fitting import spend
from penstock.domain.scheduling.rooms import Free, Room

RESERVATIONS = 8
"""Further shapes keep their order, but no room."""


@dataclass(frozen=True)
class Reservation:
    job: Job
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
"""By node, in the order of their turns."""


def over(job: Job, begins: datetime) -> datetime | None:
    """When a job that begins then has ended; None is not known."""
    return None if job.max_duration is None else begins + timedelta(seconds=job.max_duration)


def beside(kept: Iterable[Reservation], room: Room, end: datetime | None) -> Free:
    """What of this node a job may use from now until `end` without delaying one of these."""
    those = [each for each in kept if each.begins_before(end)]
    free = spent((each for each in those if each.starts is None), room, room.free)
    return _common(free, those, room, {each.starts for each in those if each.starts})


def beside_from(kept: Iterable[Reservation], room: Room, begins: datetime, end: datetime | None) -> Free:
    """The same of a job that begins later."""
    those = [each for each in kept if each.begins_before(end)]
    starts = {each.starts for each in those if each.starts and each.starts > begins}
    return _common(_at(those, room, begins), those, room, starts)


def spent(kept: Iterable[Reservation], room: Room, free: Free) -> Free:
    for each in kept:
        free = spend(each.ask, each.products, each.nodes[room.node.name], free, room.node)
    return free


def _common(free: Free, kept: Sequence[Reservation], room: Room, moments: Iterable[datetime]) -> Free:
    """There is less when something starts, and only then."""
    for moment in moments:
        free = free.common(_at(kept, room, moment))
    return free


def _at(kept: Iterable[Reservation], room: Room, moment: datetime) -> Free:
    return spent((each for each in kept if each.has_its_room(moment)), room, room.free_at(moment))
