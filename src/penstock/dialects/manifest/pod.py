"""Read a Pod's `spec`, which a Job's template has, too."""

from __future__ import annotations

from typing import Any

from penstock.dialects.manifest.container import container
from penstock.dialects.manifest.mounts import is_usual, mounted
from penstock.dialects.manifest.placement import affinity, node_selector, products
from penstock.dialects.manifest.secrets import pull_secrets
from penstock.dialects.manifest.unsupported import POD_PLAIN, POD_REFUSED
from penstock.dialects.reader import FieldRules, PlacedContext, as_it_is, read_fields, sequence, text, whole
from penstock.dialects.task.fields import SECONDS_LIMIT
from penstock.dialects.yaml import Node
from penstock.domain.names import shorten
from penstock.domain.paths import SHARED_MEMORY
from penstock.domain.workloads import UNLIMITED, Resources

STOP_GRACE = 30
"""Kubernetes' own."""
RESTARTS = {
    "Always": {"restart": True, "retries": UNLIMITED},
    "OnFailure": {"retries": UNLIMITED},
    "Never": {},
}


def pod(context: PlacedContext, node: Node, path: str) -> dict[str, Any]:
    """What it says of a Spec."""
    said = pod_spec(context, node, path)
    policy = said.pop("restartPolicy", None) or "Always"
    if policy not in RESTARTS:
        message = f"must be Always, OnFailure or Never, not '{shorten(policy)}'"
        context.problem(message, node, f"{path}.restartPolicy")
    restarts = RESTARTS.get(policy, {})
    if restarts:
        told_of_restarts(context, said, f"{path}.restartPolicy: {policy}")
    if said.pop("subdomain"):
        context.problem("is not carried: only a Job's nodes have names", node, f"{path}.subdomain", "remove it")
    return {**said, **restarts}


def only_node(context: PlacedContext, node: Node, path: str) -> Node:
    return node


def told_of_restarts(context: PlacedContext, said: dict[str, Any], what: str) -> None:
    if said.get("max_duration"):
        context.notices.append(f"{what}: activeDeadlineSeconds ends an attempt, and the next begins")
    if any(there.path != SHARED_MEMORY for there in said["scratch"]):
        context.notices.append(f"{what}: each attempt begins with empty emptyDirs")


def pod_spec(context: PlacedContext, node: Node, path: str) -> dict[str, Any]:
    """As above, with `restartPolicy` and `subdomain` still as they are written."""
    said = read_fields(context, node, path, POD)
    inside = _the_container(context, said.get("containers"), node, path)
    asked = inside["resources"].model_copy(update={"gpu_products": products(context, said, node, path)})
    if asked.gpu_products and not asked.gpus:
        hint = "write 'nvidia.com/gpu: 1' under the container's limits"
        context.problem("chooses a GPU product and asks for no GPU", node, path, hint)
    mounts, scratch = mounted(context, said.get("volumes"), inside.pop("volumeMounts"), asked.memory_bytes)
    return {
        **inside,
        "resources": asked,
        "mounts": mounts,
        "scratch": tuple(there for there in scratch if not is_usual(there, asked.memory_bytes)),
        "pull_secrets": said.get("imagePullSecrets", ()),
        "max_duration": said.get("activeDeadlineSeconds"),
        "stop_grace": said.get("terminationGracePeriodSeconds", STOP_GRACE),
        "restartPolicy": said.get("restartPolicy"),
        "subdomain": said.get("subdomain"),
    }


def _the_container(context: PlacedContext, said: tuple[Node, str] | None, node: Node, path: str) -> dict[str, Any]:
    items = sequence(context, *said) if said else []
    if len(items) > 1:
        hint = "put each into a workload of its own"
        context.problem(f"has {len(items)} containers; a workload has one", *items[1], hint)
    if not items:
        context.problem("is missing", node, f"{path}.containers")
        return {"resources": Resources(), "volumeMounts": None}
    return container(context, *items[0])


POD = FieldRules(
    {
        "containers": as_it_is,
        "volumes": as_it_is,
        "restartPolicy": text,
        "activeDeadlineSeconds": whole(1, SECONDS_LIMIT),
        "terminationGracePeriodSeconds": whole(0, SECONDS_LIMIT),
        "affinity": affinity,
        "nodeSelector": node_selector,
        "subdomain": only_node,
        "imagePullSecrets": pull_secrets,
    },
    POD_REFUSED,
    POD_PLAIN,
)
