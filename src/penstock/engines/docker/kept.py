"""What is known of a run and stands in none of its containers; all of it can be lost with the server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import HeldUp, Launch, Report, Step
from penstock.engines.docker import names
from penstock.engines.docker.seen import Seen


@dataclass
class Bringing:
    """A start under way, and how far it has come."""

    launch: Launch
    task: asyncio.Task[None] | None = None
    fresh: set[str] = field(default_factory=set)
    """Containers it has made and not yet asked to start."""
    state: State = State.ASSIGNED
    reason: Reason = Reason.PLACED
    message: str | None = None

    def __post_init__(self) -> None:
        if self.launch.hosts:
            self.message = f"on {', '.join(dict.fromkeys(self.launch.hosts))}"


@dataclass
class Kept:
    launch: Launch | None = None
    bringing: Bringing | None = None
    steps: list[Step] = field(default_factory=list)
    """What it went through until it began."""
    grace: int | None = None
    """Told to stop, with so many seconds."""
    failed: dict[int, Unit] = field(default_factory=dict)
    """Parts that have no container, and why."""
    held_up: HeldUp | None = None
    """Why it cannot be started now, for whoever asks next: it gives its place back."""
    pull_waited: float = 0
    """Seconds it has waited between tries to pull its image."""
    given_up: bool = False
    """What has no container by now will never have one."""
    never: Report | None = None
    """Stopped before it began."""
    asked_for: bool = False
    """Whoever keeps the records has asked for it, started or not ended: of one that is over nothing more is started,
    though its containers be there."""
    full: dict[int, str] = field(default_factory=dict)
    """Parts that held too much on a disk."""
    told: set[str] = field(default_factory=set)
    """Containers that were told to end."""
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)


def is_array(kept: Kept, parts: Mapping[int, Seen]) -> bool:
    if kept.launch:
        return kept.launch.spec.array is not None
    return any(seen.is_array for seen in parts.values())


def total_of(kept: Kept, parts: Mapping[int, Seen]) -> int:
    """How many parts the attempt has."""
    if kept.launch:
        return len(kept.launch.indexes) if kept.launch.spec.array else kept.launch.spec.nodes
    return max((names.number(seen.labels, names.PARTS, 1) for seen in parts.values()), default=1)
