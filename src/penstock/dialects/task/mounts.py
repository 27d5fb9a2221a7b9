"""`volumes`: mount path to volume. `/data: ml-data`, or `/data: ml-data:ro` to mount it read-only."""

from __future__ import annotations

from penstock.dialects.reading import Reading
from penstock.dialects.text import Node, Scalar
from penstock.domain.names import VOLUME_REFERENCE, VOLUME_REFERENCE_LIMIT, shorten
from penstock.domain.paths import NotAMountPath, mount_path
from penstock.domain.workloads import Mount

MOUNTS_LIMIT = 100
READ_ONLY = ":ro"
EXAMPLE = "for example '/data: ml-data'"


def mounts(reading: Reading, node: Node, path: str) -> tuple[Mount, ...]:
    pairs = reading.pairs(node, path, EXAMPLE)
    if len(pairs) > MOUNTS_LIMIT:
        reading.problem(f"has {len(pairs):,} entries; {MOUNTS_LIMIT} at most", node, path)
        return ()
    found: dict[str, Mount] = {}
    for key, value in pairs:
        field = f"{path}.{shorten(key.text)}"
        where = _path(reading, key, field)
        volume = _volume(reading, value, field)
        if where in found:
            reading.problem(f"'{where}' has a volume already: '{found[where].volume}'", key, field)
        elif where and volume:
            found[where] = Mount(
                path=where, volume=volume.removesuffix(READ_ONLY), read_only=volume.endswith(READ_ONLY)
            )
    return tuple(found.values())


def _path(reading: Reading, key: Scalar, field: str) -> str | None:
    try:
        return mount_path(key.text)
    except NotAMountPath as error:
        reading.problem(str(error), key, field, error.hint)
        return None


def _volume(reading: Reading, node: Node, field: str) -> str | None:
    text = reading.text(node, field, f"write the volume's name, {EXAMPLE}")
    if text is None:
        return None
    name = text.removesuffix(READ_ONLY)
    if len(name) <= VOLUME_REFERENCE_LIMIT and VOLUME_REFERENCE.match(name):
        return text
    message = f"'{shorten(text)}' is not a volume's name or id" if text else "names no volume"
    reading.problem(message, node, field, EXAMPLE)
    return None
