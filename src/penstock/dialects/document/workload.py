"""Read a Workload: PWM's own keys, and a task's keys for what PWM has none for."""

from __future__ import annotations

from typing import Any

from penstock.dialects.document.config import config, image
from penstock.dialects.document.metadata import DocumentMetadata
from penstock.dialects.document.notify import plugins
from penstock.dialects.document.ports import network
from penstock.dialects.document.selectors import SelectedNodes, selectors
from penstock.dialects.document.types import WorkloadDocument
from penstock.dialects.document.volumes import volumes
from penstock.dialects.reader import FieldRules, PlacedContext, Refusal, placed, read_fields
from penstock.dialects.task import read as task
from penstock.dialects.task.checks import check_together, nearest
from penstock.dialects.task.ports import once
from penstock.dialects.task.resources import disk, memory, requests, requests_below
from penstock.dialects.yaml import Node
from penstock.domain.names import shorten
from penstock.errors import Problem

DRIVERS = ("pwm.docker", "pwm.nvidiadocker")
"""What PWM runs containers with: here each engine has its own way, and GPUs come with the selectors."""
SAME = (
    "num_nodes",
    "array",
    "after",
    "queue",
    "workdir",
    "setup",
    "run",
    "max_duration",
    "stop_grace",
    "retries",
    "requeue",
    "restart",
    "ttl",
    "priority",
    "idle_timeout",
)
"""Keys of a task that mean the same here."""


def workload(context: PlacedContext, about: DocumentMetadata, node: Node, path: str) -> WorkloadDocument | None:
    said = read_fields(context, node, path, WORKLOAD)
    context.require(node, path, "driver", f"write 'driver: {DRIVERS[0]}'")
    found = {key: said[key] for key in (*SAME, "volumes") if key in said}
    found |= _configured(context, said, about, path)
    found |= _asked(context, said, path)
    if "plugins" in said:
        found["notify"] = said["plugins"]
    if "run" not in found:
        context.places[("run",)] = context.where(node), f"{path}.config.cmd"
    if "run" not in found and "image" not in said and not context.problems:
        context.problem("says neither an image nor a command", node, path, "for example 'image: {image: ubuntu}'")
    check_together(context, found, lambda keys: nearest(context.places, keys) or (None, path))
    if context.problems or about.name is None:
        return None
    spec = task.spec_of({"name": about.name, **found})
    read = task.Task(spec, tuple(context.notices), None, context.source, context.places)
    return WorkloadDocument(read, about.name, about.group)


def _configured(context: PlacedContext, said: dict[str, Any], about: DocumentMetadata, path: str) -> dict[str, Any]:
    """It has a terminal unless it is said to have none, as every workload of PWM."""
    configured = dict(said.get("config", {}))
    if "run" in configured and "run" in said:
        where, field = context.places[("run",)]
        message = f"says the command again: there are '{path}.run' and '{path}.config.cmd'"
        context.problems.append(Problem(message, where=where, field=field, hint="say one of them"))
    inside = said.get("network", {})
    if "name" in inside:
        _refuse_network(context, about, *inside["name"])
    ports = once(context, [*configured.pop("ports", ()), *inside.get("ports", ())])
    return {"terminal": True, **configured, **({"ports": ports} if ports else {})}


def _refuse_network(context: PlacedContext, about: DocumentMetadata, node: Node, path: str) -> None:
    """The group's own says what is so anyway."""
    name = context.text(node, path)
    if name is not None and name != about.group:
        message = "is not carried: each group has a network of its own, and its workloads are in it"
        context.problem(message, node, path, "remove it")


def _asked(context: PlacedContext, said: dict[str, Any], path: str) -> dict[str, Any]:
    """What is asked for stands in three places: selectors, image, resources."""
    chosen: SelectedNodes = said.get("selectors", SelectedNodes())
    more: dict[str, Any] = said.get("resources", {})
    limits = {
        "cpus_milli": chosen.resources.cpus_milli,
        "memory_bytes": more.get("memory"),
        "disk_bytes": more.get("disk_size"),
    }
    update = {
        **limits,
        "requests": requests_below(context, more.get("requests", {}), limits, f"{path}.resources.requests"),
        "image": said.get("image"),
    }
    return {"selectors": chosen.selectors, "resources": chosen.resources.model_copy(update=update)}


def _resources(context: PlacedContext, node: Node, path: str) -> dict[str, Any]:
    return read_fields(context, node, path, RESOURCES)


def _driver(context: PlacedContext, node: Node, path: str) -> str | None:
    name = context.text(node, path)
    if name is not None and name not in DRIVERS:
        context.problem(f"must be {' or '.join(DRIVERS)}, not '{shorten(name)}'", node, path)
    return name


THE_SERVERS: Refusal = ("the server wrote it", "remove it")
ELSEWHERE: dict[str, Refusal] = {
    "cmd": ("a command is part of config", "write it under 'config'"),
    "env": ("variables are part of config", "write them under 'config'"),
    "envs": ("variables are part of config", "write config.env"),
    "labels": ("labels are part of config", "write them under 'config'"),
    "ports": ("ports are part of config", "write them under 'config'"),
    "terminal": ("a terminal is asked for by config.startMode", "write 'startMode: -itd' there"),
    "notify": ("who is told is said under plugins", "write plugins.telegram or plugins.webhook"),
    **dict.fromkeys(("user", "created", "status", "currentStatus", "wants", "scheduler", "locked"), THE_SERVERS),
}
NOT_RESOURCES: dict[str, Refusal] = {
    "cpus": ("CPUs are selected", "write selectors.cpu.count"),
    "exclusive_cpus": ("CPUs are selected", "write selectors.cpu.exclusive"),
    "accelerators": ("GPUs are selected", "write selectors.gpu"),
    "gpus": ("GPUs are selected", "write selectors.gpu"),
    "image_id": ("the image has a place of its own", "write image.image"),
}
RESOURCES = FieldRules(
    {
        "memory": placed(memory, "resources", "memory"),
        "disk_size": placed(disk, "resources", "disk_size"),
        "requests": placed(requests, "resources", "requests"),
    },
    NOT_RESOURCES,
)
WORKLOAD = FieldRules(
    {
        "driver": _driver,
        "selectors": selectors,
        "image": image,
        "config": config,
        "volumes": volumes,
        "network": network,
        "plugins": plugins,
        "resources": _resources,
        **{key: placed(task.READERS[key], key) for key in SAME},
    },
    ELSEWHERE,
)
