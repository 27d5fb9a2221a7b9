"""What Docker remembers of its containers, and the events of a run as users see them.

What Docker writes down beside a container may be wrong once it was killed: that one never ran which did, or a code
that nothing ended with. Its last events tell what it really saw; with a restart it forgets them. Of a container that
someone removed they are all there is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from penstock.domain.model import now
from penstock.engines.base import Event
from penstock.engines.docker import names
from penstock.engines.docker.api.client import DockerApi, Fields
from penstock.engines.docker.api.objects import ContainerRecord, read_time
from penstock.engines.docker.names import Label

MOST = 256
"""Events that Docker keeps."""
NANO = 1_000_000_000
A_MOMENT = timedelta(milliseconds=100)


@dataclass
class ContainerPast:
    """One container as Docker's events tell of it."""

    labels: dict[str, str] = field(default_factory=dict)
    """With its name, and other things that Docker says of it."""
    made: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    removed: bool = False

    def add(self, event: Fields) -> None:
        at, self.labels = datetime.fromtimestamp(event["timeNano"] / NANO, UTC), event["Actor"]["Attributes"]
        if event["Action"] == "create":
            self.made = True
        elif event["Action"] == "start":
            self.started_at = at
        elif event["Action"] == "die":
            code = self.labels.get(names.EXIT_CODE, "")  # it may be a label of others, and any text
            self.ended_at, self.exit_code = at, int(code) if code.isdecimal() else None
        elif event["Action"] == "destroy":
            self.removed = True


@dataclass(frozen=True)
class EventMemory:
    """The events that Docker has since its start, at most the newest 256."""

    full: bool
    """It has forgotten older ones."""
    past: Mapping[str, ContainerPast]
    """By container."""

    def made(self, container_id: str) -> bool:
        return container_id in self.past and self.past[container_id].made

    def saw_end(self, container_id: str) -> bool:
        return container_id in self.past and self.past[container_id].ended_at is not None

    def removed(self, host: str, installation: str, docker: str) -> list[ContainerRecord]:
        """Our containers that ran and are not there any more, as they were at last."""
        ours = {id_: past for id_, past in self.past.items() if past.labels.get(Label.INSTALLATION) == installation}
        return [seen for id_, past in ours.items() if past.removed and (seen := _record_of(id_, past, host, docker))]


def _record_of(container_id: str, past: ContainerPast, host: str, docker: str) -> ContainerRecord | None:
    run = names.run_of(past.labels)
    if run is None or past.started_at is None:
        return None
    return ContainerRecord(
        id=container_id,
        name=past.labels.get("name", ""),
        host=host,
        run=run,
        part=names.number(past.labels, Label.PART),
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
        witness=docker,
    )


async def read_memory(api: DockerApi) -> EventMemory:
    theirs = read_time((await api.info()).get("SystemTime")) or now()
    past: dict[str, ContainerPast] = defaultdict(ContainerPast)
    count = 0
    async with api.events({}, since="0", until=f"{(theirs + A_MOMENT).timestamp():.6f}") as events:
        async for event in events:
            count += 1
            if event.get("Type") == "container":
                past[str(event["Actor"]["ID"])].add(event)
    return EventMemory(count >= MOST, dict(past))


# -- the events of a run -----------------------------------------------------------------------------------------------


def events_of(containers: Mapping[int, ContainerRecord]) -> list[Event]:
    """List what happened, as far as the containers have kept it."""
    found: list[Event] = []
    for part, seen in sorted(containers.items()):
        about = f"index {part}" if seen.is_array else f"node {part}"
        if seen.created_at:
            found.append(_event(seen.created_at, "Created", about, f"{seen.host} made the container {seen.name}."))
        if seen.started_at:
            found.append(_event(seen.started_at, "Started", about, "It started."))
        if seen.error and seen.created_at:
            found.append(_event(seen.created_at, "NotStarted", about, seen.error, kind="Warning"))
        if seen.over and seen.ended_at and seen.began:
            kind = "Warning" if seen.exit_code or seen.taken_away else "Normal"
            said = "Someone removed its container." if seen.taken_away else f"It ended with code {seen.exit_code}."
            found.append(_event(seen.ended_at, "Removed" if seen.taken_away else "Ended", about, said, kind=kind))
    return sorted(found, key=lambda event: event.at)


def _event(at: datetime, reason: str, about: str, message: str, *, kind: str = "Normal") -> Event:
    return Event(at=at, kind=kind, reason=reason, about=about, message=message)
