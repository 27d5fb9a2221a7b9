"""Answers about nodes and GPUs."""

from __future__ import annotations

from penstock.domain.model import Model
from penstock.domain.nodes import Gpu, Holder, NodeFacts
from penstock.wire.pages import Page


class GpuView(Gpu):
    taken: bool
    user: str | None
    """Who has it."""
    workload: str | None
    """With what; only for those who may see that."""


class GpuPoolView(Model):
    """The GPUs of one product on one node."""

    product: str
    total: int
    taken: int
    free: int
    holders: tuple[Holder, ...]


class NodeView(NodeFacts):
    cpus: str
    cpus_free: str
    """To be had now: none where nothing can start."""
    cpus_taken: str = "0"
    memory_free_bytes: int
    memory_taken_bytes: int = 0
    gpus: tuple[GpuView, ...]
    """One by one, where the engine hands them out so."""
    gpu_pools: tuple[GpuPoolView, ...]


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
