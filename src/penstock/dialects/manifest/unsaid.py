"""What a task says and no manifest can: told above the manifest, never left out in silence."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.dialects.task.programs import ARGUMENT_LIMIT
from penstock.dialects.task.repeating import ATTEMPTS_LIMIT
from penstock.domain.names import shorten
from penstock.domain.workloads import UNLIMITED, Spec

OF_PENSTOCK = ("selectors", "labels", "terminal", "ports", "priority", "idle_timeout", "notify")
UNKNOWN_VARIABLES = ("PENSTOCK_TASK_ID", "PENSTOCK_ATTEMPT", "SKYPILOT_TASK_ID", "SKYPILOT_NODE_IPS")


def unsaid(spec: Spec, name: str, image: str | None) -> Iterator[str]:
    if spec.name is None:
        yield f"name: the task has none; a manifest needs one, here '{name}'"
    if spec.resources.image is None:
        yield f"image_id: the task names none; here it is {image}"
    if spec.after:
        yield f"after: kubectl starts it at once; first must complete {shorten(', '.join(spec.after), 200)}"
    if spec.secrets:
        values = " ".join(f"--from-literal={secret}=…" for secret in spec.secrets)
        yield f"secrets: before it, kubectl create secret generic {name} {shorten(values, 200)}"
    if spec.workdir is not None and not spec.workdir.startswith("/"):
        yield f"workdir: the code in '{shorten(spec.workdir)}' is not sent; put it into the image or a volume"
    yield from _of_documents(spec)
    yield from _of_programs(spec)
    yield from _of_repeats(spec)
    if spec.nodes > 1:
        yield "num_nodes: nodes start one by one as they find room, not all together"
    if any(not product.startswith("NVIDIA-") for product in spec.resources.gpu_products):
        yield "accelerators: write the products as the nodes' label nvidia.com/gpu.product has them"
    if any(":" in there for there in [*(m.path for m in spec.mounts), *(s.path for s in spec.scratch)]):
        yield "volumes: Kubernetes takes no path with ':' in it"


def _of_documents(spec: Spec) -> Iterator[str]:
    """What Penstock has beyond Kubernetes' own."""
    plain = Spec(run=spec.run)
    more = [key for key in OF_PENSTOCK if getattr(spec, key) != getattr(plain, key)]
    if more:
        yield f"{', '.join(more)}: cannot be said in a manifest that Penstock reads"
    if spec.resources.exclusive_cpus:
        yield "exclusive_cpus: the cluster's own settings decide who has CPUs to itself"
    if any(mount.group or mount.storage or mount.sub_path for mount in spec.mounts):
        yield "volumes: here each is a claim of the same namespace, mounted as a whole"


def _of_programs(spec: Spec) -> Iterator[str]:
    text = "\n".join([spec.setup or "", *([spec.run] if isinstance(spec.run, str) else spec.run or ())])
    named = [variable for variable in UNKNOWN_VARIABLES if variable in text]
    if spec.run is None:
        yield "run: none is said, so the image's own command runs"
    if named:
        yield f"run: nobody sets {', '.join(named)}"
    if isinstance(spec.run, str) and len(text.encode()) >= ARGUMENT_LIMIT:
        yield f"run: a program takes no text beyond {ARGUMENT_LIMIT // 1024} KiB; put it into the image or a volume"


def _of_repeats(spec: Spec) -> Iterator[str]:
    if spec.nodes > 1:
        if spec.retries or spec.requeue or spec.restart:
            yield "retries, requeue, restart: Kubernetes repeats a node alone, so here none is repeated"
        return
    if spec.restart and not spec.array:
        if spec.requeue or spec.ttl is not None:
            yield "requeue, ttl: a Pod that restarts always does so for ever on its node"
        return
    if (spec.requeue or 0) != (ATTEMPTS_LIMIT if spec.retries == UNLIMITED else spec.retries):
        yield "requeue: Kubernetes repeats after a lost node as often as after a failure"
