"""Read a Workload: PWM's own keys (`selectors`, `plugins` …), and a task's keys for what PWM has none for.

Without GPUs and CPUs it gets one CPU of any product, as in PWM; with GPUs alone, the CPUs are whatever comes with them.
CPUs are the workload's own while it runs unless `exclusive` is false; `count: 0` asks for none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.dialects.document.config import config, image, network
from penstock.dialects.document.types import DocumentMetadata, WorkloadDocument
from penstock.dialects.document.volumes import volumes
from penstock.dialects.reader import (
    FieldRules,
    PlacedContext,
    ReadContext,
    Reader,
    Refusal,
    flag,
    placed,
    read_fields,
    sequence,
    whole,
)
from penstock.dialects.task import read as task
from penstock.dialects.task.checks import check_together, nearest
from penstock.dialects.task.notify import HOW_IT_ENDED, NOTICES_LIMIT, each_once, states_of, telegram, webhook
from penstock.dialects.task.program import once
from penstock.dialects.task.resources import (
    ANY,
    GPUS_LIMIT,
    PRODUCT,
    PRODUCTS_LIMIT,
    cpus,
    disk,
    memory,
    requests,
    requests_below,
)
from penstock.dialects.task.selectors import cpu_product, node_labels, node_name
from penstock.dialects.yaml import Items, Node, Scalar
from penstock.domain.names import shorten
from penstock.domain.policy import EVERYTHING
from penstock.domain.workloads import Notice, Resources, Selectors
from penstock.errors import Problem

ONE_CPU = 1000
NO_CPU = 0


class SelectedNodes(NamedTuple):
    selectors: Selectors = Selectors()
    resources: Resources = Resources(cpus_milli=ONE_CPU, exclusive_cpus=True)
    """GPUs and CPUs only."""


def selectors(context: PlacedContext, node: Node, path: str) -> SelectedNodes:
    context.says(node, path, "selectors")
    said = read_fields(context, node, path, SELECTORS)
    gpus, products = said.get("gpu", (0, ()))
    milli, exclusive, product = said.get("cpu", (None, False, None) if gpus else (ONE_CPU, True, None))
    return SelectedNodes(
        Selectors(
            node=said.get("node"),
            cpu_product=product,
            labels=said.get("label", {}),
            spread=said.get("spread", False),
        ),
        Resources(gpus=gpus, gpu_products=products, cpus_milli=milli, exclusive_cpus=exclusive),
    )


def _node(context: PlacedContext, node: Node, path: str) -> str | None:
    name: str | None = read_fields(context, node, path, NODE).get("name")
    return name


# gpu


def _gpu(context: PlacedContext, node: Node, path: str) -> tuple[int, tuple[str, ...]]:
    context.says(node, path, "resources", "accelerators")
    said = read_fields(context, node, path, GPU)
    count, products = said.get("count", 1), said.get("product_name", ())
    if products and not count:
        context.problem("chooses a GPU product and asks for no GPU", node, path, "for example 'count: 1'")
    return count, products


_gpu_count = whole(0, GPUS_LIMIT)


def _gpu_products(context: PlacedContext, node: Node, path: str) -> tuple[str, ...]:
    """Read one product, or a list of which any will do."""
    items = node.items if isinstance(node, Items) else [node]
    if not 0 < len(items) <= PRODUCTS_LIMIT:
        context.problem(f"must name 1 to {PRODUCTS_LIMIT} products", node, path, f"{EVERYTHING} is any")
    names = [context.text(item, path) for item in items[:PRODUCTS_LIMIT]]
    for item, name in zip(items, names, strict=False):
        if name is not None and not PRODUCT.match(name):
            hint = f"for example 'Quadro RTX 6000'; {EVERYTHING} is any"
            context.problem(f"'{shorten(name)}' names no GPU product", item, path, hint)
    found = tuple(dict.fromkeys(name for name in names if name is not None))
    return () if {EVERYTHING, ANY}.intersection(found) else found


# cpu


def _cpu(context: PlacedContext, node: Node, path: str) -> tuple[int | None, bool, str | None]:
    context.says(node, path, "resources", "cpus")
    said = read_fields(context, node, path, CPU)
    milli, exclusive = said.get("count", ONE_CPU), said.get("exclusive", True)
    if exclusive and milli % ONE_CPU:
        message = "is not a whole number of CPUs, and these are its own while it runs"
        context.problem(message, node, f"{path}.count", "write 'exclusive: false' beside it")
    return milli or None, exclusive and milli != NO_CPU, said.get("product_name")


def _cpu_count(context: ReadContext, node: Node, path: str) -> int | None:
    return NO_CPU if isinstance(node, Scalar) and node.text == "0" else cpus(context, node, path)


NODE = FieldRules({"name": placed(node_name, "selectors", "node")})
GPU = FieldRules({"product_name": _gpu_products, "count": _gpu_count})
CPU = FieldRules(
    {"product_name": placed(cpu_product, "selectors", "cpu_product"), "count": _cpu_count, "exclusive": flag}
)
SELECTORS = FieldRules(
    {
        "node": _node,
        "gpu": _gpu,
        "cpu": _cpu,
        "label": placed(node_labels, "selectors", "labels"),
        "spread": placed(flag, "selectors", "spread"),
    }
)


Told = list[tuple[Node, str, Notice]]
Address = Callable[[ReadContext, Node, str, str], str | None]


def plugins(context: PlacedContext, node: Node, path: str) -> tuple[Notice, ...]:
    context.says(node, path, "notify")
    said = read_fields(context, node, path, PLUGINS)
    return each_once(context, [told for name in PLUGINS.readers if name in said for told in said[name]])


def _plugin(key: str, example: str, address: Address) -> Reader:
    """Make a reader of one notification target, or a list of them."""

    def to(context: PlacedContext, node: Node, path: str) -> str | None:
        text = context.text(node, path)
        return None if text is None else address(context, node, path, text)

    shape = FieldRules({key: to, "sendOn": states_of})

    def read(context: PlacedContext, node: Node, path: str) -> Told:
        items = sequence(context, node, path) if isinstance(node, Items) else [(node, path)]
        if context.too_many(items, NOTICES_LIMIT, node, path):
            return []
        found: Told = []
        for item, here in items:
            said = read_fields(context, item, here, shape)
            context.require(item, here, key, f"for example '{key}: {example}'")
            on = said.get("sendOn", HOW_IT_ENDED)
            if key in said and on:
                context.says(item, here, "notify", said[key])
                found.append((item, here, Notice(to=said[key], on=on)))
        return found

    return read


PLUGINS = FieldRules(
    {
        "telegram": _plugin("id", "12345", telegram),
        "webhook": _plugin("url", "https://example.com/hook", webhook),
    }
)


DRIVERS = ("pwm.docker", "pwm.nvidiadocker")
"""PWM's container runtimes: here each engine has its own, and GPUs come with the selectors."""
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
"""The keys that mean the same as in a task."""


