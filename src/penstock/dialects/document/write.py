"""Write nouns as the shortest documents that read back to the same."""

from __future__ import annotations

import shlex
from typing import Any

from penstock.dialects.document.node import declared_uuid
from penstock.dialects.document.types import AskedVolume, Noun
from penstock.dialects.document.volumes import unsaid_storage
from penstock.dialects.document.workload import DRIVERS
from penstock.dialects.task.notify import HOW_IT_ENDED, TELEGRAM
from penstock.dialects.task.program import show_port
from penstock.dialects.task.write import (
    first_keys,
    last_keys,
    plain,
    secrets,
    show_milli,
    show_requests,
    show_scratch,
    show_seconds,
    show_size,
)
from penstock.dialects.writer import FlowList, FlowMapping, dump, only_said
from penstock.domain.nodes import Allows, Gpu, Host
from penstock.domain.policy import EVERYTHING
from penstock.domain.users import Group, Limits, Membership, User
from penstock.domain.volumes import Storage, StorageKind
from penstock.domain.workloads import Mount, Notice, Resources, Scratch, Spec

NAME = "task"
ONE_CPU = 1000


# Workload


def write_workload(spec: Spec, group: str | None = None) -> str:
    """Write a Workload; a name that is missing is noted in a comment above it."""
    said = {
        "driver": DRIVERS[0],
        **first_keys(spec),
        "selectors": _selectors(spec),
        "resources": _resources(spec.resources),
        "image": {"image": spec.resources.image} if spec.resources.image else None,
        "config": _config(spec),
        "volumes": [*map(_mount, spec.mounts), *map(_scratch, spec.scratch)],
        "plugins": _plugins(spec.notify),
        "setup": spec.setup,
        "run": spec.run if isinstance(spec.run, str) else None,
        **last_keys(spec),
    }
    comment = "" if spec.name else f"# name: the task has none; a document needs one, here '{NAME}'\n"
    if named := sorted({*(each.secret for each in spec.from_secrets), *spec.pull_secrets}):
        comment += f"# only a manifest names Secrets of the cluster, as this one does: {', '.join(named)}\n"
    return comment + _document("Workload", spec.name or NAME, group, only_said(said.items()))


def _selectors(spec: Spec) -> dict[str, Any]:
    chosen, asked = spec.selectors, spec.resources
    gpu: dict[str, Any] = {}
    if asked.gpus:
        names = FlowList(asked.gpu_products) if len(asked.gpu_products) > 1 else (*asked.gpu_products, EVERYTHING)[0]
        gpu = {"product_name": names} | ({"count": asked.gpus} if asked.gpus != 1 else {})
    return only_said(
        [
            ("node", {"name": chosen.node} if chosen.node else None),
            ("gpu", gpu),
            ("cpu", _cpu(spec)),
            ("label", chosen.labels),
            ("spread", chosen.spread or None),
        ]
    )


def _cpu(spec: Spec) -> dict[str, Any]:
    """Return the CPU selector, unless it is the default of a document."""
    milli, exclusive, product = spec.resources.cpus_milli, spec.resources.exclusive_cpus, spec.selectors.cpu_product
    unsaid = (None, False, None) if spec.resources.gpus else (ONE_CPU, True, None)
    if (milli, exclusive, product) == unsaid:
        return {}
    count = 0 if milli is None else show_milli(milli)
    return (
        {"product_name": product or EVERYTHING}
        | ({"count": count} if milli != ONE_CPU else {})
        | ({} if exclusive or milli is None else {"exclusive": False})
    )


def _resources(wanted: Resources) -> dict[str, Any]:
    return only_said(
        [
            ("memory", wanted.memory_bytes and show_size(wanted.memory_bytes)),
            ("disk_size", wanted.disk_bytes and show_size(wanted.disk_bytes)),
            ("requests", FlowMapping(show_requests(wanted))),
        ]
    )


def _config(spec: Spec) -> dict[str, Any]:
    """Return `config`; a terminal is the default of a document."""
    ports = FlowList(show_port(port) for port in spec.ports)
    said = [
        ("cmd", _cmd(spec.run) if isinstance(spec.run, tuple) else None),
        ("startMode", None if spec.terminal else "-d"),
        ("env", plain(spec)),
        ("secrets", secrets(spec)),
        ("labels", spec.labels),
        ("ports", ports),
    ]
    return only_said(said)


def _cmd(words: tuple[str, ...]) -> str | FlowList:
    """Return the command as one text if a shell would split it into the same words without quotes."""
    line = " ".join(words)
    return line if shlex.join(words) == line else FlowList(words)


