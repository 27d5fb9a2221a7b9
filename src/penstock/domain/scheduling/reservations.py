"""Room kept for those that wait at the head of the queue, so that nothing behind them delays them.

The first that waits of each shape has a reservation: the nodes where it will have room first, and when that is, by the
ends of what runs there. A later job may use these nodes if it is over by then, or if it fits beside. Where the ends
are not known, it must fit beside what is free now.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.domain.scheduling.asks import Ask, Job
from penstock.domain.scheduling.fitting import spend
from penstock.domain.scheduling.rooms import Free, Room
from penstock.domain.scheduling.shapes import Shape

RESERVATIONS = 8
"""Further shapes keep their order, but no room."""


@dataclass(frozen=True)
class Reservation:
    job: Job
    ask: Ask
    """Of one place."""
    products: tuple[str, ...]
    starts: datetime | None
    """At the latest; None: nobody knows when what is in its way ends."""
    nodes: dict[str, int]
    """How many of its places are there."""

    def over_by_then(self, job: Job, now: datetime) -> bool:
        """Does its max_duration show that it does not delay this one?"""
        if self.starts is None or job.max_duration is None:
            return False
        return now + timedelta(seconds=job.max_duration) <= self.starts

    def beside(self, over_by_then: bool, room: Room) -> Free:
        """What of this node a later job may use."""
        if over_by_then:
            return room.free
        then = room.free_at(self.starts) if self.starts else room.free
        places = self.nodes[room.node.name]
        return room.free.common(spend(self.ask, self.products, places, then, room.node))


def reserve(job: Job, places: int, shape: Shape, taken: Collection[str], now: datetime) -> Reservation | None:
    """Where and when it will have its places first, on nodes that no one before it has reserved; None: nowhere."""
    nodes: dict[str, int] = {}
    starts: datetime | None = now
    missing = places
    for later, when, name, more in shape.steps(places):
        if name in taken:
            continue
        if later:
            starts = _moment(when, now)
        had = nodes.get(name, 0)
        used = min(more, places - had if job.ask.together else missing)
        nodes[name] = had + used
        missing = places - nodes[name] if job.ask.together else missing - used
        if not missing:
            found = {name: places} if job.ask.together else nodes
            return Reservation(job, shape.ask, shape.widest.products, starts, found)
    return None


def _moment(when: tuple[object, ...], now: datetime) -> datetime | None:
    """What should be over already is expected to end any moment."""
    unknown, end = when[0], when[1]
    return max(end, now) if not unknown and isinstance(end, datetime) else None
