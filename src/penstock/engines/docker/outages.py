"""Tell when a host's Docker was restarted, from its own events and its containers.

Docker makes its own network anew whenever it starts, and does not say otherwise since when it runs.

What Docker writes down beside a container may be wrong once it was killed: that one never ran which did, or a code
that nothing ended with. So it is believed only where Docker was there all the time, which is if it remembers. Of a
container that someone removed it is all there is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from penstock.domain.model import now
from penstock.engines.docker import names
from penstock.engines.docker.api.client import Api, Fields
from penstock.engines.docker.api.objects import Seen, read_time

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


MOST = 256
"""Events that Docker keeps; with a restart it forgets all."""
FOUND_NOTHING = 255
"""The code that Docker writes where it found nothing of one that ran."""
NANO = 1_000_000_000
A_MOMENT = timedelta(milliseconds=100)


@dataclass
class Past:
    """Of a container."""

    labels: dict[str, str] = field(default_factory=dict)
    """With its name, and other things that Docker says of it."""
    made: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    removed: bool = False

    def add(self, event: Fields) -> None:
        at, self.labels = time_of(event), event["Actor"]["Attributes"]
        if event["Action"] == "create":
            self.made = True
        elif event["Action"] == "start":
            self.started_at = at
        elif event["Action"] == "die":
            code = self.labels.get(names.EXIT_CODE, "")  # of what others made it may be a label, and any text
            self.ended_at, self.exit_code = at, int(code) if code.isdecimal() else None
        elif event["Action"] == "destroy":
            self.removed = True


@dataclass(frozen=True)
class Memory:
    since: datetime
    """Of the first thing it remembers, by the host's clock."""
    full: bool
    """What was before that was forgotten one by one; otherwise it did not run then."""
    past: Mapping[str, Past]
    """By container."""

    def knows_the_end_of(self, seen: Seen, others: Iterable[Seen]) -> bool:
        """Docker was there when it ended: it says so, or it was still there when something was made later."""
        if self._of(seen).ended_at:
            return True
        if seen.ended_at is None or seen.exit_code == FOUND_NOTHING:
            return False
        if self.full and seen.ended_at < self.since:
            return True
        before = [each for each in others if not self._of(each).made]
        alive = [each.created_at for each in before]
        alive += [each.started_at for each in before if not self._of(each).started_at]
        return any(at and seen.ended_at < at < self.since for at in alive)

    def made(self, container_id: str) -> bool:
        return container_id in self.past and self.past[container_id].made

    def _of(self, seen: Seen) -> Past:
        return self.past.get(seen.id) or Past()

    def removed(self, host: str, installation: str) -> list[Seen]:
        """Our containers that ran and are not there any more, as they were at last."""
        ours = {id_: past for id_, past in self.past.items() if past.labels.get(names.INSTALLATION) == installation}
        return [seen for id_, past in ours.items() if past.removed and (seen := _seen(id_, past, host))]


def _seen(container_id: str, past: Past, host: str) -> Seen | None:
    run = names.run_of(past.labels)
    if run is None or past.started_at is None:
        return None
    return Seen(
        id=container_id,
        name=past.labels.get("name", ""),
        host=host,
        run=run,
        part=names.number(past.labels, names.PART),
        labels=past.labels,
        status="removing" if past.exit_code is None else "exited",
        exit_code=past.exit_code or 0,
        error="",
        out_of_memory=False,
        memory_limit=0,
        created_at=None,
        started_at=past.started_at,
        ended_at=past.ended_at or past.started_at,
        tty=False,
        gone=True,
        heard=True,
    )


async def memory_of(api: Api) -> Memory:
    theirs = read_time((await api.info()).get("SystemTime")) or now()
    until = theirs + A_MOMENT
    past: dict[str, Past] = defaultdict(Past)
    first, count = until, 0
    async with api.events({}, since="0", until=f"{until.timestamp():.6f}") as events:
        async for event in events:
            first, count = min(first, time_of(event)), count + 1
            if event.get("Type") == "container":
                past[str(event["Actor"]["ID"])].add(event)
    return Memory(first, count >= MOST, dict(past))


def time_of(event: Fields) -> datetime:
    return datetime.fromtimestamp(event["timeNano"] / NANO, UTC)
