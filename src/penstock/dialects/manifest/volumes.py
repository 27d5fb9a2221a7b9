"""Read a PersistentVolumeClaim as a volume to create; `volumes` and `volumeMounts` as mounts and scratch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.dialects.manifest.container import size
from penstock.dialects.manifest.metadata import reference
from penstock.dialects.manifest.unsupported import MOUNT_PLAIN, MOUNT_REFUSED, PVC_PLAIN, PVC_REFUSED, VOLUME_REFUSED
from penstock.dialects.reader import (
    FieldRules,
    ReadContext,
    as_it_is,
    each_once,
    fields,
    fields_of,
    flag,
    placed,
    read_fields,
    sequence,
    text,
)
from penstock.dialects.task.mounts import (
    MOUNTS_LIMIT,
    Mounted,
    access_mode,
    mount_target,
    mounted_apart,
    size_as_written,
)
from penstock.dialects.yaml import Node, Pairs, Scalar
from penstock.domain.names import shorten
from penstock.domain.paths import SHARED_MEMORY
from penstock.domain.quantities import show_bytes
from penstock.domain.volumes import AccessMode
from penstock.domain.workloads import Medium, Mount, Scratch

DEFAULT_SHARED_MEMORY = 64 * 1024**2
"""The size Kubernetes gives /dev/shm if nothing is mounted there."""
Said = tuple[Node, str] | None


@dataclass(slots=True)
class VolumeEntry:
    node: Node
    path: str
    claim: str | None = None
    read_only: bool = False
    medium: Medium = Medium.disk
    size_bytes: int | None = None
    mounted: list[str] = field(default_factory=list)


def mounted(context: ReadContext, volumes: Said, mounts: Said, memory_limit: int | None) -> Mounted:
    """Return every mount and scratch, and /dev/shm as Kubernetes would make it."""
    sources = _sources(context, *volumes) if volumes else {}
    found: dict[str, Mount | Scratch] = {}
    places = sequence(context, *mounts) if mounts else []
    if len(places) > MOUNTS_LIMIT and mounts:
        context.problem(f"has {len(places):,} entries; {MOUNTS_LIMIT} at most", *mounts)
        places = []
    for node, path in places:
        there = _place(context, node, path, sources, found)
        if there:
            found[there.path] = there
    for name, source in sources.items():
        if not source.mounted and not context.problems:
            context.notices.append(f"{source.path}: the volume '{shorten(name)}' is mounted nowhere and not used")
    claims, asked = mounted_apart(found.values())
    scratch = tuple(_fitting(context, there, memory_limit) for there in asked)
    return claims, scratch if SHARED_MEMORY in found else (*scratch, default_shared_memory(memory_limit))


def default_shared_memory(memory_limit: int | None) -> Scratch:
    """Return Kubernetes' default /dev/shm; it counts as memory, so a lower memory limit is its true size."""
    amount = min(DEFAULT_SHARED_MEMORY, memory_limit or DEFAULT_SHARED_MEMORY)
    return Scratch(path=SHARED_MEMORY, medium=Medium.memory, size_bytes=amount)


def is_usual(scratch: Scratch, memory_limit: int | None) -> bool:
    """Tell whether it is the default /dev/shm of a task: half of the memory."""
    half = memory_limit // 2 if memory_limit else None
    return scratch == Scratch(path=SHARED_MEMORY, medium=Medium.memory, size_bytes=half)


def _fitting(context: ReadContext, scratch: Scratch, memory_limit: int | None) -> Scratch:
    """Limit a ramdisk to the memory limit, as Kubernetes does."""
    if scratch.medium is Medium.disk or not memory_limit or (scratch.size_bytes or 0) <= memory_limit:
        return scratch
    context.notices.append(f"{scratch.path}: has the {show_bytes(memory_limit)} of the memory limit, not more")
    return scratch.model_copy(update={"size_bytes": memory_limit})


# volumes


def _sources(context: ReadContext, node: Node, path: str) -> dict[str, VolumeEntry]:
    found: dict[str, VolumeEntry] = {}
    for item, here in sequence(context, node, path):
        before = len(context.problems)
        said = read_fields(context, item, here, VOLUME)
        keys = {key.text for key, _ in item.items} if isinstance(item, Pairs) else set()
        name = said.get("name")
        if name in found:
            context.problem(f"another volume is called '{shorten(name)}' already", item, f"{here}.name")
        source = _source(said, keys, item, here)
        if source is None and len(context.problems) == before:
            context.problem("names no source", item, here, "persistentVolumeClaim, or 'emptyDir: {}'")
        if name is not None:
            found.setdefault(name, source or VolumeEntry(item, here))
    return found


def _source(said: dict[str, Any], keys: set[str], node: Node, path: str) -> VolumeEntry | None:
    if "persistentVolumeClaim" in said:
        claim = said["persistentVolumeClaim"]
        return VolumeEntry(node, path, claim=claim.get("claimName", ""), read_only=claim.get("readOnly", False))
    if "emptyDir" in keys:
        empty = said.get("emptyDir", {})
        return VolumeEntry(node, path, medium=empty.get("medium", Medium.disk), size_bytes=empty.get("sizeLimit"))
    return None


