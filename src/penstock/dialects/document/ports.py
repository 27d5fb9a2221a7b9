"""Read the ports in `config` and `network` where a workload listens. None is published on a host."""

from __future__ import annotations

from typing import Any

from penstock.dialects.reader import FieldRules, PlacedContext, Refusal, as_it_is, read_fields, sequence
from penstock.dialects.task.ports import LARGEST, PORTS_LIMIT, PROTOCOLS, port
from penstock.dialects.yaml import Node, Pairs, Scalar, is_null
from penstock.domain.names import shorten
from penstock.domain.workloads import Port

Found = list[tuple[Node, str, Port]]
"""Each with its place: whether one is there twice is seen when all are read."""
PUBLISHED: Refusal = ("no port is published on a host", "remove it; penstock port-forward reaches the workload")


def ports(context: PlacedContext, node: Node, path: str) -> Found:
    """`8888/tcp` as a key, as a `name`, or as an item; what Docker would have as its value is empty."""
    context.says(node, path, "ports")
    entries: list[tuple[Node, str]] = []
    if isinstance(node, Scalar):
        entries = [(node, path)]
    elif isinstance(node, Pairs):
        for key, value in node.items:
            here = f"{path}.{shorten(key.text)}"
            _refuse_value(context, value, here)
            entries.append((key, here))
    else:
        entries = [(_named(context, item, here), here) for item, here in sequence(context, node, path)]
    if context.too_many(entries, PORTS_LIMIT, node, path):
        return []
    read = [(item, here, port(context, item, here)) for item, here in entries]
    return [(item, here, found) for item, here, found in read if found]


def _named(context: PlacedContext, node: Node, path: str) -> Node:
    """A port, or `{name: 8888/tcp, value: {}}`."""
    if not isinstance(node, Pairs):
        return node
    said = read_fields(context, node, path, NAMED)
    if "value" in said:
        _refuse_value(context, *said["value"])
    found: Node = said.get("name") or Scalar("", quoted=True, mark=node.mark)
    return found


def _refuse_value(context: PlacedContext, node: Node, path: str) -> None:
    empty = is_null(node) or not (node.text if isinstance(node, Scalar) else node.items)
    if not empty:
        context.problem(f"is not carried: {PUBLISHED[0]}", node, path, PUBLISHED[1])


def name_of_pair(context: PlacedContext, node: Node, path: str) -> Scalar | None:
    if isinstance(node, Scalar):
        return node
    context.text(node, path)
    return None


NAMED = FieldRules({"name": name_of_pair, "value": as_it_is})


# network


def network(context: PlacedContext, node: Node, path: str) -> dict[str, Any]:
    """Its ports, and the node that names it."""
    return read_fields(context, node, path, NETWORK)


def _listed(context: PlacedContext, node: Node, path: str) -> Found:
    """PWM's own way: `{port, protocol}`; what `config.ports` takes is taken here, too."""
    context.says(node, path, "ports")
    items = sequence(context, node, path)
    if context.too_many(items, PORTS_LIMIT, node, path):
        return []
    found: Found = []
    for item, here in items:
        one = _one(context, item, here) if isinstance(item, Pairs) else port(context, item, here)
        if one:
            found.append((item, here, one))
    return found


def _one(context: PlacedContext, node: Node, path: str) -> Port | None:
    said = read_fields(context, node, path, PORT)
    context.require(node, path, "port", "for example 'port: 8888'")
    return Port(port=said["port"], protocol=said.get("protocol", "tcp")) if "port" in said else None


def _number(context: PlacedContext, node: Node, path: str) -> int | None:
    return context.whole(node, path, 1, LARGEST)


def _protocol(context: PlacedContext, node: Node, path: str) -> str | None:
    text = context.text(node, path)
    if text is None or text.lower() in PROTOCOLS:
        return text and text.lower()
    context.problem(f"must be {' or '.join(PROTOCOLS)}, not '{shorten(text)}'", node, path)
    return None


PORT = FieldRules({"port": _number, "protocol": _protocol}, {"hostPort": PUBLISHED})
NETWORK = FieldRules({"name": as_it_is, "ports": _listed})
