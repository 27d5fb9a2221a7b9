"""Write the sections of a manifest: resources, affinity, and the variables Penstock would set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.dialects.manifest.mounts import default_shared_memory
from penstock.dialects.manifest.resources import GPU
from penstock.dialects.task.write import show_milli, show_size
from penstock.dialects.writer import FlowMapping, QuotedText, only_said
from penstock.domain.names import suggest_name
from penstock.domain.paths import SHARED_MEMORY
from penstock.domain.workloads import FromSecret, Medium, Resources, Scratch, Spec

WORDS = frozenset({"", "~", "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "=", "<<"})
"""What some reader of YAML takes for something else than a text."""
PORT = 29500
INDEX = "batch.kubernetes.io/job-completion-index"
OF_SEVERAL_NODES = ("NODE_RANK", "NUM_NODES", "MASTER_ADDR", "MASTER_PORT")


def kept_text(text: str) -> str:
    """In quotes where kubectl's reader of YAML would see a number or a truth value in it."""
    return QuotedText(text) if text[:1] in "0123456789+-." or text.lower() in WORDS else text


# amounts


def amounts(wanted: Resources) -> dict[str, Any]:
    requests = wanted.requests
    limits = _named(wanted.cpus_milli, wanted.memory_bytes, wanted.disk_bytes)
    if wanted.gpus:
        limits[GPU] = wanted.gpus
    less = _named(requests.cpus_milli, requests.memory_bytes, requests.disk_bytes)
    return only_said([("limits", limits), ("requests", less)])


def _named(cpus_milli: int | None, memory: int | None, disk: int | None) -> dict[str, Any]:
    return only_said(
        [
            ("cpu", cpus_milli and show_milli(cpus_milli)),
            ("memory", memory and show_size(memory)),
            ("ephemeral-storage", disk and show_size(disk)),
        ]
    )


# places


def places(spec: Spec, claims: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """`volumeMounts` and `volumes`. A volume at two paths is one volume; each scratch is its own."""
    mounts: list[dict[str, Any]] = []
    sources: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for mount in spec.mounts:
        claim = claims.get(mount.volume, mount.volume)
        name = names.setdefault(claim, _new_name(claim, sources))
        sources[name] = {"name": name, "persistentVolumeClaim": {"claimName": kept_text(claim)}}
        read_only = [("readOnly", True)] if mount.read_only else []
        mounts.append(dict([("name", name), ("mountPath", kept_text(mount.path)), *read_only]))
    for scratch in _scratch(spec):
        name = _new_name(scratch.path, sources)
        sources[name] = {"name": name, "emptyDir": _empty_dir(scratch)}
        mounts.append({"name": name, "mountPath": kept_text(scratch.path)})
    return mounts, list(sources.values())


def _scratch(spec: Spec) -> list[Scratch]:
    """With the /dev/shm a task has without saying so, and without the one a Pod has by itself."""
    limit = spec.resources.memory_bytes
    found = list(spec.scratch)
    taken = {mount.path for mount in spec.mounts} | {scratch.path for scratch in spec.scratch}
    if SHARED_MEMORY not in taken:
        found.append(Scratch(path=SHARED_MEMORY, medium=Medium.memory, size_bytes=limit // 2 if limit else None))
    return [scratch for scratch in found if scratch != default_shared_memory(limit)]


def _empty_dir(scratch: Scratch) -> FlowMapping:
    medium = "Memory" if scratch.medium is Medium.memory else None
    return FlowMapping(
        only_said([("medium", medium), ("sizeLimit", scratch.size_bytes and show_size(scratch.size_bytes))])
    )


def _new_name(text: str, taken: Mapping[str, Any]) -> str:
    """A name that says what it is, and is not there yet."""
    base = suggest_name(text) or "scratch"
    names = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
    return kept_text(next(name for name in names if name not in taken))


# what is in Secrets


def single_secrets(spec: Spec) -> list[Mapping[str, Any]]:
    """Variables that are each a key of a Secret."""
    return [
        {"name": kept_text(each.name), "valueFrom": {"secretKeyRef": _key_of(each)}}
        for each in spec.from_secrets
        if each.name is not None
    ]


def from_secrets(spec: Spec) -> list[Mapping[str, Any]]:
    """Secrets whose keys are all variables."""
    return [
        only_said(
            [
                ("prefix", kept_text(each.prefix) if each.prefix else None),
                ("secretRef", FlowMapping(name=kept_text(each.secret))),
            ]
        )
        for each in spec.from_secrets
        if each.name is None
    ]


def _key_of(each: FromSecret) -> FlowMapping:
    return FlowMapping(name=kept_text(each.secret), key=kept_text(each.key or ""))


# the variables Penstock would set


def own_variables(spec: Spec) -> list[Mapping[str, Any]]:
    """Those that several nodes need, and what else the program's text names."""
    text = "\n".join([spec.setup or "", *([spec.run] if isinstance(spec.run, str) else spec.run or ())])
    words = set(re.findall(r"\w+", text))
    return [
        variable
        for name, variable in _own(spec).items()
        if name in words or (spec.nodes > 1 and name in OF_SEVERAL_NODES)
    ]


def _own(spec: Spec) -> dict[str, Mapping[str, Any]]:
    nodes, gpus = str(spec.nodes), str(spec.resources.gpus)
    values = {
        "NUM_NODES": nodes,
        "MASTER_ADDR": f"{spec.name}-0.{spec.name}" if spec.nodes > 1 else "127.0.0.1",
        "MASTER_PORT": str(PORT),
        "GPUS_PER_NODE": gpus,
        "SKYPILOT_NUM_NODES": nodes,
        "SKYPILOT_NUM_GPUS_PER_NODE": gpus,
    }
    said: dict[str, Mapping[str, Any]] = {}
    for name in ("NODE_RANK", "SKYPILOT_NODE_RANK"):
        field = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
        said[name] = (
            {"name": name, "valueFrom": field} if spec.nodes > 1 else FlowMapping(name=name, value=QuotedText("0"))
        )
    if spec.nodes == 1 and not spec.array:
        values["JOB_COMPLETION_INDEX"] = "0"
    return said | {name: FlowMapping(name=name, value=kept_text(value)) for name, value in values.items()}