def _mount(there: Mount) -> dict[str, Any]:
    unsaid = there.storage == unsaid_storage(there.group)
    said = [
        ("name", there.volume),
        ("group", there.group),
        ("storage", None if unsaid else there.storage),
        ("autoCreate", False if there.storage is None and not unsaid else None),
        ("target", there.path),
        ("subPath", there.sub_path),
        ("policy", "readonly" if there.read_only else None),
    ]
    return only_said(said)


def _scratch(there: Scratch) -> dict[str, Any]:
    return {"target": there.path, **show_scratch(there)}


def _plugins(notices: tuple[Notice, ...]) -> dict[str, Any]:
    chats = [_notice("id", n.to.removeprefix(TELEGRAM), n) for n in notices if n.to.startswith(TELEGRAM)]
    hooks = [_notice("url", n.to, n) for n in notices if not n.to.startswith(TELEGRAM)]
    return only_said([("telegram", _one_or_all(chats)), ("webhook", _one_or_all(hooks))])


def _one_or_all(told: list[dict[str, Any]]) -> Any:
    return told[0] if len(told) == 1 else told


def _notice(key: str, to: str, notice: Notice) -> dict[str, Any]:
    return {key: to} | ({} if notice.on == HOW_IT_ENDED else {"sendOn": FlowList(map(str, notice.on))})


# the other kinds


def write_noun(noun: Noun, group: str | None = None) -> str:
    """Write a noun; `group` is that of a volume, which does not know its own."""
    match noun:
        case AskedVolume():
            return _document("Volume", noun.name, group, _volume(noun))
        case Storage():
            return _document("Storage", noun.name, noun.group or group, _storage(noun))
        case Host():
            return _document("Node", noun.name, noun.group or group, _node(noun))
        case Group():
            return _document("Group", noun.name, None, _group(noun))
        case User():
            return _document("User", noun.name, None, _user(noun))


def _volume(volume: AskedVolume) -> dict[str, Any]:
    said = [
        ("storage", volume.storage),
        ("subPath", volume.sub_path),
        ("policy", "readonly" if volume.readonly else None),
        ("size", volume.size),
        ("storage_class", volume.storage_class),
        ("access_modes", FlowList(map(str, volume.access_modes))),
    ]
    return only_said(said)


def _storage(storage: Storage) -> dict[str, Any]:
    if storage.kind is StorageKind.nfs:
        return {"nfs": {"server": storage.server, "path": storage.path}}
    return {"local": {"node": storage.node}}


def _node(host: Host) -> dict[str, Any]:
    said = [
        ("address", host.address),
        ("allow", FlowList(map(str, host.allows)) if host.allows != tuple(Allows) else None),
        ("maintenance", host.maintenance or None),
        ("labels", host.labels),
        ("gpus", [_gpu(host.name, number, gpu) for number, gpu in enumerate(host.gpus)]),
    ]
    return only_said(said)


def _gpu(node: str, number: int, gpu: Gpu) -> FlowMapping:
    said: dict[str, Any] = {"product_name": gpu.product, "memory": show_size(gpu.memory_bytes)}
    if gpu.minor != number:
        said["minor_number"] = gpu.minor
    if gpu.uuid != declared_uuid(node, gpu.minor):
        said["uuid"] = gpu.uuid
    return FlowMapping(said)


def _group(group: Group) -> dict[str, Any]:
    defaults = [
        ("max_duration", group.max_duration and show_seconds(group.max_duration)),
        ("idle_timeout", group.idle_timeout and show_seconds(group.idle_timeout)),
    ]
    said = [
        ("limits", _limits(group.limits)),
        ("limits_each", _limits(group.limits_each)),
        ("max_priority", group.max_priority or None),
        ("defaults", only_said(defaults)),
        ("stop_idle", group.stop_idle or None),
    ]
    return only_said(said)


def _limits(limits: Limits) -> dict[str, Any]:
    milli, held = limits.cpus_milli, limits.volume_bytes
    said = [
        ("gpus", limits.gpus),
        ("cpus", show_milli(milli) if milli else milli),
        ("workloads", limits.workloads),
        ("volume_size", show_size(held) if held else held),
    ]
    return only_said(said)


def _user(user: User) -> dict[str, Any]:
    said = [
        ("groups", [_membership(each) for each in user.groups]),
        ("active", None if user.active else False),
        ("uid", user.uid),
    ]
    return only_said(said)


def _membership(membership: Membership) -> dict[str, Any]:
    policy = membership.policy
    if isinstance(policy, str):
        return {"name": membership.name, "policy": policy}
    return {"name": membership.name, "policy": {kind: FlowList(verbs) for kind, verbs in policy.items()}}


def _document(kind: str, name: str, group: str | None, spec: dict[str, Any]) -> str:
    about = only_said([("name", name), ("group", group)])
    document = {"apiVersion": "v1", "kind": kind, "metadata": about, "spec": spec}
    if kind == "Group" and not spec:
        del document["spec"]
    return dump(document)
