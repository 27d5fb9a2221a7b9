"""Read a PersistentVolumeClaim's `spec` as a volume to be created."""

from __future__ import annotations

from typing import Any

from penstock.dialects.manifest.metadata import reference
from penstock.dialects.manifest.unsupported import PVC_PLAIN, PVC_REFUSED
from penstock.dialects.reader import PlacedReading, Shape, as_it_is, fields_of, read_fields, sequence
from penstock.dialects.yaml import Node, Scalar
from penstock.domain.names import shorten
from penstock.domain.quantities import NotAQuantity, parse_bytes
from penstock.domain.volumes import AccessMode

MODES = ", ".join(AccessMode)


def claim(reading: PlacedReading, node: Node, path: str) -> dict[str, Any]:
    said = read_fields(reading, node, path, PVC)
    if "accessModes" not in said and _complete(reading, path, "accessModes"):
        reading.problem("is missing", node, f"{path}.accessModes", "for example [ReadWriteOnce]")
    if "resources" not in said and _complete(reading, path, "resources"):
        reading.problem("is missing", node, f"{path}.resources.requests.storage", "for example 10Gi")
    return {
        "size": said.get("resources"),
        "storage_class": said.get("storageClassName"),
        "access_modes": said.get("accessModes", ()),
    }


def _complete(reading: PlacedReading, path: str, name: str) -> bool:
    """Nothing was said to be wrong with it already."""
    return not any(problem.get("field", "").startswith(f"{path}.{name}") for problem in reading.problems)


def _storage_class(reading: PlacedReading, node: Node, path: str) -> str | None:
    if isinstance(node, Scalar) and not node.text:
        reading.problem("is empty: only volumes that are made when they are asked for are carried", node, path)
        return None
    reading.says(node, path, "storage_class")
    return reference(reading, node, path)


def _modes(reading: PlacedReading, node: Node, path: str) -> tuple[AccessMode, ...] | None:
    reading.says(node, path, "access_modes")
    found = []
    for item, here in sequence(reading, node, path):
        mode = reading.text(item, here)
        if mode is None:
            continue
        if mode in AccessMode.__members__:
            found.append(AccessMode(mode))
        else:
            reading.problem(f"'{shorten(mode)}' is not an access mode", item, here, f"one of {MODES}")
    return tuple(dict.fromkeys(found)) or None


def _resources(reading: PlacedReading, node: Node, path: str) -> str | None:
    said = read_fields(reading, node, path, RESOURCES)
    size: str | None = fields_of(reading, said, "requests", REQUESTS).get("storage")
    return size


def _size(reading: PlacedReading, node: Node, path: str) -> str | None:
    """As it was asked for."""
    text = reading.text(node, path)
    if text is None:
        return None
    reading.says(node, path, "size")
    try:
        parse_bytes(text)
    except NotAQuantity as error:
        reading.problem(str(error), node, path, error.hint)
    return text


REQUESTS = Shape({"storage": _size})
RESOURCES = Shape({"requests": as_it_is}, {"limits": ("a volume has the size it requests", "remove it")})
PVC = Shape(
    {"storageClassName": _storage_class, "accessModes": _modes, "resources": _resources}, PVC_REFUSED, PVC_PLAIN
)
