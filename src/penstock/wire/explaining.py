"""Why a workload waits, as it is answered: in one sentence, and node by node."""

from __future__ import annotations

from penstock.domain.model import Model, Time
from penstock.domain.states import State


class ObstacleView(Model):
    """One thing that keeps a workload from a node."""

    key: str
    """What of the workload or of the node it concerns: `accelerators`, `memory`, `maintenance`."""
    message: str
    passes: bool
    """False: even the empty node would not do."""


class ExplainedNode(Model):
    name: str
    fits: bool
    obstacles: tuple[ObstacleView, ...] = ()


class Explained(Model):
    id: str
    name: str
    state: State
    sentence: str | None
    """Why it waits; of one that does not, what is the case."""
    ahead: int | None = None
    """So many are before it in the queue; None where it is in none of ours."""
    since: Time
    """When it began to wait, or to run, or ended."""
    nodes: tuple[ExplainedNode, ...] = ()
    """Each that its owner may use. Empty where it does not wait, or a cluster decides."""
