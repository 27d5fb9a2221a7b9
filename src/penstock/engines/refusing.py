"""What engines with containers refuse alike."""

from __future__ import annotations

from penstock.domain.paths import WORKDIR
from penstock.domain.workloads import Spec
from penstock.engines.base import Refusal

LARGEST_WORD = 120 * 1024
"""Linux starts no program with an argument of 128 KiB, and bash wants some of it."""
ELSEWHERE = "put it into a file in a volume, or send it along in the workdir"


def too_long(spec: Spec) -> list[Refusal]:
    words = {"setup": (spec.setup or "",), "run": (spec.run,) if isinstance(spec.run, str) else spec.run or ()}
    return [
        Refusal(keys=(key,), message="is longer than 120 KiB, which no container can be started with", hint=ELSEWHERE)
        for key, texts in words.items()
        if any(len(text.encode(errors="surrogateescape")) > LARGEST_WORD for text in texts)
    ]


def in_a_cluster(spec: Spec) -> list[Refusal]:
    """What only Kubernetes has."""
    said = {"from_secrets": spec.from_secrets, "pull_secrets": spec.pull_secrets}
    message = "names a Secret of a Kubernetes cluster, and this server does not run jobs in one"
    hints = {"from_secrets": "write its value, or give it in a task's secrets", "pull_secrets": "remove it"}
    return [Refusal(keys=(key,), message=message, hint=hints[key]) for key, named in said.items() if named]


def mounted_over_code(spec: Spec) -> list[Refusal]:
    sends = spec.workdir is not None and not spec.workdir.startswith("/")
    paths = [mount.path for mount in spec.mounts] + [scratch.path for scratch in spec.scratch]
    if not sends or WORKDIR not in paths:
        return []
    said = f"{WORKDIR} is where the code of the workdir will be"
    return [Refusal(keys=("volumes", WORKDIR), message=said, hint=f"for example {WORKDIR}/data")]
