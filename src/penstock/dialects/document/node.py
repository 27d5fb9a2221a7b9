"""Read a Node: a Docker engine that takes work."""

from __future__ import annotations

import re
from typing import Any

from penstock.dialects.document.types import DocumentMetadata
from penstock.dialects.reader import FieldRules, PlacedContext, flag, matching, placed, read_fields, sequence, whole
from penstock.dialects.task.mounts import size
from penstock.dialects.task.resources import GPUS_LIMIT, PRODUCT
from penstock.dialects.task.selectors import node_labels
from penstock.dialects.yaml import Items, Node, Scalar
from penstock.domain.names import shorten
from penstock.domain.nodes import Allows, Gpu, Host

HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
ADDRESS = re.compile(
    rf"unix://(?:/[A-Za-z0-9._-]+){{1,20}}\Z|ssh://(?:[A-Za-z0-9_][A-Za-z0-9._-]{{0,31}}@)?{HOST}(?::{PORT})?\Z"
    rf"|tcp://{HOST}:{PORT}\Z"
)
AGENT = re.compile(r"(?:https?://)?([A-Za-z0-9][A-Za-z0-9.-]{0,252})(?::[0-9]{1,5})?/?\Z")
UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
MINORS = 255
EXAMPLE = "unix:///var/run/docker.sock, ssh://user@host or tcp://host:2376"


def node_spec(context: PlacedContext, about: DocumentMetadata, top: Node, path: str) -> Host | None:
    said = read_fields(context, top, path, NODE)
    context.require(top, path, "address", f"one of {EXAMPLE}")
    gpus = _named(context, said.get("gpus", []), about.name or "")
    if context.problems or about.name is None:
        return None
    return Host(
        name=about.name,
        group=about.group or "",
        address=said["address"],
        allows=said.get("allow", tuple(Allows)),
        maintenance=said.get("maintenance", False),
        labels=said.get("labels", {}),
        gpus=gpus,
    )


def _address(context: PlacedContext, top: Node, path: str) -> str | None:
    """Read the address where Docker listens; PWM's list of addresses of its agent is refused."""
    items = top.items if isinstance(top, Items) else [top]
    if isinstance(top, Items) or (isinstance(top, Scalar) and _agents(top.text)):
        first = items[0].text if items and isinstance(items[0], Scalar) else ""
        found = AGENT.match(first)
        host = shorten(found[1]) if found else "host"
        message = "is one address, that of a Docker engine: there is no agent of Penstock's on a node"
        context.problem(message, top, path, f"for example ssh://user@{host}, or tcp://{host}:2376")
        return None
    text = context.text(top, path, EXAMPLE)
    if text is None:
        return None
    if not ADDRESS.match(text):
        context.problem(f"'{shorten(text)}' is not an address of a Docker engine", top, path, f"one of {EXAMPLE}")
        return None
    return text


def _agents(text: str) -> bool:
    return not text.startswith(("unix:", "ssh:", "tcp:")) and AGENT.match(text) is not None


def _allow(context: PlacedContext, top: Node, path: str) -> tuple[Allows, ...]:
    items = top.items if isinstance(top, Items) else [top]
    words = [(item, context.text(item, path)) for item in items]
    for item, word in words:
        if word is not None and word not in Allows.__members__:
            context.problem(
                f"'{shorten(word)}' is not something a node takes", item, path, f"{' and '.join(Allows)} are"
            )
    if not items:
        context.problem("allows nothing", top, path, "'maintenance: true' lets nothing new come")
    said = {word for _, word in words}
    return tuple(each for each in Allows if each in said)


# gpus


def _gpus(context: PlacedContext, top: Node, path: str) -> list[dict[str, Any]]:
    """Return the GPUs as written; what is left out follows from their place in the list."""
    items = sequence(context, top, path)
    if context.too_many(items, GPUS_LIMIT, top, path):
        return []
    found = []
    for item, here in items:
        said = read_fields(context, item, here, GPU)
        for key, example in (("product_name", "Tesla V100"), ("memory", "16Gi")):
            context.require(item, here, key, f"for example '{key}: {example}'")
        found.append({**said, "place": (item, here)})
    return found


def _named(context: PlacedContext, gpus: list[dict[str, Any]], name: str) -> tuple[Gpu, ...]:
    found: list[Gpu] = []
    for number, said in enumerate(gpus):
        item, here = said["place"]
        minor = said.get("minor_number", number)
        uuid = said.get("uuid") or declared_uuid(name, minor)
        if any(minor == gpu.minor or uuid == gpu.uuid for gpu in found):
            context.problem(f"another GPU has this number or uuid already: {minor}, {uuid}", item, here)
        if not context.problems:
            product, memory = said["product_name"], said["memory"]
            found.append(Gpu(uuid=uuid, product=product, memory_bytes=memory, minor=minor))
    return tuple(found)


def declared_uuid(name: str, minor: int) -> str:
    """Return the id of a GPU whose uuid is not given."""
    return f"GPU-{name}-{minor}"


def _product(context: PlacedContext, top: Node, path: str) -> str | None:
    return matching(context, top, path, PRODUCT.match, "names no GPU product", "for example 'Tesla V100-SXM2-16GB'")


_minor = whole(0, MINORS)


def _uuid(context: PlacedContext, top: Node, path: str) -> str | None:
    return matching(context, top, path, UUID.match, "is not a GPU's uuid", "as nvidia-smi -L shows it")


GPU = FieldRules({"product_name": _product, "memory": size, "minor_number": _minor, "uuid": _uuid})
NODE = FieldRules(
    {
        "address": placed(_address, "address"),
        "allow": placed(_allow, "allow"),
        "maintenance": flag,
        "labels": placed(node_labels, "labels"),
        "gpus": placed(_gpus, "gpus"),
    },
    {
        "properties": ("what a node has is seen there", "remove it"),
        "status": ("the server wrote it", "remove it"),
        "allows": ("PWM's word is 'allow'", "write allow"),
    },
)
