"""Tell when a host's Docker was restarted, from its own events and its containers.

Docker makes its own network anew whenever it starts, and does not say otherwise since when it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.engines.docker.api import Api
from penstock.engines.docker.seen import Seen, read_time

OWN_NETWORK = "bridge"
BY_DOCKER = (130, 137, 143, 255)
"""How what ended with Docker has ended; 255 is what it writes where it found nothing of one that ran."""
ENDING = timedelta(seconds=20)
"""Docker ends its containers up to a quarter of a minute before it ends itself."""
LONGEST_ENDING = timedelta(minutes=1)
"""On a busy machine, where it ends before they do and the rest is ended when it begins again."""
UNDER_WAY = timedelta(seconds=5)
"""So long it may still make what it was asked for before."""
BEGINNING = timedelta(seconds=10)
"""And it may be so far into its start when it writes down what is not there any more."""


@dataclass(frozen=True)
class Outage:
    """From the moment Docker began to end what it had until it was there again."""

    since: datetime
    until: datetime

    def took(self, seen: Seen) -> bool:
        if seen.started_at is None or seen.ended_at is None:
            return False
        return seen.started_at < self.until and self.since <= seen.ended_at <= self.until + BEGINNING


@dataclass(frozen=True)
class Life:
    """Of a Docker engine, from its start to its end."""

    id: str
    """No other has it: a copied machine has the same `ID` as its original, but makes a network of its own."""
    began: datetime | None
    """By the host's clock."""


async def life_of(api: Api) -> Life | None:
    """None: it has no such network, and nobody can tell."""
    found = await api.network(OWN_NETWORK)
    return Life(str(found.get("Id")), read_time(found.get("Created"))) if found else None


def outage_before(began: datetime, containers: Iterable[Seen]) -> Outage | None:
    """In which Docker ended what it had; None: nothing seems to have ended with it."""
    made: list[datetime] = []
    alive: list[datetime] = []
    ends: list[datetime] = []
    for seen in containers:
        made += [at for at in (seen.created_at, seen.started_at) if at]
        if seen.started_at and seen.ended_at and seen.started_at < began:
            told = seen.note.ended == "stop" or seen.exit_code in BY_DOCKER
            (ends if told else alive).append(seen.ended_at)
    last = max((at for at in ends if at <= began + BEGINNING), default=None)
    if last is None or any(last + ENDING < at < began for at in (*made, *alive)):
        return None
    working = max((at - UNDER_WAY for at in made if at < min(last, began)), default=last)
    return Outage(min(last - ENDING, max(working, last - LONGEST_ENDING)), began)