def _medium(context: ReadContext, node: Node, path: str) -> Medium | None:
    name = context.text(node, path)
    if name in ("", "Memory"):
        return Medium.memory if name else Medium.disk
    if name is not None:
        context.problem(f"'{shorten(name)}' is not supported: only '' (disk) and Memory are", node, path)
    return None


CLAIM = FieldRules(
    {"claimName": reference, "readOnly": flag}, required={"claimName": "for example 'claimName: ml-data'"}
)
EMPTY_DIR = FieldRules({"medium": _medium, "sizeLimit": size})
VOLUME = FieldRules(
    {"name": text, "persistentVolumeClaim": fields(CLAIM), "emptyDir": fields(EMPTY_DIR)},
    VOLUME_REFUSED,
    required={"name": None},
)


# volumeMounts


def _place(
    context: ReadContext, node: Node, path: str, sources: dict[str, VolumeEntry], found: dict[str, Mount | Scratch]
) -> Mount | Scratch | None:
    before = len(context.problems)
    said = read_fields(context, node, path, MOUNT)
    missing = [key for key in ("name", "mountPath") if key not in said]
    if missing and len(context.problems) == before:
        context.problem("is missing", node, f"{path}.{missing[0]}")
    if missing:
        return None
    name, (where, at) = said["name"], said["mountPath"]
    source = sources.get(name)
    if source is None:
        there = f"the volumes are {', '.join(sources)}" if sources else "there are no volumes"
        context.problem(f"there is no volume '{shorten(name)}'", node, f"{path}.name", shorten(there, 200))
        return None
    if where in found:
        context.problem(f"'{where}' has something mounted already", at, f"{path}.mountPath")
    context.says(at, f"{path}.mountPath", "volumes", where)
    source.mounted.append(where)
    if source.claim is not None:
        return Mount(path=where, volume=source.claim, read_only=source.read_only or said.get("readOnly", False))
    return _scratch(context, node, path, source, said.get("readOnly", False))


def _scratch(context: ReadContext, node: Node, path: str, source: VolumeEntry, read_only: bool) -> Scratch:
    if len(source.mounted) > 1:
        message = f"an emptyDir has one path here, and this one is at '{source.mounted[0]}' already"
        context.problem(message, node, f"{path}.mountPath", "mount it once, or link from the other path to it")
    if read_only:
        context.problem("an emptyDir nobody may write to has no use", node, f"{path}.readOnly", "remove it")
    return Scratch(path=source.mounted[-1], medium=source.medium, size_bytes=source.size_bytes)


def _path(context: ReadContext, node: Node, path: str) -> tuple[str, Node] | None:
    where = mount_target(context, node, path)
    return None if where is None else (where, node)


MOUNT = FieldRules({"name": text, "mountPath": _path, "readOnly": flag}, MOUNT_REFUSED, MOUNT_PLAIN)


def claim(context: ReadContext, node: Node, path: str) -> dict[str, Any]:
    said = read_fields(context, node, path, PVC)
    if "accessModes" not in said and _complete(context, path, "accessModes"):
        context.problem("is missing", node, f"{path}.accessModes", "for example [ReadWriteOnce]")
    if "resources" not in said and _complete(context, path, "resources"):
        context.problem("is missing", node, f"{path}.resources.requests.storage", "for example 10Gi")
    return {
        "size": said.get("resources"),
        "storage_class": said.get("storageClassName"),
        "access_modes": said.get("accessModes", ()),
    }


def _complete(context: ReadContext, path: str, name: str) -> bool:
    """Tell whether no problem was noted for the field yet."""
    return not any(problem.get("field", "").startswith(f"{path}.{name}") for problem in context.problems)


def _storage_class(context: ReadContext, node: Node, path: str) -> str | None:
    if isinstance(node, Scalar) and not node.text:
        context.problem("is empty: only volumes that are made when they are asked for are carried", node, path)
        return None
    return reference(context, node, path)


def _modes(context: ReadContext, node: Node, path: str) -> tuple[AccessMode, ...] | None:
    return each_once(context, sequence(context, node, path), access_mode) or None


def _resources(context: ReadContext, node: Node, path: str) -> str | None:
    said = read_fields(context, node, path, RESOURCES)
    size: str | None = fields_of(context, said, "requests", REQUESTS).get("storage")
    return size


REQUESTS = FieldRules({"storage": placed(size_as_written, "size")})
RESOURCES = FieldRules({"requests": as_it_is}, {"limits": ("a volume has the size it requests", "remove it")})
PVC = FieldRules(
    {
        "storageClassName": placed(_storage_class, "storage_class"),
        "accessModes": placed(_modes, "access_modes"),
        "resources": _resources,
    },
    PVC_REFUSED,
    PVC_PLAIN,
)
