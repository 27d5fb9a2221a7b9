"""What a host's Docker remembers: the last things that happened in its own life, each as it happened.

What Docker writes down beside a container may be wrong once it was killed: that one never ran which did, or a code
that nothing ended with. So it is believed only where Docker was there all the time, which is if it remembers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.domain.model import now
from penstock.engines.docker.api import Api
from penstock.engines.docker.seen import Seen, read_time

MOST = 256
"""Events that Docker keeps; with a restart it forgets all."""
FOUND_NOTHING = 255
"""The code that Docker writes where it found nothing of one that ran."""
NANO = 1_000_000_000
A_MOMENT = timedelta(milliseconds=100)


@dataclass(frozen=True)
class Memory:
    since: datetime
    """Of the first thing it remembers, by the host's clock."""
    full: bool
    """What was before that was forgotten one by one; otherwise it did not run then."""
    made: frozenset[str]
    started: frozenset[str]
    ended: frozenset[str]

    def knows_the_end_of(self, seen: Seen, others: Iterable[Seen]) -> bool:
        """Docker was there when it ended: it says so, or it was still there when something was made later."""
        if seen.id in self.ended:
            return True
        if seen.ended_at is None or seen.exit_code == FOUND_NOTHING:
            return False
        if self.full and seen.ended_at < self.since:
            return True
        before = [each for each in others if each.id not in self.made]
        alive = [each.created_at for each in before]
        alive += [each.started_at for each in before if each.id not in self.started]
        return any(at and seen.ended_at < at < self.since for at in alive)


async def memory_of(api: Api) -> Memory:
    theirs = read_time((await api.info()).get("SystemTime")) or now()
    until = theirs + A_MOMENT
    happened: dict[str, set[str]] = {"create": set(), "start": set(), "die": set()}
    first, count = until, 0
    async with api.events({}, since="0", until=f"{until.timestamp():.6f}") as events:
        async for event in events:
            at = datetime.fromtimestamp(event["timeNano"] / NANO, UTC)
            first, count = min(first, at), count + 1
            if event.get("Type") == "container" and event["Action"] in happened:
                happened[event["Action"]].add(str(event["Actor"]["ID"]))
    made, started, ended = (frozenset(ids) for ids in happened.values())
    return Memory(first, count >= MOST, made, started, ended)
