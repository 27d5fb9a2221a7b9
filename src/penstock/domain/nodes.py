"""Nodes, Docker hosts and GPUs: what there is to run on."""

from __future__ import annotations

from enum import StrEnum

from penstock.domain.model import Model, Time


class GpuProcess(Model):
    pid: int
    memory_bytes: int | None = None
    name: str = ""


class Gpu(Model):
    uuid: str
    product: str
    memory_bytes: int
    minor: int
    memory_used_bytes: int | None = None
    """None where nobody can look."""
    processes: tuple[GpuProcess, ...] = ()
    taken_elsewhere: bool = False
    """Another Penstock on this machine holds it."""
    outside: str = ""
    """What others use of it, where their processes cannot be named: `5120 MiB in use`."""
    last_seen: Time | None = None
    """When its load was read; None if just now."""


class Holder(Model):
    """Whoever holds GPUs of a pool: a workload of ours, or something else that runs there."""

    workload: str | None = None
    """Its id; None for what is not ours."""
    user: str | None = None
    what: str
    """Its name for people: `train (abcd2345)`, `kube-system/dcgm-x2k`."""
    count: int


class GpuPool(Model):
    """The GPUs of one product on one node, where a cluster counts them and does not name them."""

    product: str
    total: int
    taken: int = 0
    holders: tuple[Holder, ...] = ()

    @property
    def free(self) -> int:
        return max(self.total - self.taken, 0)


class Allows(StrEnum):
    """The kinds of work a node takes, in PWM's words."""

    CPUWorkload = "CPUWorkload"
    GPUWorkload = "GPUWorkload"


class Host(Model):
    """A Docker engine that takes work, as its document registers it."""

    name: str
    group: str
    """The group whose members may run there, if they may get its nodes."""
    address: str
    """`unix:///run/docker.sock`, `ssh://user@host`, `tcp://host:2376`."""
    allows: tuple[Allows, ...] = tuple(Allows)
    maintenance: bool = False
    """Nothing new starts there; what runs goes on."""
    labels: dict[str, str] = {}
    gpus: tuple[Gpu, ...] = ()
    """Declared by the document, where they cannot be looked up."""


class Node(Model):
    name: str
    group: str = ""
    """The group it belongs to; empty: everyone."""
    address: str = ""
    labels: dict[str, str] = {}
    allows: tuple[Allows, ...] = tuple(Allows)
    maintenance: bool = False
    cpu_product: str = ""
    version: str = ""
    """The version of what runs workloads there: Docker, the kubelet, or Penstock itself."""
    last_seen: Time | None = None
    """When it last answered; None where it is this very machine, or the cluster answers for it."""
    cpus_milli: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    """Named one by one, where the engine hands them out so."""
    gpu_pools: tuple[GpuPool, ...] = ()
    """Counted by product, where the cluster hands them out."""
    cpus_taken_milli: int | None = None
    memory_taken_bytes: int | None = None
    """What the pods there have asked for; None where Penstock's own scheduler counts."""
    ready: bool = True
    message: str | None = None
    """Why nothing can start there: not ready, cordoned, a taint that is not tolerated."""
    full: str | None = None
    """Why nothing starts there but shells on volumes, which may clear its disk."""
    limits_enforced: bool
    """False where CPU and memory limits are advisory, which everyone is told."""


def unknown_node(host: Host) -> Node:
    """Return the node of a host that has not answered yet: what it has is unknown."""
    return Node(
        name=host.name,
        group=host.group,
        labels=host.labels,
        allows=host.allows,
        cpus_milli=0,
        memory_bytes=0,
        limits_enforced=True,
    )


def product_matches(wanted: str, product: str) -> bool:
    """Does a product have the wanted name? `A10`, `nvidia-a10` and `NVIDIA A10` all mean `NVIDIA A10`, not `NVIDIA
    A100`.

    Words may be left out and written together, as SkyPilot's names do: `A100-80GB` is a `NVIDIA A100-SXM4-80GB`,
    `RTX4090` a `NVIDIA GeForce RTX 4090`.
    """
    words = _words(product)
    for asked in _words(wanted):
        end = _end_of(asked, words)
        if end is None:
            return False
        words = words[end:]
    return True


def _end_of(asked: str, words: list[str]) -> int | None:
    """Return where the first run of words that together read `asked` ends."""
    for start in range(len(words)):
        joined = ""
        for end in range(start, len(words)):
            joined += words[end]
            if joined == asked:
                return end + 1
    return None


def _words(text: str) -> list[str]:
    return [word for word in text.lower().replace("_", "-").replace(" ", "-").split("-") if word]
