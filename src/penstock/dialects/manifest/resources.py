"""Read `resources` of a container: limits, and requests where they are less."""

from __future__ import annotations

from typing import Any

from penstock.dialects.reader import FieldRules, PlacedContext, as_it_is, below, parsed, read_fields
from penstock.dialects.task.accelerators import GPUS_LIMIT
from penstock.dialects.task.resources import SMALLEST_MEMORY
from penstock.dialects.yaml import Node, Pairs
from penstock.domain.names import shorten
from penstock.domain.quantities import NotAQuantity, parse_bytes, parse_cpus
from penstock.domain.workloads import Requests, Resources

GPU = "nvidia.com/gpu"


def resources(context: PlacedContext, node: Node, path: str) -> Resources:
    said = read_fields(context, node, path, RESOURCES)
    limits = _amounts(context, said.get("limits"))
    wanted = _amounts(context, said.get("requests"))
    for name, (_, value, here) in {**wanted, **limits}.items():
        context.says(value, here, "resources", TASK_KEYS[name])
    requests = {key: _request(context, name, limits, wanted) for name, key in SPEC_KEYS.items()}
    kept: dict[str, Any] = {key: limits[name][0] for name, key in SPEC_KEYS.items() if name in limits}
    return Resources(**kept, requests=Requests(**requests), gpus=_gpus(context, limits, wanted))


Amount = tuple[int, Node, str]
"""With its place."""


def _amounts(context: PlacedContext, said: tuple[Node, str] | None) -> dict[str, Amount]:
    if said is None:
        return {}
    node, path = said
    amounts = read_fields(context, node, path, AMOUNTS)
    return {
        key.text: (amounts[key.text], value, below(path, key.text))
        for key, value in (node.items if isinstance(node, Pairs) else ())
        if key.text in amounts
    }


def _request(context: PlacedContext, name: str, limits: dict[str, Amount], wanted: dict[str, Amount]) -> int | None:
    """What a place must have free, where the limit does not say it."""
    if name not in wanted:
        return None
    amount, node, path = wanted[name]
    limit = limits[name][0] if name in limits else None
    if limit is not None and amount > limit:
        context.problem("asks for more than the limit", node, path, "at most what limits says")
    return amount if amount != limit else None


def _gpus(context: PlacedContext, limits: dict[str, Amount], wanted: dict[str, Amount]) -> int:
    limit = limits[GPU][0] if GPU in limits else 0
    if GPU in wanted and wanted[GPU][0] != limit:
        _, node, path = wanted[GPU]
        context.problem("GPUs are given whole: a request must equal its limit", node, path, "write it under limits")
    return limit


def _cpu(context: PlacedContext, node: Node, path: str) -> int | None:
    text = context.text(node, path)
    if text is None:
        return None
    try:
        return parse_cpus(text if not text.endswith("+") else "")
    except NotAQuantity:
        context.problem(f"'{shorten(text)}' is not a number of CPUs", node, path, "for example 4, 0.5 or 500m")
        return None


def size(context: PlacedContext, node: Node, path: str) -> int | None:
    return parsed(context, node, path, parse_bytes)


def _memory(context: PlacedContext, node: Node, path: str) -> int | None:
    amount = size(context, node, path)
    if amount is not None and amount < SMALLEST_MEMORY:
        context.problem("is less than any program needs", node, path, "for example 512Mi")
    return amount


def _whole_gpus(context: PlacedContext, node: Node, path: str) -> int | None:
    return context.whole(node, path, 0, GPUS_LIMIT)


AMOUNTS = FieldRules(readers={"cpu": _cpu, "memory": _memory, "ephemeral-storage": size, GPU: _whole_gpus})
RESOURCES = FieldRules(
    readers={"limits": as_it_is, "requests": as_it_is},
    refused={"claims": ("devices are asked for as nvidia.com/gpu", "remove it")},
)
SPEC_KEYS = {"cpu": "cpus_milli", "memory": "memory_bytes", "ephemeral-storage": "disk_bytes"}
TASK_KEYS = {"cpu": "cpus", "memory": "memory", "ephemeral-storage": "disk_size", GPU: "accelerators"}
