"""Read a Volume, a Storage, and the `volumes` that a Workload mounts.

A Workload mounts a volume by name or, with a size or medium and no name, scratch. A volume with a `storage` is made
there on its first use; one without, on the disk of the node where it is first used. Only `autoCreate: false` says that
it must exist, and a dataset of the shared group is never made by itself.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.dialects.document.types import AskedVolume, DocumentMetadata
from penstock.dialects.reader import (
    FieldRules,
    ReadContext,
    Refusal,
    each_once,
    fields,
    flag,
    lacks,
    matching,
    member,
    one_of,
    one_or_more,
    placed,
    read_fields,
    sequence,
)
from penstock.dialects.task.mounts import (
    MOUNTS_LIMIT,
    SCRATCH,
    Mounted,
    access_mode,
    group,
    is_reference,
    made_on,
    mount_target,
    mounted_apart,
    size_as_written,
    storage,
    sub_path,
)
from penstock.dialects.task.selectors import node_name
from penstock.dialects.yaml import Node, Pairs
from penstock.domain.names import shorten
from penstock.domain.policy import EVERYTHING, SHARED_GROUP
from penstock.domain.volumes import AccessMode, Storage, StorageKind
from penstock.domain.workloads import Medium, Mount, Scratch


def volumes(context: ReadContext, node: Node, path: str) -> Mounted:
    items = sequence(context, node, path)
    if context.too_many(items, MOUNTS_LIMIT, node, path):
        return (), ()
    found: dict[str, Mount | Scratch] = {}
    for item, here in items:
        there = _there(context, item, here)
        if there and there.path in found:
            context.problem(f"'{there.path}' has something mounted already", item, f"{here}.target")
        elif there:
            found[there.path] = there
    return mounted_apart(found.values())


def _there(context: ReadContext, node: Node, path: str) -> Mount | Scratch | None:
    before = len(context.problems)
    scratch = isinstance(node, Pairs) and lacks(node, "name") and any(key.text in SCRATCH for key, _ in node.items)
    said = read_fields(context, node, path, SCRATCHES if scratch else VOLUMES)
    if len(context.problems) > before:
        return None
    where = said["target"]
    context.says(node, path, "volumes", where)
    if scratch:
        context.says(node, f"{path}.size", "volumes", where, "size")
        return Scratch(path=where, medium=said.get("medium", Medium.disk), size_bytes=said.get("size"))
    return Mount(
        path=where,
        volume=said["name"],
        read_only=said.get("policy", False),
        group=said.get("group"),
        storage=_storage(context, said, path),
        sub_path=said.get("subPath"),
    )


def _storage(context: ReadContext, said: dict[str, Any], path: str) -> str | None:
    """Return the storage the volume is made on; None if it must exist."""
    named: str | None = said.get("storage")
    if said.get("autoCreate") is False:
        if named:
            context.notices.append(f"{path}.storage: is not asked, because 'autoCreate: false' makes no volume")
        return None
    return named or (EVERYTHING if said.get("autoCreate") else unsaid_storage(said.get("group")))


def unsaid_storage(group: str | None) -> str | None:
    return None if group == SHARED_GROUP else EVERYTHING


policy = one_of({"readonly": True, "rw": False})
"""Reads whether the volume is read-only."""
TARGET = {"target": "for example 'target: /data'"}
VOLUMES = FieldRules(
    {
        "name": matching(is_reference, "is not a volume's name", "for example ml-data"),
        "group": group,
        "storage": made_on,
        "target": mount_target,
        "subPath": sub_path,
        "policy": policy,
        "autoCreate": flag,
    },
    required={**TARGET, "name": "for example 'name: ml-data'"},
)
SCRATCHES = FieldRules({"target": mount_target, **SCRATCH}, required=TARGET)


def volume_spec(context: ReadContext, about: DocumentMetadata, node: Node, path: str) -> AskedVolume | None:
    said = read_fields(context, node, path, VOLUME)
    if "storage" in said and "storage_class" in said:
        message = "cannot be together with 'storage': it is made on one or by the other"
        context.problem(message, node, f"{path}.storage_class", "keep one of them")
    if context.problems or about.name is None:
        return None
    renamed = {"subPath": "sub_path", "policy": "readonly"}
    return AskedVolume(name=about.name, **{renamed.get(key, key): value for key, value in said.items()})


def _modes(context: ReadContext, node: Node, path: str) -> tuple[AccessMode, ...]:
    return each_once(context, one_or_more(node, path), access_mode)


ELSEWHERE: dict[str, Refusal] = {
    "target": ("a workload says where it mounts it", "write it in the workload's spec.volumes"),
    "storageClassName": ("the storage class has our own word here", "write storage_class"),
    "accessModes": ("the access modes have our own word here", "write access_modes"),
    "status": ("the server wrote it", "remove it"),
}
VOLUME = FieldRules(
    {
        "storage": placed(made_on, "storage"),
        "subPath": placed(sub_path, "sub_path"),
        "policy": placed(policy, "readonly"),
        "size": placed(size_as_written, "size"),
        "storage_class": placed(storage, "storage_class"),
        "access_modes": placed(_modes, "access_modes"),
    },
    ELSEWHERE,
)


SERVER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?\Z|\[?[0-9A-Fa-f:]{2,39}\]?\Z")
"""A host or an address, and nothing that a list of mount options could take for an option."""
PATH_LIMIT = 1024
EXAMPLE = "for example 'nfs: {server: 10.0.0.5, path: /export}' or 'local: {node: gpu01}'"


def storage_spec(context: ReadContext, about: DocumentMetadata, node: Node, path: str) -> Storage | None:
    before = len(context.problems)
    said = read_fields(context, node, path, STORAGE)
    kinds = [kind for kind in StorageKind if kind in said]
    if len(kinds) != 1 and len(context.problems) == before:
        message = "says where it is twice" if kinds else "says neither an NFS export nor a node"
        context.problem(message, node, path, EXAMPLE)
    elif kinds and said.get("kind", kinds[0]) not in kinds:
        message = f"is '{said['kind']}', and there is '{kinds[0]}' beside it"
        context.problem(message, node, f"{path}.kind", f"write {' or '.join(StorageKind)}, as the key beside it")
    if context.problems or about.name is None:
        return None
    return Storage(name=about.name, group=about.group or "", kind=kinds[0], **said[kinds[0]])


_server = matching(SERVER.match, "is not a host or address", "for example 10.0.0.5")


def _export(context: ReadContext, node: Node, path: str) -> str | None:
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


def _a_node(context: ReadContext, node: Node, path: str) -> str | None:
    name = node_name(context, node, path)
    if name is None and not context.problems:
        context.problem("must be one node", node, path, "for example gpu01")
    return name


SEEN: Refusal = ("it is seen where the storage is", "remove it")
NFS = FieldRules(
    {"server": _server, "path": _export},
    required={"server": "for example 'server: 10.0.0.5'", "path": "for example 'path: /export'"},
)
LOCAL = FieldRules({"node": _a_node}, required={"node": "for example 'node: gpu01'"})
STORAGE = FieldRules(
    {
        "kind": member(StorageKind, "a kind of storage"),
        "nfs": placed(fields(NFS), "server"),
        "local": placed(fields(LOCAL), "node"),
    },
    {"accessModes": SEEN, "capacity": SEEN, "status": ("the server wrote it", "remove it")},
)
