"""Read `volumes` of a workload: a volume by name or, with a size or medium and no name, scratch.

A volume with a `storage` is made there on its first use; one without, on the disk of the node that it is first used
on. Only `autoCreate: false` says that it must be there, and a dataset of the shared group is never made by itself.
"""

from __future__ import annotations

from typing import Any

from penstock.dialects.reader import FieldRules, PlacedContext, flag, lacks, read_fields, sequence
from penstock.dialects.task.mounts import (
    MOUNTS_LIMIT,
    SCRATCH,
    Mounted,
    group,
    is_reference,
    made_on,
    mount_target,
    mounted_apart,
    sub_path,
)
from penstock.dialects.yaml import Node, Pairs
from penstock.domain.names import shorten
from penstock.domain.users import EVERYTHING, SHARED_GROUP
from penstock.domain.workloads import Medium, Mount, Scratch

POLICIES = {"readonly": True, "rw": False}


def volumes(context: PlacedContext, node: Node, path: str) -> Mounted:
    context.says(node, path, "volumes")
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


def _there(context: PlacedContext, node: Node, path: str) -> Mount | Scratch | None:
    before = len(context.problems)
    scratch = isinstance(node, Pairs) and lacks(node, "name") and any(key.text in SCRATCH for key, _ in node.items)
    said = read_fields(context, node, path, SCRATCHES if scratch else VOLUMES)
    for key, example in (("target", "/data"), *([] if scratch else [("name", "ml-data")])):
        context.require(node, path, key, f"for example '{key}: {example}'")
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


def _storage(context: PlacedContext, said: dict[str, Any], path: str) -> str | None:
    """Where it is made; None: it must be there."""
    named: str | None = said.get("storage")
    if said.get("autoCreate") is False:
        if named:
            context.notices.append(f"{path}.storage: is not asked, because 'autoCreate: false' makes no volume")
        return None
    return named or (EVERYTHING if said.get("autoCreate") else unsaid_storage(said.get("group")))


def unsaid_storage(group: str | None) -> str | None:
    """Where a volume of this group is made if nothing is said of it."""
    return None if group == SHARED_GROUP else EVERYTHING


def _name(context: PlacedContext, node: Node, path: str) -> str | None:
    text = context.text(node, path)
    if text is None or is_reference(text):
        return text
    context.problem(f"'{shorten(text)}' is not a volume's name", node, path, "for example ml-data")
    return None


def policy(context: PlacedContext, node: Node, path: str) -> bool | None:
    """Is it only read?"""
    text = context.text(node, path, "readonly or rw")
    if text is None or text in POLICIES:
        return None if text is None else POLICIES[text]
    hint = "write readonly" if text.lower().replace("-", "") in ("readonly", "ro") else None
    context.problem(f"must be readonly or rw, not '{shorten(text)}'", node, path, hint)
    return None


VOLUMES = FieldRules(
    {
        "name": _name,
        "group": group,
        "storage": made_on,
        "target": mount_target,
        "subPath": sub_path,
        "policy": policy,
        "autoCreate": flag,
    }
)
SCRATCHES = FieldRules({"target": mount_target, **SCRATCH})
