"""Read `volumes`: which volume or scratch is mounted at which path.

`/data: ml-data` is a volume, `/data: ml-data:ro` read-only, `/data: {name: ml-data, read_only: true}` the same written
out. A mapping without a `name` is scratch, which lives and dies with the job: `/scratch: {size: 10Gi}` on disk,
`/dev/shm: {size: 2Gi, medium: memory}` in memory. A volume may be another group's, made on its first use, or mounted
in part: `/home: {name: home, storage: nfs01}`, `/data: {name: datasets, group: pwm.resource, sub_path: images}`.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.dialects.reader import ReadContext, Reader, flag, matching, member, one_of, parsed
from penstock.dialects.task.keys import read_keys
from penstock.dialects.yaml import Node, Pairs, Scalar
from penstock.domain.names import USER, VOLUME_REFERENCE, VOLUME_REFERENCE_LIMIT, shorten
from penstock.domain.paths import mount_path
from penstock.domain.paths import sub_path as directory_below
from penstock.domain.policy import EVERYTHING
from penstock.domain.quantities import parse_bytes
from penstock.domain.volumes import AccessMode
from penstock.domain.workloads import Medium, Mount, Scratch

Mounted = tuple[tuple[Mount, ...], tuple[Scratch, ...]]

MOUNTS_LIMIT = 100
READ_ONLY = ":ro"
EXAMPLE = "for example '/data: ml-data'"
SCRATCH_EXAMPLE = "for example {size: 10Gi} for scratch, or {name: ml-data} for a volume"


def mounts(context: ReadContext, node: Node, path: str) -> Mounted:
    pairs = context.pairs(node, path, EXAMPLE)
    if context.too_many(pairs, MOUNTS_LIMIT, node, path):
        return (), ()
    found: dict[str, Mount | Scratch] = {}
    for key, value in pairs:
        field = f"{path}.{shorten(key.text)}"
        where = mount_target(context, key, field)
        there = _there(context, value, field, where or "")
        if where in found:
            context.problem(f"'{where}' has {_named(found[where])}", key, field)
        elif where and there:
            found[where] = there
    return mounted_apart(found.values())


def mounted_apart(found: Iterable[Mount | Scratch]) -> Mounted:
    mounts, scratch = [], []
    for there in found:
        mounts.append(there) if isinstance(there, Mount) else scratch.append(there)
    return tuple(mounts), tuple(scratch)


def _named(there: Mount | Scratch) -> str:
    return f"a volume already: '{there.volume}'" if isinstance(there, Mount) else "a scratch already"


mount_target = parsed(mount_path)


def _there(context: ReadContext, node: Node, field: str, where: str) -> Mount | Scratch | None:
    if type(node) is Pairs:
        return _written_out(context, node, field, where)
    text = context.text(node, field, f"write the volume's name, {EXAMPLE}")
    if text is None:
        return None
    name = text.removesuffix(READ_ONLY)
    if not is_reference(name):
        message = f"'{shorten(text)}' is not a volume's name or id" if text else "names no volume"
        context.problem(message, node, field, EXAMPLE)
        return None
    return Mount(path=where, volume=name, read_only=name != text)


def is_reference(name: str) -> bool:
    return len(name) <= VOLUME_REFERENCE_LIMIT and VOLUME_REFERENCE.match(name) is not None


def _written_out(context: ReadContext, node: Pairs, field: str, where: str) -> Mount | Scratch | None:
    keys = {key.text for key, _ in node.items}
    readers = VOLUME if "name" in keys else SCRATCH if keys & SCRATCH.keys() else {**SCRATCH, **VOLUME}
    before = len(context.problems)
    said = read_keys(context, node.items, readers, (), f"{field}.")
    if len(context.problems) > before:
        return None
    if "name" in said:
        return Mount(path=where, volume=said.pop("name"), **said)
    if "size" in said or "medium" in said:
        return Scratch(path=where, medium=said.get("medium", Medium.disk), size_bytes=said.get("size"))
    context.problem("says neither a volume's name nor the size or medium of a scratch", node, field, SCRATCH_EXAMPLE)
    return None


def _name(context: ReadContext, node: Node, path: str) -> str | None:
    text = context.text(node, path, "for example ml-data")
    if text is None or is_reference(text):
        return text
    hint = "say 'read_only: true' beside it" if text.endswith(READ_ONLY) else "for example ml-data"
    context.problem(f"'{shorten(text)}' is not a volume's name or id", node, path, hint)
    return None


size = parsed(lambda text: parse_bytes(text, bare=False), "for example 10Gi")


def _as_written(text: str) -> str:
    parse_bytes(text)
    return text


size_as_written = parsed(_as_written, "for example 10Gi")
"""Reads the size of a volume to be created, and returns it as written."""
access_mode = member(AccessMode, "an access mode")
group = matching(
    USER.match,
    "is not a group's name: letters, digits, '.', '_', '@' and '-', 64 characters at most",
    "for example pwm.resource",
)
storage = matching(
    lambda name: is_reference(name) and name != EVERYTHING, "is not a storage's name", "for example nfs01"
)
sub_path = parsed(directory_below, "for example datasets/images")


def made_on(context: ReadContext, node: Node, path: str) -> str | None:
    """Read the storage of a new volume; `pwm.all` is the disk of whichever node uses it first."""
    return EVERYTHING if isinstance(node, Scalar) and node.text == EVERYTHING else storage(context, node, path)


VOLUME: dict[str, Reader] = {
    "name": _name,
    "read_only": flag,
    "group": group,
    "storage": made_on,
    "sub_path": sub_path,
}
SCRATCH: dict[str, Reader] = {"size": size, "medium": one_of({medium.value: medium for medium in Medium})}