def workload_spec(context: PlacedContext, about: DocumentMetadata, node: Node, path: str) -> WorkloadDocument | None:
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
    """Return what `config` and `network` set. As in PWM, a workload has a terminal unless it is turned off."""
    configured = dict(said.get("config", {}))
    if "run" in configured and "run" in said:
        where, field = context.places[("run",)]
        message = f"says the command again: there are '{path}.run' and '{path}.config.cmd'"
        context.problems.append(Problem(message, where=where, field=field, hint="keep one of them"))
    inside = said.get("network", {})
    if "name" in inside:
        _refuse_network(context, about, *inside["name"])
    ports = once(context, [*configured.pop("ports", ()), *inside.get("ports", ())])
    return {"terminal": True, **configured, **({"ports": ports} if ports else {})}


def _refuse_network(context: PlacedContext, about: DocumentMetadata, node: Node, path: str) -> None:
    """Refuse any network but the group's own, which every workload is in anyway."""
    name = context.text(node, path)
    if name is not None and name != about.group:
        message = "is not supported: each group has a network of its own, and its workloads are in it"
        context.problem(message, node, path, "remove it")


def _asked(context: PlacedContext, said: dict[str, Any], path: str) -> dict[str, Any]:
    """Collect the requested resources from selectors, image and resources."""
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
