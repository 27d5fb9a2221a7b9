"""Read `volumes` of a workload: a volume by name or, with a size or medium and no name, scratch.

A volume with a `storage` is made there on its first use; one without, on the disk of the node that it is first used
on. Only `autoCreate: false` says that it must be there, and a dataset of the shared group is never made by itself.
"""

from __future__ import annotations

from typing import Any

from penstock.dialects.reader import PlacedReading, Shape, flag, lacks, read_fields, sequence
from penstock.dialects.task.mounts import (
    MOUNTS_LIMIT,
    SCRATCH,
    Mounted,
    group,
    is_reference,
    made_on,
    sub_path,
)
from penstock.dialects.yaml import Node, Pairs
from penstock.domain.names import shorten
from penstock.domain.paths import NotAMountPath, mount_path
from penstock.domain.policy import EVERYTHING, SHARED_GROUP
from penstock.domain.workloads import Medium, Mount, Scratch

POLICIES = {"readonly": True, "rw": False}


def volumes(reading: PlacedReading, node: Node, path: str) -> Mounted:
    reading.says(node, path, "volumes")
    items = sequence(reading, node, path)
    if len(items) > MOUNTS_LIMIT:
        reading.problem(f"has {len(items):,} entries; {MOUNTS_LIMIT} at most", node, path)
        return (), ()
    found: dict[str, Mount | Scratch] = {}
    for item, here in items:
        there = _there(reading, item, here)
        if there and there.path in found:
            reading.problem(f"'{there.path}' has something mounted already", item, f"{here}.target")
        elif there:
            found[there.path] = there
    return (
        tuple(there for there in found.values() if isinstance(there, Mount)),
        tuple(there for there in found.values() if isinstance(there, Scratch)),
    )


def _there(reading: PlacedReading, node: Node, path: str) -> Mount | Scratch | None:
    before = len(reading.problems)
    scratch = isinstance(node, Pairs) and lacks(node, "name") and any(key.text in SCRATCH for key, _ in node.items)
    said = read_fields(reading, node, path, SCRATCHES if scratch else VOLUMES)
    for key, example in (("target", "/data"), *([] if scratch else [("name", "ml-data")])):
        if lacks(node, key):
            reading.problem("is missing", node, f"{path}.{key}", f"for example '{key}: {example}'")
    if len(reading.problems) > before:
        return None
    where = said["target"]
    reading.says(node, path, "volumes", where)
    if scratch:
        reading.says(node, f"{path}.size", "volumes", where, "size")
        return Scratch(path=where, medium=said.get("medium", Medium.disk), size_bytes=said.get("size"))
    return Mount(
        path=where,
        volume=said["name"],
        read_only=said.get("policy", False),
        group=said.get("group"),
        storage=_storage(reading, said, path),
        sub_path=said.get("subPath"),
    )


def _storage(reading: PlacedReading, said: dict[str, Any], path: str) -> str | None:
    """Where it is made; None: it must be there."""
    named: str | None = said.get("storage")
    if said.get("autoCreate") is False:
        if named:
            reading.notices.append(f"{path}.storage: is not asked, because 'autoCreate: false' makes no volume")
        return None
    return named or (EVERYTHING if said.get("autoCreate") else unsaid_storage(said.get("group")))


def unsaid_storage(group: str | None) -> str | None:
    """Where a volume of this group is made if nothing is said of it."""
    return None if group == SHARED_GROUP else EVERYTHING


def _name(reading: PlacedReading, node: Node, path: str) -> str | None:
    text = reading.text(node, path)
    if text is None or is_reference(text):
        return text
    reading.problem(f"'{shorten(text)}' is not a volume's name", node, path, "for example ml-data")
    return None


def target(reading: PlacedReading, node: Node, path: str) -> str | None:
    text = reading.text(node, path)
    if text is None:
        return None
    try:
        return mount_path(text)
    except NotAMountPath as error:
        reading.problem(str(error), node, path, error.hint)
        return None


def policy(reading: PlacedReading, node: Node, path: str) -> bool | None:
    """Is it only read?"""
    text = reading.text(node, path, "readonly or rw")
    if text is None or text in POLICIES:
        return None if text is None else POLICIES[text]
    hint = "write readonly" if text.lower().replace("-", "") in ("readonly", "ro") else None
    reading.problem(f"must be readonly or rw, not '{shorten(text)}'", node, path, hint)
    return None


VOLUMES = Shape(
    {
        "name": _name,
        "group": group,
        "storage": made_on,
        "target": target,
        "subPath": sub_path,
        "policy": policy,
        "autoCreate": flag,
    }
)
SCRATCHES = Shape({"target": target, **SCRATCH})
