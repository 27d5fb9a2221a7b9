"""Build the container of one node or index, field by field and never merged from user text.

Its command is the user's program as it is, or the minder around it. Docker has no termination message: what the minder
writes down stands in a file that is put into the container before it starts, and fetched from it after its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.domain.paths import SHARED_MEMORY, WORKDIR
from penstock.domain.workloads import Medium, Scratch
from penstock.engines.base import BoundMount, Launch
from penstock.engines.docker import names
from penstock.engines.docker.api.client import Fields
from penstock.engines.docker.names import Label
from penstock.engines.docker.settings import ContainerSettings
from penstock.engines.shared.environment import CAPABILITIES, INDEX, NO_GPUS, RANKS, run_variables, user_variables
from penstock.engines.shared.minder import BASH as BASH
from penstock.engines.shared.minder import MINDER, PAYLOAD, PREPARE
from penstock.engines.shared.records import without_values

SMALLEST_MEMORY = 6 << 20
SMALLEST_CPU = 10
LOG_FILES = 4


@dataclass(frozen=True)
class VolumeDirectory:
    """What is mounted: a Docker volume, or a directory in it."""

    volume: str
    directory: str | None = None


@dataclass(frozen=True)
class ContainerPlace:
    """Where one part of a run is started, and what it finds there."""

    host: str
    part: int
    number: int
    """The rank; for an array, which of the indexes that run at once."""
    network: str
    host_memory: int
    has_nvidia: bool = False
    """The host hands GPUs to containers; otherwise they are only told which are theirs."""
    volumes: Mapping[str, VolumeDirectory] = field(default_factory=dict)
    """Mount path → what it comes from on this host."""
    shared_cpus: str = ""
    """The CPUs that nobody has alone; empty: all."""
    up_to: int = 0
    """The last of the parts that are made before any of them starts."""
    instead_of: tuple[str, ...] = ()
    """Containers that are taken back for this one."""


def container(launch: Launch, made: ContainerSettings, place: ContainerPlace) -> Fields:
    spec = launch.spec
    words = command(launch)
    peer = names.peer_name(launch.name, launch.run, place.part)
    body: Fields = {
        "Image": spec.resources.image or made.image,
        "Hostname": peer,
        "Env": [f"{name}={value}" for name, value in variables(launch, place).items()],
        "Labels": labels(launch, made, place),
        "User": made.run_as,
        "WorkingDir": WORKDIR if launch.workdir_archive else spec.workdir or "",
        "Tty": spec.terminal,
        "OpenStdin": spec.terminal,
        "HostConfig": _host_config(launch, made, place),
        "NetworkingConfig": {"EndpointsConfig": {place.network: {"Aliases": [peer]}}},
    }
    if words:
        body |= {"Entrypoint": words[:1], "Cmd": words[1:]}
    return body


def labels(launch: Launch, made: ContainerSettings, place: ContainerPlace) -> dict[str, str]:
    """Return all labels: the user's own, and over them ours."""
    spec = launch.spec
    limits = disk_limits(launch)
    found: dict[str, str] = {
        Label.WORKLOAD: launch.workload_id,
        Label.ATTEMPT: str(launch.attempt),
        Label.PART: str(place.part),
        Label.PARTS: str(len(launch.indexes) if spec.array else spec.nodes),
        Label.PLACE: str(place.number),
        Label.NAME: launch.name,
        Label.OWNER: f"{launch.group}/{launch.user}",
        Label.GROUP: launch.group,
        Label.GRACE: str(launch.stop_grace),
        Label.RECORD: without_values(launch.record, spec) if launch.record else "",
        Label.ARRAY: "true" if spec.array else "",
        Label.UP_TO: str(place.up_to) if spec.array else "",
        Label.INSTEAD_OF: ",".join(place.instead_of),
        Label.MAX_DURATION: str(spec.max_duration or ""),
        Label.HAS_BASH: "true" if is_minded(launch) else "",
        Label.GPUS: ",".join(gpus_of(launch, place)),
        Label.CPUS: cpus_of(launch, place),
        Label.DISK: json.dumps(limits) if limits else "",
    }
    theirs = {name: text for name, text in spec.labels.items() if not names.is_ours(name)}
    return theirs | names.with_all_labels(made.installation, found)


def disk_limits(launch: Launch) -> dict[str, int]:
    """Return the bytes of each scratch path that has a size, and of all together under the empty path."""
    limits = {s.path: s.size_bytes for s in launch.spec.scratch if s.medium is Medium.disk and s.size_bytes}
    return limits | ({"": launch.spec.resources.disk_bytes} if launch.spec.resources.disk_bytes else {})


# -- what it may have ------------------------------------------------------------------------------------------------


