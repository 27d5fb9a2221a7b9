"""Answers about nodes and GPUs."""

from __future__ import annotations

from penstock.domain.model import Model, Time
from penstock.domain.nodes import Allows, Gpu
from penstock.wire.pages import Page


class GpuView(Gpu):
    taken: bool
    user: str | None
    """Who has it."""
    workload: str | None
    """With what; only for those who may see that."""


class HolderView(Model):
    user: str | None
    what: str
    """The workload, or whatever else has them; only the user's name for those who may not see more."""
    workload: str | None = None
    count: int


class GpuPoolView(Model):
    """The GPUs of one product on one node."""

    product: str
    total: int
    taken: int
    free: int
    holders: tuple[HolderView, ...]


class NodeView(Model):
    name: str
    ready: bool
    message: str | None
    """Why nothing can start there."""
    cpus: str
    cpus_free: str
    """To be had now: none where nothing can start."""
    cpus_taken: str = "0"
    memory_bytes: int
    memory_free_bytes: int
    memory_taken_bytes: int = 0
    gpus: tuple[GpuView, ...]
    """One by one, where the engine hands them out so."""
    gpu_pools: tuple[GpuPoolView, ...]
    limits_enforced: bool
    group: str = ""
    """Whose it is; empty: everyone's."""
    address: str = ""
    labels: dict[str, str] = {}
    allows: tuple[Allows, ...] = tuple(Allows)
    maintenance: bool = False
    cpu_product: str = ""
    version: str = ""
    """Of what runs workloads there: Docker, the kubelet, Penstock itself."""
    last_seen: Time | None = None
    """None where it is this very machine, or the cluster answers for it."""


class GpuRow(GpuPoolView):
    name: str
    """`node/product`."""
    node: str
    ready: bool
    message: str | None
    """Why nothing can start on its node."""


class GpuPage(Page):
    items: tuple[GpuRow, ...]


class NodePage(Page):
    items: tuple[NodeView, ...]
