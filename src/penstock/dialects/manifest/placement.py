"""Read `affinity` and `nodeSelector`: which GPU products will do. Nothing else about nodes may be chosen."""

from __future__ import annotations

from typing import Any

from penstock.dialects.reader import (
    FieldRules,
    PlacedContext,
    as_it_is,
    below,
    fields_of,
    mapping,
    read_fields,
    sequence,
    text,
)
from penstock.dialects.task.accelerators import ANY, PRODUCT, PRODUCTS_LIMIT
from penstock.dialects.yaml import Node
from penstock.domain.names import shorten

PRODUCT_LABEL = "nvidia.com/gpu.product"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ONLY_PRODUCTS = f"of the nodes' labels only {PRODUCT_LABEL} can be chosen"
EXAMPLE = "one matchExpressions of key nvidia.com/gpu.product, operator In and values"
Products = tuple[str, ...]


def products(context: PlacedContext, said: dict[str, Any], node: Node, path: str) -> Products:
    """Any one of these; empty is any product."""
    by_affinity: Products = said.get("affinity", ())
    by_selector: Products = said.get("nodeSelector", ())
    if by_affinity and by_selector:
        problem = "chooses a GPU product, and affinity does, too"
        context.problem(problem, node, f"{path}.nodeSelector", "say one of them")
    return by_affinity or by_selector


def node_selector(context: PlacedContext, node: Node, path: str) -> Products:
    found: Products = ()
    for key, value in mapping(context, node, path):
        here = below(path, key.text)
        if key.text == PRODUCT_LABEL:
            found = _names(context, [(value, here)])
        else:
            context.problem(f"is not carried: {ONLY_PRODUCTS}", key, here, "remove it")
    return found


def affinity(context: PlacedContext, node: Node, path: str) -> Products | None:
    said = read_fields(context, node, path, AFFINITY)
    said = fields_of(context, said, "nodeAffinity", NODE_AFFINITY)
    said = fields_of(context, said, REQUIRED, REQUIREMENT)
    term = _the_one(context, said.get("nodeSelectorTerms"))
    if term is None:
        return None
    said = read_fields(context, *term, TERM)
    expression = _the_one(context, said.get("matchExpressions"))
    return None if expression is None else _expression(context, *expression)


def _the_one(context: PlacedContext, said: tuple[Node, str] | None) -> tuple[Node, str] | None:
    items = sequence(context, *said) if said else []
    if said and len(items) > 1:
        context.problem(f"has {len(items):,} items; one can be carried", *said, EXAMPLE)
        return None
    return items[0] if items else None


def _expression(context: PlacedContext, node: Node, path: str) -> Products | None:
    said = read_fields(context, node, path, EXPRESSION)
    key, operator = said.get("key"), said.get("operator")
    if key != PRODUCT_LABEL:
        context.problem(f"'{shorten(str(key))}' is not carried: {ONLY_PRODUCTS}", node, f"{path}.key", EXAMPLE)
    elif operator != "In":
        context.problem(f"'{shorten(str(operator))}' is not carried: only In is", node, f"{path}.operator", EXAMPLE)
    elif "values" not in said:
        context.problem("is missing", node, f"{path}.values", "for example [NVIDIA-A10]")
    else:
        return _names(context, sequence(context, *said["values"]))
    return None


def _names(context: PlacedContext, items: list[tuple[Node, str]]) -> Products:
    found: dict[str, None] = {}
    for node, path in items[: PRODUCTS_LIMIT + 1]:
        name = context.text(node, path)
        if name is None:
            continue
        if not PRODUCT.match(name) or name == ANY:
            context.problem(f"'{shorten(name)}' names no GPU product", node, path, "for example NVIDIA-A10")
        found[name] = None
    if len(items) > PRODUCTS_LIMIT:
        context.problem(f"names {len(items):,} products; {PRODUCTS_LIMIT} at most", *items[PRODUCTS_LIMIT])
    if items:
        context.says(*items[0], "resources", "accelerators")
    return tuple(found)


NOT_REQUIRED = ("only a GPU product that is required can be chosen", f"use {REQUIRED}")
OTHERS = ("where a workload runs does not depend on other Pods", "remove it")
AFFINITY = FieldRules({"nodeAffinity": as_it_is}, {"podAffinity": OTHERS, "podAntiAffinity": OTHERS})
NODE_AFFINITY = FieldRules({REQUIRED: as_it_is}, {"preferredDuringSchedulingIgnoredDuringExecution": NOT_REQUIRED})
REQUIREMENT = FieldRules({"nodeSelectorTerms": as_it_is})
TERM = FieldRules({"matchExpressions": as_it_is}, {"matchFields": ("the scheduler chooses the node", "remove it")})
EXPRESSION = FieldRules({"key": text, "operator": text, "values": as_it_is})
