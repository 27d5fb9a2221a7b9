"""Read a PersistentVolumeClaim's `spec` as a volume to be created."""

from __future__ import annotations

from typing import Any

from penstock.dialects.manifest.metadata import reference
from penstock.dialects.manifest.unsupported import PVC_PLAIN, PVC_REFUSED
from penstock.dialects.reader import FieldRules, PlacedContext, as_it_is, fields_of, placed, read_fields, sequence
from penstock.dialects.task.mounts import access_modes, size_as_written
from penstock.dialects.yaml import Node, Scalar
from penstock.domain.volumes import AccessMode


def claim(context: PlacedContext, node: Node, path: str) -> dict[str, Any]:
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


def _complete(context: PlacedContext, path: str, name: str) -> bool:
    """Nothing was said to be wrong with it already."""
    return not any(problem.get("field", "").startswith(f"{path}.{name}") for problem in context.problems)


def _storage_class(context: PlacedContext, node: Node, path: str) -> str | None:
    if isinstance(node, Scalar) and not node.text:
        context.problem("is empty: only volumes that are made when they are asked for are carried", node, path)
        return None
    context.says(node, path, "storage_class")
    return reference(context, node, path)


def _modes(context: PlacedContext, node: Node, path: str) -> tuple[AccessMode, ...] | None:
    context.says(node, path, "access_modes")
    return access_modes(context, sequence(context, node, path)) or None


def _resources(context: PlacedContext, node: Node, path: str) -> str | None:
    said = read_fields(context, node, path, RESOURCES)
    size: str | None = fields_of(context, said, "requests", REQUESTS).get("storage")
    return size


REQUESTS = FieldRules({"storage": placed(size_as_written, "size")})
RESOURCES = FieldRules({"requests": as_it_is}, {"limits": ("a volume has the size it requests", "remove it")})
PVC = FieldRules(
    {"storageClassName": _storage_class, "accessModes": _modes, "resources": _resources}, PVC_REFUSED, PVC_PLAIN
)
