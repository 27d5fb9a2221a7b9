"""Refuse at submit what can never run on Docker hosts."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.workloads import Spec
from penstock.engines.base import Refusal
from penstock.engines.shared.refusals import (
    idle_notices,
    refuse_cluster_secrets,
    refuse_long_words,
    refuse_mount_over_workdir,
)


def refusals(spec: Spec) -> list[Refusal]:
    """List what can never run here. What no node has that its user may run on, the scheduler says."""
    return [
        *_no_command(spec),
        *refuse_long_words(spec),
        *_queue(spec),
        *refuse_cluster_secrets(spec),
        *refuse_mount_over_workdir(spec),
    ]


def notices(spec: Spec, gpus_seen: Sequence[bool]) -> list[str]:
    """List what a user should know. `gpus_seen` says of each host with GPUs whether it can be seen what they do."""
    said = []
    if spec.nodes > 1:
        said.append("Its nodes run on one Docker host: containers on different hosts have no network between them.")
    return said + idle_notices(spec, gpus_seen)


def _no_command(spec: Spec) -> list[Refusal]:
    if spec.run is not None or spec.nodes == 1:
        return []
    said = "is missing: with several nodes, the image's own command cannot be used"
    return [Refusal(keys=("run",), message=said, hint="name the program")]


def _queue(spec: Spec) -> list[Refusal]:
    if not spec.queue:
        return []
    said = "Docker hosts have no queues of their own"
    return [Refusal(keys=("queue",), message=said, hint="leave it out; it starts when there is room")]
