"""Read a Pod's `spec`, which a Job's template has, too: its container, its volumes and which GPU products will do.

Nothing but the GPU product can be chosen about nodes, by `affinity` or `nodeSelector`.
"""

from __future__ import annotations

from typing import Any

from penstock.dialects.manifest.container import container
from penstock.dialects.manifest.secrets import pull_secrets
from penstock.dialects.manifest.unsupported import POD_PLAIN, POD_REFUSED
from penstock.dialects.manifest.volumes import is_usual, mounted
from penstock.dialects.reader import (
    FieldRules,
    ReadContext,
    as_it_is,
    below,
    each_once,
    fields_of,
    mapping,
    matching,
    read_fields,
    sequence,
    text,
    whole,
)
from penstock.dialects.task.resources import ANY, PRODUCT, PRODUCTS_LIMIT
from penstock.dialects.task.runs import SECONDS_LIMIT
from penstock.dialects.yaml import Node
from penstock.domain.names import shorten
from penstock.domain.paths import SHARED_MEMORY
from penstock.domain.workloads import UNLIMITED, Resources

PRODUCT_LABEL = "nvidia.com/gpu.product"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ONLY_PRODUCTS = f"of the nodes' labels only {PRODUCT_LABEL} can be chosen"
EXAMPLE = "one matchExpressions of key nvidia.com/gpu.product, operator In and values"
Products = tuple[str, ...]


def products(context: ReadContext, said: dict[str, Any], node: Node, path: str) -> Products:
    """Return the GPU products of which any will do; empty is any product."""
    by_affinity: Products = said.get("affinity", ())
    by_selector: Products = said.get("nodeSelector", ())
    if by_affinity and by_selector:
        problem = "chooses a GPU product, and affinity does, too"
        context.problem(problem, node, f"{path}.nodeSelector", "keep one of them")
    return by_affinity or by_selector


def node_selector(context: ReadContext, node: Node, path: str) -> Products:
    found: Products = ()
    for key, value in mapping(context, node, path):
        here = below(path, key.text)
        if key.text == PRODUCT_LABEL:
            found = _names(context, [(value, here)])
        else:
            context.problem(f"is not supported: {ONLY_PRODUCTS}", key, here, "remove it")
    return found


def affinity(context: ReadContext, node: Node, path: str) -> Products | None:
    said = read_fields(context, node, path, AFFINITY)
    said = fields_of(context, said, "nodeAffinity", NODE_AFFINITY)
    said = fields_of(context, said, REQUIRED, REQUIREMENT)
    term = _the_one(context, said.get("nodeSelectorTerms"))
    if term is None:
        return None
    said = read_fields(context, *term, TERM)
    expression = _the_one(context, said.get("matchExpressions"))
    return None if expression is None else _expression(context, *expression)


def _the_one(context: ReadContext, said: tuple[Node, str] | None) -> tuple[Node, str] | None:
    items = sequence(context, *said) if said else []
    if said and len(items) > 1:
        context.problem(f"has {len(items):,} items; one can be carried", *said, EXAMPLE)
        return None
    return items[0] if items else None


def _expression(context: ReadContext, node: Node, path: str) -> Products | None:
    said = read_fields(context, node, path, EXPRESSION)
    key, operator = said.get("key"), said.get("operator")
    if key != PRODUCT_LABEL:
        context.problem(f"'{shorten(str(key))}' is not supported: {ONLY_PRODUCTS}", node, f"{path}.key", EXAMPLE)
    elif operator != "In":
        context.problem(f"'{shorten(str(operator))}' is not supported: only In is", node, f"{path}.operator", EXAMPLE)
    elif "values" not in said:
        context.problem("is missing", node, f"{path}.values", "for example [NVIDIA-A10]")
    else:
        return _names(context, sequence(context, *said["values"]))
    return None


def _names(context: ReadContext, items: list[tuple[Node, str]]) -> Products:
    if len(items) > PRODUCTS_LIMIT:
        context.problem(f"names {len(items):,} products; {PRODUCTS_LIMIT} at most", *items[PRODUCTS_LIMIT])
    if items:
        context.says(*items[0], "resources", "accelerators")
    return each_once(context, items[:PRODUCTS_LIMIT], _product)


_product = matching(lambda name: PRODUCT.match(name) and name != ANY, "names no GPU product", "for example NVIDIA-A10")


NOT_REQUIRED = ("only a GPU product that is required can be chosen", f"use {REQUIRED}")
OTHERS = ("where a workload runs does not depend on other Pods", "remove it")
AFFINITY = FieldRules({"nodeAffinity": as_it_is}, {"podAffinity": OTHERS, "podAntiAffinity": OTHERS})
NODE_AFFINITY = FieldRules({REQUIRED: as_it_is}, {"preferredDuringSchedulingIgnoredDuringExecution": NOT_REQUIRED})
REQUIREMENT = FieldRules({"nodeSelectorTerms": as_it_is})
TERM = FieldRules({"matchExpressions": as_it_is}, {"matchFields": ("the scheduler chooses the node", "remove it")})
EXPRESSION = FieldRules({"key": text, "operator": text, "values": as_it_is})


STOP_GRACE = 30
"""Kubernetes' default."""
RESTARTS = {
    "Always": {"restart": True, "retries": UNLIMITED},
    "OnFailure": {"retries": UNLIMITED},
    "Never": {},
}


def pod(context: ReadContext, node: Node, path: str) -> dict[str, Any]:
    said = pod_spec(context, node, path)
    policy = said.pop("restartPolicy", None) or "Always"
    if policy not in RESTARTS:
        message = f"must be Always, OnFailure or Never, not '{shorten(policy)}'"
        context.problem(message, node, f"{path}.restartPolicy")
    restarts = RESTARTS.get(policy, {})
    if restarts:
        told_of_restarts(context, said, f"{path}.restartPolicy: {policy}")
    if said.pop("subdomain"):
        context.problem("is not supported: only a Job's nodes have names", node, f"{path}.subdomain", "remove it")
    return {**said, **restarts}


def told_of_restarts(context: ReadContext, said: dict[str, Any], what: str) -> None:
    if said.get("max_duration"):
        context.notices.append(f"{what}: activeDeadlineSeconds ends an attempt, and the next begins")
    if any(there.path != SHARED_MEMORY for there in said["scratch"]):
        context.notices.append(f"{what}: each attempt begins with empty emptyDirs")


def pod_spec(context: ReadContext, node: Node, path: str) -> dict[str, Any]:
    """Return the fields that a Pod's spec sets, with `restartPolicy` and `subdomain` as written."""
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


def _the_container(context: ReadContext, said: tuple[Node, str] | None, node: Node, path: str) -> dict[str, Any]:
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
        "subdomain": as_it_is,
        "imagePullSecrets": pull_secrets,
    },
    POD_REFUSED,
    POD_PLAIN,
)
