"""`volumes` of a workload: each a volume by name, or, with a size or medium and no name, scratch.

A volume with a `storage` is made there on its first use; one without must be there. `autoCreate: true` without one is
the disk of the node, if the workload names its node: where else it would run is not known before it does.
"""

from __future__ import annotations

from typing import Any

from penstock.dialects.fields import PlacedReading, Shape, flag, lacks, read_fields, sequence
from penstock.dialects.task.mounts import (
    MOUNTS_LIMIT,
    SCRATCH,
    Mounted,
    group,
    is_reference,
    storage,
    sub_path,
)
from penstock.dialects.text import Node, Pairs, Scalar
from penstock.domain.names import shorten
from penstock.domain.paths import NotAMountPath, mount_path
from penstock.domain.users import EVERYTHING
from penstock.domain.workloads import Medium, Mount, Scratch
from penstock.errors import Problem

LOCAL = "-local"
"""A node's own disk is a storage of this name."""
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
    """Where it is made. `autoCreate: false` makes none; without a storage, true is `pwm.all` till a node is known."""
    named: str | None = said.get("storage")
    if said.get("autoCreate") is False and named:
        reading.notices.append(f"{path}.storage: is not asked, because 'autoCreate: false' makes no volume")
        return None
    return named or (EVERYTHING if said.get("autoCreate") else None)


def on_the_node(reading: PlacedReading, mounts: tuple[Mount, ...], node: str | None, path: str) -> tuple[Mount, ...]:
    """With the disk of the node as the storage of what is to be made anywhere."""
    for mount in mounts:
        if mount.storage == EVERYTHING and node is None:
            where, field = reading.places["volumes", mount.path]
            message = "is to be made, and neither its storage nor the workload's node is said"
            hint = f"write 'storage: NAME' beside it, or {path}.selectors.node"
            reading.problems.append(Problem(message, where=where, field=field, hint=hint))
    update = {"storage": f"{node}{LOCAL}"}
    return tuple(mount.model_copy(update=update) if mount.storage == EVERYTHING else mount for mount in mounts)


def _storage_name(reading: PlacedReading, node: Node, path: str) -> str | None:
    """`pwm.all` is the disk of the node, as with `autoCreate` alone."""
    return EVERYTHING if isinstance(node, Scalar) and node.text == EVERYTHING else storage(reading, node, path)


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
        "storage": _storage_name,
        "target": target,
        "subPath": sub_path,
        "policy": policy,
        "autoCreate": flag,
    }
)
SCRATCHES = Shape({"target": target, **SCRATCH})
