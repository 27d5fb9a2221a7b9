"""Read a Workload: PWM's own keys (`selectors`, `plugins` …), and a task's keys for what PWM has none for.

Without GPUs and CPUs it gets one CPU of any product, as in PWM; with GPUs alone, the CPUs are whatever comes with them.
CPUs are the workload's own while it runs unless `exclusive` is false; `count: 0` asks for none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.dialects.document.config import config, image, network
from penstock.dialects.document.types import DocumentMetadata, WorkloadDocument
from penstock.dialects.document.volumes import volumes
from penstock.dialects.reader import (
    FieldRules,
    ReadContext,
    Reader,
    ReaderOf,
    Refusal,
    each_once,
    fields,
    flag,
    matching,
    nearest,
    one_of,
    one_or_more,
    or_zero,
    placed,
    read_fields,
    whole,
)
from penstock.dialects.task import read as task
from penstock.dialects.task.keys import TOP_LEVEL
from penstock.dialects.task.notify import HOW_IT_ENDED, NOTICES_LIMIT, notices_of, states_of, telegram, webhook
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
from penstock.dialects.yaml import Node
from penstock.domain.policy import EVERYTHING
from penstock.domain.workloads import Notice, Resources, Selectors
from penstock.errors import Problem

ONE_CPU = 1000


class SelectedNodes(NamedTuple):
    selectors: Selectors = Selectors()
    resources: Resources = Resources(cpus_milli=ONE_CPU, exclusive_cpus=True)
    """GPUs and CPUs only."""


def selectors(context: ReadContext, node: Node, path: str) -> SelectedNodes:
    said = read_fields(context, node, path, SELECTORS)
    gpus, products = said.get("gpu", (0, ()))
    milli, exclusive, product = said.get("cpu", (None, False, None) if gpus else (ONE_CPU, True, None))
    return SelectedNodes(
        Selectors(
            node=said.get("node", {}).get("name"),
            cpu_product=product,
            labels=said.get("label", {}),
            spread=said.get("spread", False),
        ),
        Resources(gpus=gpus, gpu_products=products, cpus_milli=milli, exclusive_cpus=exclusive),
    )


# gpu


def _gpu(context: ReadContext, node: Node, path: str) -> tuple[int, tuple[str, ...]]:
    said = read_fields(context, node, path, GPU)
    count, products = said.get("count", 1), said.get("product_name", ())
    if products and not count:
        context.problem("chooses a GPU product and asks for no GPU", node, path, "for example 'count: 1'")
    return count, products


def _gpu_products(context: ReadContext, node: Node, path: str) -> tuple[str, ...]:
    """Read one product, or a list of which any will do."""
    items = one_or_more(node, path)
    if not 0 < len(items) <= PRODUCTS_LIMIT:
        context.problem(f"must name 1 to {PRODUCTS_LIMIT} products", node, path, f"{EVERYTHING} is any")
    found = each_once(context, items[:PRODUCTS_LIMIT], _gpu_product)
    return () if {EVERYTHING, ANY}.intersection(found) else found


_gpu_product = matching(PRODUCT.match, "names no GPU product", f"for example 'Quadro RTX 6000'; {EVERYTHING} is any")


# cpu


def _cpu(context: ReadContext, node: Node, path: str) -> tuple[int | None, bool, str | None]:
    said = read_fields(context, node, path, CPU)
    milli, exclusive = said.get("count", ONE_CPU), said.get("exclusive", True)
    if exclusive and milli % ONE_CPU:
        message = "is not a whole number of CPUs, and these are its own while it runs"
        context.problem(message, node, f"{path}.count", "write 'exclusive: false' beside it")
    return milli or None, exclusive and milli != 0, said.get("product_name")


NODE = FieldRules({"name": placed(node_name, "selectors", "node")})
GPU = FieldRules({"product_name": _gpu_products, "count": whole(0, GPUS_LIMIT)})
CPU = FieldRules(
    {"product_name": placed(cpu_product, "selectors", "cpu_product"), "count": or_zero(cpus), "exclusive": flag}
)
SELECTORS = FieldRules(
    {
        "node": fields(NODE),
        "gpu": placed(_gpu, "resources", "accelerators"),
        "cpu": placed(_cpu, "resources", "cpus"),
        "label": placed(node_labels, "selectors", "labels"),
        "spread": placed(flag, "selectors", "spread"),
    }
)


def plugins(context: ReadContext, node: Node, path: str) -> tuple[Notice, ...]:
    said = read_fields(context, node, path, PLUGINS)
    return notices_of(context, [told for name in PLUGINS.readers if name in said for told in said[name]])


def _plugin(key: str, example: str, address: ReaderOf[str]) -> Reader:
    """Make a reader of one notification target, or a list of them."""
    shape = FieldRules({key: address, "sendOn": states_of}, required={key: f"for example '{key}: {example}'"})

    def read(context: ReadContext, node: Node, path: str) -> list[tuple[Node, str, Notice]]:
        items = one_or_more(node, path)
        if context.too_many(items, NOTICES_LIMIT, node, path):
            return []
        found = []
        for item, here in items:
            said = read_fields(context, item, here, shape)
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
OTHERS = {"name", "resources", "selectors", "labels", "envs", "secrets", "terminal", "ports", "volumes", "notify"}
SAME = tuple(key for key in TOP_LEVEL if key not in OTHERS)
"""The keys that mean the same as in a task."""


def workload_spec(context: ReadContext, about: DocumentMetadata, node: Node, path: str) -> WorkloadDocument | None:
    said = read_fields(context, node, path, WORKLOAD)
    found = {key: said[key] for key in (*SAME, "volumes") if key in said}
    found |= _configured(context, said, about, path)
    found |= _asked(context, said, path)
    if "plugins" in said:
        found["notify"] = said["plugins"]
    if "run" not in found:
        context.places[("run",)] = context.where(node), f"{path}.config.cmd"
    if "run" not in found and "image" not in said and not context.problems:
        context.problem("says neither an image nor a command", node, path, "for example 'image: {image: ubuntu}'")
    task.check_together(context, found, lambda keys: nearest(context.places, keys) or (None, path))
    if context.problems or about.name is None:
        return None
    spec = task.spec_of({"name": about.name, **found})
    read = task.Task(spec, tuple(context.notices), None, context.source, context.places)
    return WorkloadDocument(read, about.name, about.group)


def _configured(context: ReadContext, said: dict[str, Any], about: DocumentMetadata, path: str) -> dict[str, Any]:
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


def _refuse_network(context: ReadContext, about: DocumentMetadata, node: Node, path: str) -> None:
    """Refuse any network but the group's own, which every workload is in anyway."""
    name = context.text(node, path)
    if name is not None and name != about.group:
        message = "is not supported: each group has a network of its own, and its workloads are in it"
        context.problem(message, node, path, "remove it")


def _asked(context: ReadContext, said: dict[str, Any], path: str) -> dict[str, Any]:
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
        "driver": one_of({driver: driver for driver in DRIVERS}),
        "selectors": placed(selectors, "selectors"),
        "image": image,
        "config": config,
        "volumes": placed(volumes, "volumes"),
        "network": network,
        "plugins": placed(plugins, "notify"),
        "resources": fields(RESOURCES),
        **{key: placed(task.READERS[key], key) for key in SAME},
    },
    ELSEWHERE,
    required={"driver": f"write 'driver: {DRIVERS[0]}'"},
)
