"""Read `ports` and `terminal`: how a person reaches a running program."""

from __future__ import annotations

import re

from penstock.dialects.reader import ReadContext
from penstock.dialects.yaml import Items, Node
from penstock.domain.names import shorten
from penstock.domain.workloads import Port

PORTS_LIMIT = 100
LARGEST = 65_535
PORT = re.compile(r"([1-9][0-9]{0,4})(?:/([A-Za-z]{1,8}))?\Z", re.ASCII)
PROTOCOLS = ("tcp", "udp")
EXAMPLE = "for example 8888, or 53/udp"


def ports(context: ReadContext, node: Node, path: str) -> tuple[Port, ...]:
    """`8888`, or a list of such."""
    items = node.items if type(node) is Items else [node]
    if context.too_many(items, PORTS_LIMIT, node, path):
        return ()
    places = [path if item is node else f"{path}[{number}]" for number, item in enumerate(items)]
    read = [(item, here, port(context, item, here)) for item, here in zip(items, places, strict=True)]
    return once(context, [(item, here, found) for item, here, found in read if found])


def once(context: ReadContext, ports: list[tuple[Node, str, Port]]) -> tuple[Port, ...]:
    found: dict[Port, None] = {}
    for node, path, each in ports:
        if each in found:
            context.problem(f"the port {show_port(each)} is here twice", node, path)
        found[each] = None
    return tuple(found)


def port(context: ReadContext, node: Node, path: str) -> Port | None:
    text = context.text(node, path, EXAMPLE)
    if text is None:
        return None
    found = PORT.match(text)
    protocol = ((found and found[2]) or "tcp").lower()
    if not found or int(found[1]) > LARGEST or protocol not in PROTOCOLS:
        context.problem(f"'{shorten(text)}' is not a port: 1 to {LARGEST:,}, tcp or udp", node, path, EXAMPLE)
        return None
    return Port(port=int(found[1]), protocol=protocol)


def show_port(port: Port) -> int | str:
    return port.port if port.protocol == "tcp" else f"{port.port}/{port.protocol}"


def terminal(context: ReadContext, node: Node, path: str) -> bool | None:
    return context.flag(node, path)
