"""Read a Workload: PWM's own keys, and a task's keys for what PWM has none for."""

from __future__ import annotations

from typing import Any

from penstock.dialects.document.config import config, image
from penstock.dialects.document.metadata import Metadata
from penstock.dialects.document.notify import plugins
from penstock.dialects.document.ports import network
from penstock.dialects.document.selectors import Selected, selectors
from penstock.dialects.document.types import WorkloadDocument
from penstock.dialects.document.volumes import volumes
from penstock.dialects.reader import PlacedReading, Refusal, Shape, lacks, placed, read_fields
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


def workload(reading: PlacedReading, about: Metadata, node: Node, path: str) -> WorkloadDocument | None:
    said = read_fields(reading, node, path, WORKLOAD)
    if lacks(node, "driver"):
        reading.problem("is missing", node, f"{path}.driver", f"write 'driver: {DRIVERS[0]}'")
    found = {key: said[key] for key in (*SAME, "volumes") if key in said}
    found |= _configured(reading, said, about, path)
    found |= _asked(reading, said, path)
    if "plugins" in said:
        found["notify"] = said["plugins"]
    if "run" not in found:
        reading.places[("run",)] = reading.where(node), f"{path}.config.cmd"
    if "run" not in found and "image" not in said and not reading.problems:
        reading.problem("says neither an image nor a command", node, path, "for example 'image: {image: ubuntu}'")
    check_together(reading, found, lambda keys: nearest(reading.places, keys) or (None, path))
    if reading.problems or about.name is None:
        return None
    spec = task.spec_of({"name": about.name, **found})
    read = task.Task(spec, tuple(reading.notices), None, reading.source, reading.places)
    return WorkloadDocument(read, about.name, about.group)


def _configured(reading: PlacedReading, said: dict[str, Any], about: Metadata, path: str) -> dict[str, Any]:
    """It has a terminal unless it is said to have none, as every workload of PWM."""
    configured = dict(said.get("config", {}))
    if "run" in configured and "run" in said:
        where, field = reading.places[("run",)]
        message = f"says the command again: there are '{path}.run' and '{path}.config.cmd'"
        reading.problems.append(Problem(message, where=where, field=field, hint="say one of them"))
    inside = said.get("network", {})
    if "name" in inside:
        _refuse_network(reading, about, *inside["name"])
    ports = once(reading, [*configured.pop("ports", ()), *inside.get("ports", ())])
    return {"terminal": True, **configured, **({"ports": ports} if ports else {})}


def _refuse_network(reading: PlacedReading, about: Metadata, node: Node, path: str) -> None:
    """The group's own says what is so anyway."""
    name = reading.text(node, path)
    if name is not None and name != about.group:
        message = "is not carried: each group has a network of its own, and its workloads are in it"
        reading.problem(message, node, path, "remove it")


def _asked(reading: PlacedReading, said: dict[str, Any], path: str) -> dict[str, Any]:
    """What is asked for stands in three places: selectors, image, resources."""
    chosen: Selected = said.get("selectors", Selected())
    more: dict[str, Any] = said.get("resources", {})
    limits = {
        "cpus_milli": chosen.resources.cpus_milli,
        "memory_bytes": more.get("memory"),
        "disk_bytes": more.get("disk_size"),
    }
    update = {
        **limits,
        "requests": requests_below(reading, more.get("requests", {}), limits, f"{path}.resources.requests"),
        "image": said.get("image"),
    }
    return {"selectors": chosen.selectors, "resources": chosen.resources.model_copy(update=update)}


def _resources(reading: PlacedReading, node: Node, path: str) -> dict[str, Any]:
    return read_fields(reading, node, path, RESOURCES)


def _driver(reading: PlacedReading, node: Node, path: str) -> str | None:
    name = reading.text(node, path)
    if name is not None and name not in DRIVERS:
        reading.problem(f"must be {' or '.join(DRIVERS)}, not '{shorten(name)}'", node, path)
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
RESOURCES = Shape(
    {
        "memory": placed(memory, "resources", "memory"),
        "disk_size": placed(disk, "resources", "disk_size"),
        "requests": placed(requests, "resources", "requests"),
    },
    NOT_RESOURCES,
)
WORKLOAD = Shape(
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
