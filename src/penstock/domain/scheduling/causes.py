"""Why a job waits: the word for it, and a sentence in its owner's words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.domain.states import Reason, State

RULES = frozenset({Reason.QUOTA, Reason.NOT_ALLOWED, Reason.NO_NODE_FITS})
SCHEDULING = RULES | {Reason.NO_AVAILABLE_RESOURCES, Reason.VOLUME_NOT_READY}
"""What a scheduler says of those that it looked at."""


@dataclass(frozen=True)
class Cause:
    reason: Reason
    message: str

    @property
    def state(self) -> State:
        """Turned down until something else than room changes; or it is to come as soon as there is room."""
        return State.DENIED if self.by_rule else State.QUEUED

    @property
    def by_rule(self) -> bool:
        return self.reason in RULES

    def behind(self, ahead: int) -> Cause:
        """With its place in the queue, unless it is turned down."""
        return self if self.by_rule or not ahead else Cause(self.reason, f"{self.message}; {ahead} ahead in the queue")


def no_room(message: str) -> Cause:
    return Cause(Reason.NO_AVAILABLE_RESOURCES, message)


def no_node_fits(reasons: Iterable[str]) -> Cause:
    said = f"can never start on the nodes there are now: {'; '.join(reasons)}; it starts once a node can run it"
    return Cause(Reason.NO_NODE_FITS, said)


def beyond_limit(message: str) -> Cause:
    return Cause(Reason.QUOTA, message)
