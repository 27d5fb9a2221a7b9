"""Write a Spec as the shortest task that reads back to the same."""

from __future__ import annotations

from typing import Any

from penstock.dialects.task.notify import HOW_IT_ENDED
from penstock.dialects.task.program import show_port
from penstock.dialects.writer import FlowList, FlowMapping, dump, only_said
from penstock.domain.quantities import BINARY, show_cpus
from penstock.domain.workloads import UNLIMITED, Array, Medium, Mount, Notice, Port, Resources, Scratch, Selectors, Spec

DAY = 86_400


def write_task(spec: Spec) -> str:
    return dump(as_task(spec))


def as_task(spec: Spec) -> dict[str, Any]:
    said = {
        "name": spec.name,
        **first_keys(spec),
        "resources": _resources(spec.resources),
        "selectors": _selectors(spec.selectors),
        "labels": spec.labels,
        "envs": plain(spec),
        "secrets": secrets(spec),
        "volumes": _volumes(spec),
        "setup": spec.setup,
        "run": spec.run if isinstance(spec.run, str) else FlowList(spec.run or ()),
        "terminal": spec.terminal or None,
        "ports": _ports(spec.ports),
        **last_keys(spec),
        "notify": _notify(spec.notify),
    }
    return only_said(said.items())


def first_keys(spec: Spec) -> dict[str, Any]:
    """The keys that a task and a document begin with."""
    return {
        "num_nodes": spec.nodes if spec.nodes != 1 else None,
        "array": spec.array and _array(spec.array),
        "after": spec.after[0] if len(spec.after) == 1 else FlowList(spec.after),
        "queue": spec.queue,
        "workdir": spec.workdir,
    }


def last_keys(spec: Spec) -> dict[str, Any]:
    """The keys of a task and a document that say how long and how often it runs."""
    return {
        "max_duration": spec.max_duration and show_seconds(spec.max_duration),
        "stop_grace": None if spec.stop_grace is None else show_seconds(spec.stop_grace),
        "retries": _retries(spec),
        "requeue": spec.requeue,
        "restart": "always" if spec.restart else None,
        "ttl": None if spec.ttl is None else show_seconds(spec.ttl),
        "priority": spec.priority or None,
        "idle_timeout": spec.idle_timeout and show_seconds(spec.idle_timeout),
    }


def plain(spec: Spec) -> dict[str, str]:
    return {name: value for name, value in spec.envs.items() if name not in spec.secrets}


def secrets(spec: Spec) -> dict[str, None]:
    """Return the names of the secrets without their values: the text is shown, and apply keeps the values."""
    return dict.fromkeys(spec.secrets)


def _array(array: Array) -> int | FlowMapping:
    if array.parallelism is None:
        return array.count
    return FlowMapping(count=array.count, parallelism=array.parallelism)


def _selectors(wanted: Selectors) -> dict[str, Any]:
    said = [
        ("node", wanted.node),
        ("cpu_product", wanted.cpu_product),
        ("labels", FlowMapping(wanted.labels)),
        ("spread", wanted.spread or None),
    ]
    return only_said(said)


def _ports(ports: tuple[Port, ...]) -> int | str | FlowList | None:
    shown = [show_port(port) for port in ports]
    return shown[0] if len(shown) == 1 else FlowList(shown)


def _notify(notices: tuple[Notice, ...]) -> str | FlowList | dict[str, Any]:
    if all(notice.on == HOW_IT_ENDED for notice in notices):
        told = [notice.to for notice in notices]
        return told[0] if len(told) == 1 else FlowList(told)
    return {notice.to: FlowList(map(str, notice.on)) for notice in notices}


def _retries(spec: Spec) -> int | str | None:
    """Return the retries, which `restart: always` implies."""
    if spec.restart or not spec.retries:
        return None
    return "unlimited" if spec.retries == UNLIMITED else spec.retries


def _volumes(spec: Spec) -> dict[str, Any]:
    mounts = {mount.path: _mount(mount) for mount in spec.mounts}
    return {**mounts, **{scratch.path: show_scratch(scratch) for scratch in spec.scratch}}


def _mount(there: Mount) -> str | FlowMapping:
    more = only_said([("group", there.group), ("storage", there.storage), ("sub_path", there.sub_path)])
    if not more:
        return f"{there.volume}{':ro' * there.read_only}"
    return FlowMapping({"name": there.volume, **more} | ({"read_only": True} if there.read_only else {}))


def show_scratch(there: Scratch) -> FlowMapping:
    said = only_said(
        [
            ("size", there.size_bytes and show_size(there.size_bytes)),
            ("medium", "memory" if there.medium is Medium.memory else None),
        ]
    )
    return FlowMapping(said or {"medium": "disk"})


def _resources(wanted: Resources) -> dict[str, Any]:
    return only_said(
        [
            ("cpus", wanted.cpus_milli and show_milli(wanted.cpus_milli)),
            ("exclusive_cpus", wanted.exclusive_cpus or None),
            *_amounts(None, wanted.memory_bytes, wanted.disk_bytes).items(),
            ("accelerators", _accelerators(wanted)),
            ("image_id", wanted.image and _image(wanted.image)),
            ("requests", FlowMapping(show_requests(wanted))),
        ]
    )


def _image(name: str) -> str:
    """Return the image; SkyPilot's prefix `docker:` is written only if the image's own name begins with it."""
    return f"docker:{name}" if name.startswith("docker:") else name


def show_requests(wanted: Resources) -> dict[str, Any]:
    requests = wanted.requests
    return _amounts(requests.cpus_milli, requests.memory_bytes, requests.disk_bytes)


def _amounts(cpus_milli: int | None, memory: int | None, disk: int | None) -> dict[str, Any]:
    amounts = {
        "cpus": cpus_milli and show_milli(cpus_milli),
        "memory": memory and show_size(memory),
        "disk_size": disk and show_size(disk),
    }
    return only_said(amounts.items())


def show_milli(milli: int) -> int | str:
    """Return a whole number of CPUs, or millis such as `1500m`, which needs no quotes."""
    return milli // 1000 if milli % 1000 == 0 else f"{milli}m"


def show_size(amount: int) -> str:
    """Return the exact size, in the largest unit that divides it."""
    for unit, factor in reversed(BINARY.items()):
        if amount % factor == 0:
            return f"{amount // factor}{unit}"
    return f"{show_cpus(amount)}k"


def _accelerators(wanted: Resources) -> int | str | list[str] | None:
    wishes = [f"{product}:{wanted.gpus}" for product in wanted.gpu_products]
    if len(wishes) > 1:
        return wishes
    return wishes[0] if wishes else wanted.gpus or None


def show_seconds(seconds: int) -> str:
    parts = (seconds // DAY, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
