"""Refuse what can never run on this machine, and notice what runs differently than one might expect."""

from __future__ import annotations

from penstock.domain.quantities import show_bytes
from penstock.domain.workloads import Medium, Scratch, Spec
from penstock.engines.base import Refusal
from penstock.engines.local.spec.mounts import memory_size, scratch_variable
from penstock.engines.local.spec.sandbox import SHARED_MEMORY, can_size_memory
from penstock.engines.shared.refusals import refuse_cluster_secrets
from penstock.settings import Settings

NO_SANDBOX = 'sandbox = "none"'


def refusals(spec: Spec, settings: Settings, bwrap: str) -> list[Refusal]:
    """Return all refusals; `bwrap` is empty where there is no sandbox."""
    found = [*_scratch(spec, bwrap), *([] if settings.sandbox == "bubblewrap" else _unmounted(spec))]
    parts = [mount.path for mount in spec.mounts if mount.sub_path]
    said = "names a part of a volume; this engine mounts whole volumes only"
    found += [Refusal(keys=("volumes", path), message=said, hint="mount all of it") for path in parts]
    found += refuse_cluster_secrets(spec)
    if spec.run is None:
        said = "is missing: this engine runs the machine's own programs and has no image to take a command from"
        found.append(Refusal(keys=("run",), message=said, hint="name the program"))
    if spec.queue is not None:
        said = "is for Kubernetes with Kueue; here work starts as soon as there is room for it"
        found.append(Refusal(keys=("queue",), message=said, hint="leave it out"))
    return found


def _scratch(spec: Spec, bwrap: str) -> list[Refusal]:
    if not _in_memory(spec) or not bwrap or can_size_memory(bwrap):
        return []
    said = "this machine's bubblewrap cannot limit the size of a file system in memory"
    hint = "install bubblewrap 0.7 or later, or leave out medium: memory"
    return [Refusal(keys=("volumes", scratch.path), message=said, hint=hint) for scratch in _in_memory(spec)]


def _in_memory(spec: Spec) -> list[Scratch]:
    return [scratch for scratch in spec.scratch if scratch.medium is Medium.memory]


def _unmounted(spec: Spec) -> list[Refusal]:
    """Without a sandbox a variable names each directory, but none is in memory with a size."""
    said = f"{NO_SANDBOX} on this machine: nothing can be mounted, so there is no scratch in memory"
    hint = "leave out medium: memory; the scratch is then a directory"
    wrong = [scratch.path for scratch in _in_memory(spec) if scratch.path != SHARED_MEMORY]
    return [Refusal(keys=("volumes", path), message=said, hint=hint) for path in wrong]


def notices(spec: Spec, settings: Settings) -> list[str]:
    said = []
    if spec.resources.image:
        said.append(f"image_id: {spec.resources.image} is not used by this engine; the machine's own programs run")
    if spec.resources.exclusive_cpus:
        said.append("CPUs are counted here and not given to one alone")
    if settings.sandbox == "none":
        said += _without_a_sandbox(spec)
    for scratch in _in_memory(spec):
        if scratch.size_bytes is not None and memory_size(scratch, spec) < scratch.size_bytes:
            size = show_bytes(memory_size(scratch, spec))
            said.append(f"volumes: {scratch.path} holds no more than the memory limit, {size}")
    return said


def _without_a_sandbox(spec: Spec) -> list[str]:
    said = []
    if spec.mounts:
        said.append(
            f"volumes: with {NO_SANDBOX} nothing is mounted; "
            "PENSTOCK_VOLUME_<NAME> says where each volume is, in capitals and with _ for -"
        )
    for scratch in spec.scratch:
        if scratch.path == SHARED_MEMORY and scratch.medium is Medium.memory:
            said.append(f"volumes: with {NO_SANDBOX}, {SHARED_MEMORY} is the machine's own")
        else:
            where = f"{scratch_variable(scratch.path)} says where {scratch.path} is"
            said.append(f"volumes: with {NO_SANDBOX} nothing is mounted; {where}")
    if spec.resources.disk_bytes is not None:
        said.append(f"disk_size: with {NO_SANDBOX}, /tmp is the machine's own and not counted")
    return said
