"""What can never run on these hosts, said at submit and at the key it stands under."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.nodes import Node, product_matches
from penstock.domain.paths import WORKDIR
from penstock.domain.workloads import Spec
from penstock.engines.base import IDLE_UNSEEN, Refusal

IDLE_PARTLY_UNSEEN = "idle_timeout: on some nodes what GPUs do is not seen, so nothing is called idle there"
LARGEST_WORD = 120 * 1024
"""Linux starts no program with an argument of 128 KiB, and bash wants some of it."""


def refusals(spec: Spec, nodes: Sequence[Node]) -> list[Refusal]:
    return [
        *_no_command(spec),
        *_too_long(spec),
        *_unknown_products(spec, nodes),
        *_queue(spec),
        *_twice(spec),
    ]


def notices(spec: Spec, gpus_seen: Sequence[bool]) -> list[str]:
    """`gpus_seen` is of each host that has some, whether it can be seen what they do."""
    said = []
    if spec.nodes > 1:
        said.append("Its nodes run on one Docker host: containers on different hosts have no network between them.")
    if spec.idle_timeout is not None and not all(gpus_seen):
        said.append(IDLE_PARTLY_UNSEEN if any(gpus_seen) else IDLE_UNSEEN)
    return said


def _no_command(spec: Spec) -> list[Refusal]:
    if spec.run is not None or spec.nodes == 1:
        return []
    said = "is missing: with several nodes, the image's own command cannot be used"
    return [Refusal(keys=("run",), message=said, hint="name the program")]


def _too_long(spec: Spec) -> list[Refusal]:
    words = {"setup": (spec.setup or "",), "run": (spec.run,) if isinstance(spec.run, str) else spec.run or ()}
    hint = "put it into a file in a volume, or send it along in the workdir"
    return [
        Refusal(keys=(key,), message="is longer than 120 KiB, which no container can be started with", hint=hint)
        for key, texts in words.items()
        if any(len(text.encode(errors="surrogateescape")) > LARGEST_WORD for text in texts)
    ]


def _unknown_products(spec: Spec, nodes: Sequence[Node]) -> list[Refusal]:
    wanted = spec.resources.gpu_products
    products = sorted({gpu.product for node in nodes for gpu in node.gpus})
    if not wanted or any(product_matches(each, product) for each in wanted for product in products):
        return []
    named = " or ".join(f"'{each}'" for each in wanted)
    hint = f"there are: {', '.join(products)}" if products else "no node has a GPU"
    return [Refusal(keys=("resources", "accelerators"), message=f"no node has a GPU {named}", hint=hint)]


def _queue(spec: Spec) -> list[Refusal]:
    if not spec.queue:
        return []
    said = "Docker hosts have no queues of their own"
    return [Refusal(keys=("queue",), message=said, hint="leave it out; it starts when there is room")]


def _twice(spec: Spec) -> list[Refusal]:
    sends = spec.workdir is not None and not spec.workdir.startswith("/")
    paths = [mount.path for mount in spec.mounts] + [scratch.path for scratch in spec.scratch]
    if not sends or WORKDIR not in paths:
        return []
    said = f"{WORKDIR} is where the code of the workdir will be"
    return [Refusal(keys=("volumes", WORKDIR), message=said, hint=f"for example {WORKDIR}/data")]
