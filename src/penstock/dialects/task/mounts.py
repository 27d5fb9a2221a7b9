"""Read `volumes`: which volume or scratch is mounted at which path.

`/data: ml-data` is a volume, `/data: ml-data:ro` read-only, `/data: {name: ml-data, read_only: true}` the same written
out. A mapping without a `name` is scratch, which lives and dies with the job: `/scratch: {size: 10Gi}` on disk,
`/dev/shm: {size: 2Gi, medium: memory}` in memory. A volume may be another group's, made on its first use, or mounted
in part: `/home: {name: home, storage: nfs01}`, `/data: {name: datasets, group: pwm.resource, sub_path: images}`.
"""

from __future__ import annotations

from typing import Any

from penstock.dialects.reader import Reading
from penstock.dialects.task.keys import Reader, read_keys
from penstock.dialects.yaml import Node, Pairs, Scalar
from penstock.domain.names import USER, VOLUME_REFERENCE, VOLUME_REFERENCE_LIMIT, shorten
from penstock.domain.paths import NotAMountPath, mount_path
from penstock.domain.paths import sub_path as directory_below
from penstock.domain.policy import EVERYTHING
from penstock.domain.quantities import NotAQuantity, parse_bytes
from penstock.domain.workloads import Medium, Mount, Scratch

Mounted = tuple[tuple[Mount, ...], tuple[Scratch, ...]]

MOUNTS_LIMIT = 100
READ_ONLY = ":ro"
EXAMPLE = "for example '/data: ml-data'"
SCRATCH_EXAMPLE = "for example {size: 10Gi} for scratch, or {name: ml-data} for a volume"


def mounts(reading: Reading, node: Node, path: str) -> Mounted:
    pairs = reading.pairs(node, path, EXAMPLE)
    if len(pairs) > MOUNTS_LIMIT:
        reading.problem(f"has {len(pairs):,} entries; {MOUNTS_LIMIT} at most", node, path)
        return (), ()
    found: dict[str, Mount | Scratch] = {}
    for key, value in pairs:
        field = f"{path}.{shorten(key.text)}"
        where = _path(reading, key, field)
        there = _there(reading, value, field, where or "")
        if where in found:
            reading.problem(f"'{where}' has {_named(found[where])}", key, field)
        elif where and there:
            found[where] = there
    return (
        tuple(item for item in found.values() if type(item) is Mount),
        tuple(item for item in found.values() if type(item) is Scratch),
    )


def _named(there: Mount | Scratch) -> str:
    return f"a volume already: '{there.volume}'" if isinstance(there, Mount) else "a scratch already"


def _path(reading: Reading, key: Scalar, field: str) -> str | None:
    try:
        return mount_path(key.text)
    except NotAMountPath as error:
        reading.problem(str(error), key, field, error.hint)
        return None


def _there(reading: Reading, node: Node, field: str, where: str) -> Mount | Scratch | None:
    if type(node) is Pairs:
        return _written_out(reading, node, field, where)
    text = reading.text(node, field, f"write the volume's name, {EXAMPLE}")
    if text is None:
        return None
    name = text.removesuffix(READ_ONLY)
    if not is_reference(name):
        message = f"'{shorten(text)}' is not a volume's name or id" if text else "names no volume"
        reading.problem(message, node, field, EXAMPLE)
        return None
    return Mount(path=where, volume=name, read_only=name != text)


def is_reference(name: str) -> bool:
    return len(name) <= VOLUME_REFERENCE_LIMIT and VOLUME_REFERENCE.match(name) is not None


def _written_out(reading: Reading, node: Pairs, field: str, where: str) -> Mount | Scratch | None:
    keys = {key.text for key, _ in node.items}
    readers = VOLUME if "name" in keys else SCRATCH if keys & SCRATCH.keys() else {**SCRATCH, **VOLUME}
    before = len(reading.problems)
    said = read_keys(reading, node.items, readers, (), f"{field}.")
    if len(reading.problems) > before:
        return None
    if "name" in said:
        return Mount(path=where, volume=said.pop("name"), **said)
    if "size" in said or "medium" in said:
        return _scratch(said, where)
    reading.problem("says neither a volume's name nor the size or medium of a scratch", node, field, SCRATCH_EXAMPLE)
    return None


def _scratch(said: dict[str, Any], where: str) -> Scratch:
    return Scratch(path=where, medium=said.get("medium", Medium.disk), size_bytes=said.get("size"))


def _name(reading: Reading, node: Node, path: str) -> str | None:
    text = reading.text(node, path, "for example ml-data")
    if text is None or is_reference(text):
        return text
    hint = "say 'read_only: true' beside it" if text.endswith(READ_ONLY) else "for example ml-data"
    reading.problem(f"'{shorten(text)}' is not a volume's name or id", node, path, hint)
    return None


def size(reading: Reading, node: Node, path: str) -> int | None:
    text = reading.text(node, path, "for example 10Gi")
    if text is None:
        return None
    try:
        return parse_bytes(text, bare=False)
    except NotAQuantity as error:
        reading.problem(str(error), node, path, error.hint)
        return None


def _medium(reading: Reading, node: Node, path: str) -> Medium | None:
    text = reading.text(node, path, "disk or memory")
    if text is None:
        return None
    if text.lower() in ("disk", "memory"):
        return Medium(text.lower())
    reading.problem(f"must be disk or memory, not '{shorten(text)}'", node, path)
    return None


def group(reading: Reading, node: Node, path: str) -> str | None:
    text = reading.text(node, path, "for example pwm.resource")
    if text is None or USER.match(text):
        return text
    message = f"'{shorten(text)}' is not a group's name: letters, digits, '.', '_', '@' and '-', 64 characters at most"
    reading.problem(message, node, path, "for example pwm.resource")
    return None


def made_on(reading: Reading, node: Node, path: str) -> str | None:
    """`pwm.all` is the disk of whichever node uses it first."""
    return EVERYTHING if isinstance(node, Scalar) and node.text == EVERYTHING else storage(reading, node, path)


def storage(reading: Reading, node: Node, path: str) -> str | None:
    text = reading.text(node, path, "for example nfs01")
    if text is None or (is_reference(text) and text != EVERYTHING):
        return text
    reading.problem(f"'{shorten(text)}' is not a storage's name", node, path, "for example nfs01")
    return None


def sub_path(reading: Reading, node: Node, path: str) -> str | None:
    text = reading.text(node, path, "for example datasets/images")
    if text is None:
        return None
    try:
        return directory_below(text)
    except NotAMountPath as error:
        reading.problem(str(error), node, path, error.hint)
        return None


def _flag(reading: Reading, node: Node, path: str) -> bool | None:
    return reading.flag(node, path)


VOLUME: dict[str, Reader] = {
    "name": _name,
    "read_only": _flag,
    "group": group,
    "storage": made_on,
    "sub_path": sub_path,
}
SCRATCH: dict[str, Reader] = {"size": size, "medium": _medium}
