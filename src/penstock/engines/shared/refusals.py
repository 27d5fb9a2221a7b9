"""Refusals and notices that engines with containers have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.domain.paths import WORKDIR
from penstock.domain.workloads import Spec, Workload
from penstock.engines.base import GpuUse, Refusal
from penstock.wire.measures import GpuMeasure

LARGEST_WORD = 120 * 1024
"""Linux starts no program with an argument of 128 KiB, and bash needs some of it."""
ELSEWHERE = "put it into a file in a volume, or send it along in the workdir"


def refuse_long_words(spec: Spec) -> list[Refusal]:
    words = {"setup": (spec.setup or "",), "run": (spec.run,) if isinstance(spec.run, str) else spec.run or ()}
    return [
        Refusal(keys=(key,), message="is longer than 120 KiB, which no container can be started with", hint=ELSEWHERE)
        for key, texts in words.items()
        if any(len(text.encode(errors="surrogateescape")) > LARGEST_WORD for text in texts)
    ]


def refuse_cluster_secrets(spec: Spec) -> list[Refusal]:
    """Refuse Secrets outside Kubernetes."""
    said = {"from_secrets": spec.from_secrets, "pull_secrets": spec.pull_secrets}
    message = "names a Secret of a Kubernetes cluster, and this server does not run jobs in one"
    hints = {"from_secrets": "write its value, or give it in a task's secrets", "pull_secrets": "remove it"}
    return [Refusal(keys=(key,), message=message, hint=hints[key]) for key, named in said.items() if named]


def refuse_mount_over_workdir(spec: Spec) -> list[Refusal]:
    sends = spec.workdir is not None and not spec.workdir.startswith("/")
    paths = [mount.path for mount in spec.mounts] + [scratch.path for scratch in spec.scratch]
    if not sends or WORKDIR not in paths:
        return []
    said = f"{WORKDIR} is where the code of the workdir will be"
    return [Refusal(keys=("volumes", WORKDIR), message=said, hint=f"for example {WORKDIR}/data")]


IDLE_UNSEEN = "idle_timeout: what GPUs do is not seen here, so nothing is called idle"
IDLE_PARTLY_UNSEEN = "idle_timeout: on some nodes what GPUs do is not seen, so nothing is called idle there"


def by_place(workloads: Iterable[Workload], gpus: Mapping[str, GpuMeasure]) -> GpuUse:
    """Return the use of each workload's GPUs, where our scheduler hands them out by uuid."""
    return {each.id: tuple(gpus.get(uuid) for place in each.gpus for uuid in place) for each in workloads}


def idle_notices(spec: Spec, gpus_seen: Sequence[bool]) -> list[str]:
    """Say where idle GPUs cannot be noticed; `gpus_seen` says of each node with GPUs whether it can be seen what they
    do."""
    if spec.idle_timeout is None or all(gpus_seen):
        return []
    return [IDLE_PARTLY_UNSEEN if any(gpus_seen) else IDLE_UNSEEN]
