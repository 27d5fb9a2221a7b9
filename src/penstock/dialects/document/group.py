"""Read a Group: limits of its members and defaults of their workloads."""

from __future__ import annotations

from penstock.dialects.document.metadata import DocumentMetadata
from penstock.dialects.reader import FieldRules, PlacedContext, ReadContext, flag, placed, read_fields
from penstock.dialects.task.fields import HIGHEST, duration
from penstock.dialects.task.mounts import size
from penstock.dialects.task.resources import cpus
from penstock.dialects.yaml import Node, Scalar
from penstock.domain.users import Group, Limits

LARGEST = 1_000_000


def group(context: PlacedContext, about: DocumentMetadata, node: Node | None, path: str) -> Group | None:
    """A group needs no spec."""
    said = read_fields(context, node, path, GROUP) if node else {}
    defaults = said.pop("defaults", {})
    return None if context.problems or about.name is None else Group(name=about.name, **said, **defaults)


def _limits(context: PlacedContext, node: Node, path: str) -> Limits:
    said = read_fields(context, node, path, LIMITS)
    return Limits(
        gpus=said.get("gpus"),
        cpus_milli=said.get("cpus"),
        workloads=said.get("workloads"),
        volume_bytes=said.get("volume_size"),
    )


def _defaults(context: PlacedContext, node: Node, path: str) -> dict[str, int]:
    return read_fields(context, node, path, DEFAULTS)


def _count(context: ReadContext, node: Node, path: str) -> int | None:
    return context.whole(node, path, 0, LARGEST)


def _priority(context: ReadContext, node: Node, path: str) -> int | None:
    return context.whole(node, path, 0, HIGHEST)


def _cpus(context: ReadContext, node: Node, path: str) -> int | None:
    return 0 if _is_none(node) else cpus(context, node, path)


def _size(context: ReadContext, node: Node, path: str) -> int | None:
    return 0 if _is_none(node) else size(context, node, path)


def _is_none(node: Node) -> bool:
    """0 lets nothing be held at all."""
    return isinstance(node, Scalar) and node.text == "0"


LIMITS = FieldRules({"gpus": _count, "cpus": _cpus, "workloads": _count, "volume_size": _size})
DEFAULTS = FieldRules({"max_duration": duration, "idle_timeout": duration})
GROUP = FieldRules(
    {
        "limits": placed(_limits, "limits"),
        "limits_each": placed(_limits, "limits_each"),
        "max_priority": _priority,
        "defaults": _defaults,
        "stop_idle": flag,
    },
    {
        "max_duration": ("it is what workloads have that say none", "write it under 'defaults'"),
        "idle_timeout": ("it is what workloads have that say none", "write it under 'defaults'"),
    },
)
