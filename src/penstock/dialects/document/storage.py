"""Read a Storage: an NFS export or a node's own disk that volumes come from."""

from __future__ import annotations

import re
from typing import Any

from penstock.dialects.document.metadata import DocumentMetadata
from penstock.dialects.reader import FieldRules, PlacedContext, Refusal, matching, placed, read_fields, text
from penstock.dialects.task.selectors import node_name
from penstock.dialects.yaml import Node
from penstock.domain.names import shorten
from penstock.domain.volumes import Storage, StorageKind

SERVER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?\Z|\[?[0-9A-Fa-f:]{2,39}\]?\Z")
"""A host or an address, and nothing that a list of mount options could take for an option."""
PATH_LIMIT = 1024
EXAMPLE = "for example 'nfs: {server: 10.0.0.5, path: /export}' or 'local: {node: gpu01}'"


def storage(context: PlacedContext, about: DocumentMetadata, node: Node, path: str) -> Storage | None:
    before = len(context.problems)
    said = read_fields(context, node, path, STORAGE)
    kinds = [kind for kind in StorageKind if kind in said]
    hint = f"write {' or '.join(StorageKind)}, as the key beside it"
    if "kind" in said and said["kind"] not in list(StorageKind):
        context.problem(f"'{shorten(said['kind'])}' is not a kind of storage", node, f"{path}.kind", hint)
    elif len(kinds) != 1 and len(context.problems) == before:
        message = "says where it is twice" if kinds else "says neither an NFS export nor a node"
        context.problem(message, node, path, EXAMPLE)
    elif "kind" in said and said["kind"] not in kinds and len(context.problems) == before:
        context.problem(
            f"is '{shorten(said['kind'])}', and there is '{kinds[0]}' beside it", node, f"{path}.kind", hint
        )
    if context.problems or about.name is None:
        return None
    return Storage(name=about.name, group=about.group or "", kind=kinds[0], **said[kinds[0]])


def _nfs(context: PlacedContext, node: Node, path: str) -> dict[str, Any]:
    return _whole(context, node, path, NFS, {"server": "10.0.0.5", "path": "/export"})


def _local(context: PlacedContext, node: Node, path: str) -> dict[str, Any]:
    return _whole(context, node, path, LOCAL, {"node": "gpu01"})


def _whole(context: PlacedContext, node: Node, path: str, shape: FieldRules, needed: dict[str, str]) -> dict[str, Any]:
    said = read_fields(context, node, path, shape)
    for key, example in needed.items():
        context.require(node, path, key, f"for example '{key}: {example}'")
    return said


def _server(context: PlacedContext, node: Node, path: str) -> str | None:
    return matching(context, node, path, SERVER, "is not a host or address", "for example 10.0.0.5")


def _export(context: PlacedContext, node: Node, path: str) -> str | None:
    where = context.text(node, path)
    if where is None:
        return None
    parts = [part for part in where.split("/") if part not in ("", ".")]
    wrong = not where.startswith("/") or ".." in parts or not where.isprintable() or "," in where
    if wrong or len(where.encode()) > PATH_LIMIT:
        message = f"'{shorten(where)}' is not an export: an absolute path without '..' and ','"
        context.problem(message, node, path, "for example /export/data")
        return None
    return "/" + "/".join(parts)


def _a_node(context: PlacedContext, node: Node, path: str) -> str | None:
    name = node_name(context, node, path)
    if name is None and not context.problems:
        context.problem("must be one node", node, path, "for example gpu01")
    return name


SEEN: Refusal = ("it is seen where the storage is", "remove it")
NFS = FieldRules({"server": _server, "path": _export})
LOCAL = FieldRules({"node": _a_node})
STORAGE = FieldRules(
    {"kind": text, "nfs": placed(_nfs, "server"), "local": placed(_local, "node")},
    {"accessModes": SEEN, "capacity": SEEN, "status": ("the server wrote it", "remove it")},
)
