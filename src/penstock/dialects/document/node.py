"""Read a Node: a Docker engine that takes work."""

from __future__ import annotations

import re
from typing import Any

from penstock.dialects.document.types import DocumentMetadata
from penstock.dialects.reader import (
    FieldRules,
    ReadContext,
    each_once,
    flag,
    matching,
    member,
    one_or_more,
    placed,
    read_fields,
    sequence,
    whole,
)
from penstock.dialects.task.mounts import size
from penstock.dialects.task.resources import GPUS_LIMIT, PRODUCT
from penstock.dialects.task.selectors import node_labels
from penstock.dialects.yaml import Node
from penstock.domain.nodes import Allows, Gpu, Host

HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])"
PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
ADDRESS = re.compile(
    rf"unix://(?:/[A-Za-z0-9._-]+){{1,20}}\Z|ssh://(?:[A-Za-z0-9_][A-Za-z0-9._-]{{0,31}}@)?{HOST}(?::{PORT})?\Z"
    rf"|tcp://{HOST}:{PORT}\Z"
)
UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
MINORS = 255
EXAMPLE = "unix:///var/run/docker.sock, ssh://user@host or tcp://host:2376"


def node_spec(context: ReadContext, about: DocumentMetadata, top: Node, path: str) -> Host | None:
    said = read_fields(context, top, path, NODE)
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


_address = matching(ADDRESS.match, "is not an address of a Docker engine", f"one of {EXAMPLE}")
"""Reads the address where Docker listens."""
_allowed = member(Allows, "something a node takes")


def _allow(context: ReadContext, top: Node, path: str) -> tuple[Allows, ...]:
    items = one_or_more(top, path)
    if not items:
        context.problem("allows nothing", top, path, "'maintenance: true' lets nothing new come")
    said = each_once(context, items, _allowed)
    return tuple(each for each in Allows if each in said)


# gpus


def _gpus(context: ReadContext, top: Node, path: str) -> list[dict[str, Any]]:
    """Return the GPUs as written; what is left out follows from their place in the list."""
    items = sequence(context, top, path)
    if context.too_many(items, GPUS_LIMIT, top, path):
        return []
    found = []
    for item, here in items:
        said = read_fields(context, item, here, GPU)
        found.append({**said, "place": (item, here)})
    return found


def _named(context: ReadContext, gpus: list[dict[str, Any]], name: str) -> tuple[Gpu, ...]:
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


_product = matching(PRODUCT.match, "names no GPU product", "for example 'Tesla V100-SXM2-16GB'")
_uuid = matching(UUID.match, "is not a GPU's uuid", "as nvidia-smi -L shows it")
GPU = FieldRules(
    {"product_name": _product, "memory": size, "minor_number": whole(0, MINORS), "uuid": _uuid},
    required={"product_name": "for example 'product_name: Tesla V100'", "memory": "for example 'memory: 16Gi'"},
)
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
    required={"address": f"one of {EXAMPLE}"},
)