def _host_config(launch: Launch, made: ContainerSettings, place: ContainerPlace) -> Fields:
    limits = launch.spec.resources
    memory = max(limits.memory_bytes, SMALLEST_MEMORY) if limits.memory_bytes else 0
    shared_out = limits.requests.cpus_milli or limits.cpus_milli or made.default_cpus_milli
    log_size = max(made.log_limit // LOG_FILES, 1 << 20)  # `local` keeps bytes as they are, `json-file` does not
    config: Fields = {
        "NetworkMode": place.network,
        "RestartPolicy": {"Name": "no"},
        "CapDrop": ["ALL"],
        "CapAdd": list(CAPABILITIES),
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "CpuShares": max(shared_out * 1024 // 1000, 2),
        "CpusetCpus": cpus_of(launch, place) or place.shared_cpus,
        "NanoCpus": max(limits.cpus_milli, SMALLEST_CPU) * 1_000_000 if limits.cpus_milli else 0,
        "Memory": memory,
        "MemorySwap": memory,
        "PidsLimit": made.processes,
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        "LogConfig": {"Type": "local", "Config": {"max-size": str(log_size), "max-file": str(LOG_FILES)}},
        **_disks(launch, place, memory),
    }
    uuids = gpus_of(launch, place)
    if uuids and place.has_nvidia:
        config["DeviceRequests"] = [{"Driver": "nvidia", "DeviceIDs": list(uuids), "Capabilities": [["gpu"]]}]
    return config


def cpus_of(launch: Launch, place: ContainerPlace) -> str:
    """Return the CPUs that are its alone."""
    own = launch.cpusets[place.number] if place.number < len(launch.cpusets) else ()
    return ",".join(map(str, own))


def gpus_of(launch: Launch, place: ContainerPlace) -> tuple[str, ...]:
    return launch.gpus[place.number] if place.number < len(launch.gpus) else ()


# -- disks -----------------------------------------------------------------------------------------------------------


def _disks(launch: Launch, place: ContainerPlace, memory: int) -> Fields:
    mounts = [_mount(mount, place.volumes[mount.path]) for mount in launch.mounts]
    tmpfs: dict[str, str] = {}
    shared = (memory or place.host_memory) // 2
    for scratch in launch.spec.scratch:
        size = scratch.size_bytes or memory or place.host_memory
        if scratch.medium is Medium.disk:
            mounts.append({"Type": "volume", "Target": scratch.path, "VolumeOptions": {"NoCopy": True}})
        elif scratch.path == SHARED_MEMORY:
            shared = size
        else:
            tmpfs[scratch.path] = f"rw,exec,nosuid,nodev,mode=1777,size={size}"
    return {"Mounts": mounts, "ShmSize": shared, "Tmpfs": tmpfs}


def _mount(mount: BoundMount, source: VolumeDirectory) -> Fields:
    options: Fields = {"NoCopy": True} | ({"Subpath": source.directory} if source.directory else {})
    return {
        "Type": "volume",
        "Source": source.volume,
        "Target": mount.path,
        "ReadOnly": mount.read_only,
        "VolumeOptions": options,
    }


def disk_scratch(launch: Launch) -> Iterator[Scratch]:
    return (scratch for scratch in launch.spec.scratch if scratch.medium is Medium.disk)


# -- variables -------------------------------------------------------------------------------------------------------


def variables(launch: Launch, place: ContainerPlace) -> dict[str, str]:
    """Return all variables: the user's own, and over them what is told about the run."""
    rank = 0 if launch.spec.array else place.part
    facts = run_variables(launch, peers(launch)) | dict.fromkeys(RANKS, str(rank)) | {INDEX: str(place.part)}
    return user_variables(launch) | facts | _gpus(launch, place)


def peers(launch: Launch) -> list[str]:
    """Return the names by which the nodes of a run reach each other, by rank."""
    nodes = launch.spec.nodes
    return [names.peer_name(launch.name, launch.run, rank) for rank in range(nodes)] if nodes > 1 else ["127.0.0.1"]


def _gpus(launch: Launch, place: ContainerPlace) -> dict[str, str]:
    uuids = gpus_of(launch, place)
    if not uuids:
        return NO_GPUS
    return {} if place.has_nvidia else {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}


NOTE = "/.penstock/note"
_TERMINATION_LOG = "/dev/termination-log"
AGAIN_CODE = 125
ONCE = f"[[ -s {NOTE} ]] && exit {AGAIN_CODE}"
"""A program that has run leaves a note: started once more, whoever did that, it does nothing."""
PEER_PATIENCE = 120
"""Seconds a node waits to see the others, which are started within moments of it."""


def command(launch: Launch) -> list[str]:
    """Return the words of the command; empty: the image's own."""
    spec = launch.spec
    script, program = (spec.run, ()) if isinstance(spec.run, str) else ("", spec.run or ())
    if not is_minded(launch):
        return list(program)
    given = (
        str(spec.max_duration or 0),
        str(launch.stop_grace),
        PAYLOAD,
        PREPARE.replace(_TERMINATION_LOG, NOTE),
        str(PEER_PATIENCE),
        "",  # the user's code is there before it starts
        spec.setup or "",
        script,
    )
    return [BASH, "-c", f"{ONCE}\n{MINDER.replace(_TERMINATION_LOG, NOTE)}", "bash", *given, *program]


def is_minded(launch: Launch) -> bool:
    """Does a minder run the program? Nothing has to be awaited for code that is sent along: it is there before."""
    return isinstance(launch.spec.run, str) or launch.spec.nodes > 1
