"""Read the ports in `config` and `network` where a workload listens. None is published on a host."""

from __future__ import annotations

from typing import Any

from penstock.dialects.reader import PlacedReading, Refusal, Shape, as_it_is, lacks, read_fields, sequence
from penstock.dialects.task.ports import LARGEST, PORTS_LIMIT, PROTOCOLS, port
from penstock.dialects.yaml import Node, Pairs, Scalar, is_null
from penstock.domain.names import shorten
from penstock.domain.workloads import Port

Found = list[tuple[Node, str, Port]]
"""Each with its place: whether one is there twice is seen when all are read."""
PUBLISHED: Refusal = ("no port is published on a host", "remove it; penstock port-forward reaches the workload")


def ports(reading: PlacedReading, node: Node, path: str) -> Found:
    """`8888/tcp` as a key, as a `name`, or as an item; what Docker would have as its value is empty."""
    reading.says(node, path, "ports")
    entries: list[tuple[Node, str]] = []
    if isinstance(node, Scalar):
        entries = [(node, path)]
    elif isinstance(node, Pairs):
        for key, value in node.items:
            here = f"{path}.{shorten(key.text)}"
            _refuse_value(reading, value, here)
            entries.append((key, here))
    else:
        entries = [(_named(reading, item, here), here) for item, here in sequence(reading, node, path)]
    if len(entries) > PORTS_LIMIT:
        reading.problem(f"has {len(entries):,} entries; {PORTS_LIMIT} at most", node, path)
        return []
    read = [(item, here, port(reading, item, here)) for item, here in entries]
    return [(item, here, found) for item, here, found in read if found]


def _named(reading: PlacedReading, node: Node, path: str) -> Node:
    """A port, or `{name: 8888/tcp, value: {}}`."""
    if not isinstance(node, Pairs):
        return node
    said = read_fields(reading, node, path, NAMED)
    if "value" in said:
        _refuse_value(reading, *said["value"])
    found: Node = said.get("name") or Scalar("", quoted=True, mark=node.mark)
    return found


def _refuse_value(reading: PlacedReading, node: Node, path: str) -> None:
    empty = is_null(node) or not (node.text if isinstance(node, Scalar) else node.items)
    if not empty:
        reading.problem(f"is not carried: {PUBLISHED[0]}", node, path, PUBLISHED[1])


def name_of_pair(reading: PlacedReading, node: Node, path: str) -> Scalar | None:
    if isinstance(node, Scalar):
        return node
    reading.text(node, path)
    return None


NAMED = Shape({"name": name_of_pair, "value": as_it_is})


# network


def network(reading: PlacedReading, node: Node, path: str) -> dict[str, Any]:
    """Its ports, and the node that names it."""
    return read_fields(reading, node, path, NETWORK)


def _listed(reading: PlacedReading, node: Node, path: str) -> Found:
    """PWM's own way: `{port, protocol}`; what `config.ports` takes is taken here, too."""
    reading.says(node, path, "ports")
    items = sequence(reading, node, path)
    if len(items) > PORTS_LIMIT:
        reading.problem(f"has {len(items):,} entries; {PORTS_LIMIT} at most", node, path)
        return []
    found: Found = []
    for item, here in items:
        one = _one(reading, item, here) if isinstance(item, Pairs) else port(reading, item, here)
        if one:
            found.append((item, here, one))
    return found


def _one(reading: PlacedReading, node: Node, path: str) -> Port | None:
    said = read_fields(reading, node, path, PORT)
    if lacks(node, "port"):
        reading.problem("is missing", node, f"{path}.port", "for example 'port: 8888'")
    return Port(port=said["port"], protocol=said.get("protocol", "tcp")) if "port" in said else None


def _number(reading: PlacedReading, node: Node, path: str) -> int | None:
    return reading.whole(node, path, 1, LARGEST)


def _protocol(reading: PlacedReading, node: Node, path: str) -> str | None:
    text = reading.text(node, path)
    if text is None or text.lower() in PROTOCOLS:
        return text and text.lower()
    reading.problem(f"must be {' or '.join(PROTOCOLS)}, not '{shorten(text)}'", node, path)
    return None


PORT = Shape({"port": _number, "protocol": _protocol}, {"hostPort": PUBLISHED})
NETWORK = Shape({"name": as_it_is, "ports": _listed})
