"""List nodes and GPUs: what there is, what is free, and who uses the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import TypeAdapter

from penstock.domain.nodes import Gpu, GpuPool, GpuProcess, Holder, Node
from penstock.domain.policy import Kind, Verb
from penstock.domain.quantities import show_cpus
from penstock.domain.users import Caller
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine
from penstock.services.scheduler.queue import JobQueue
from penstock.store.database import Database
from penstock.wire.measures import GpuMeasure, NodeMeasure
from penstock.wire.nodes import GpuPoolView, GpuRow, GpuView, HolderView, NodeView

NOT_OURS = "not of Penstock"
ELSEWHERE = "another server on this machine"
_VIEWS = TypeAdapter(tuple[GpuView, ...])
"""The views of a node's GPUs are made at once: there may be thousands."""


@dataclass(frozen=True)
class Totals:
    nodes: int
    ready: int
    cpus: float
    cpus_free: float
    memory_bytes: int
    memory_free_bytes: int
    gpus: int
    gpus_held: int


class Product(NamedTuple):
    name: str
    """`node/product`."""
    node: Node
    product: str


class Nodes:
    def __init__(self, db: Database, engine: Engine, queue: JobQueue) -> None:
        self._db = db
        self._engine = engine
        self._queue = queue
        self._shown: dict[str, tuple[Node, tuple[int, int], NodeView]] = {}
        """The node, what was taken of it and how it was shown, by name."""

    async def all(self) -> list[Node]:
        """Return the engine's nodes: a cluster may have thousands, so only what is shown is made into views."""
        return await self._engine.nodes()

    async def seen_by(self, caller: Caller) -> list[Node]:
        """Return everyone's nodes and those of the groups this request is about: another group's reads as if it were
        not there."""
        nodes = await self.all()
        return [node for node in nodes if not node.group or caller.reaches(Verb.get, Kind.Node, node.group)]

    async def views(self, caller: Caller, nodes: Sequence[Node]) -> list[NodeView]:
        holders = await self._holders()
        return [self._known_or_made(caller, node, holders) for node in nodes]

    async def products(self, caller: Caller) -> list[Product]:
        return [
            Product(f"{node.name}/{product}", node, product)
            for node in await self.seen_by(caller)
            for product in (*(pool.product for pool in node.gpu_pools), *sorted({gpu.product for gpu in node.gpus}))
        ]

    async def gpus(self, caller: Caller, products: Sequence[Product]) -> list[GpuRow]:
        holders = await self._holders()
        return [_row(caller, each, holders) for each in products]

    async def measured(self, caller: Caller, nodes: Sequence[NodeMeasure]) -> list[NodeMeasure]:
        holders = await self._holders()
        return [node.model_copy(update={"gpus": _measured(caller, node, holders)}) for node in nodes]

    async def totals(self) -> Totals:
        nodes = await self.all()
        free = [self._free(node) for node in nodes]
        holders = await self._holders()
        pools = [pool for node in nodes for pool in (*node.gpu_pools, *_pools(node, holders))]
        return Totals(
            nodes=len(nodes),
            ready=sum(node.ready for node in nodes),
            cpus=sum(node.cpus_milli for node in nodes) / 1000,
            cpus_free=sum(max(cpus, 0) for cpus, _ in free) / 1000,
            memory_bytes=sum(node.memory_bytes for node in nodes),
            memory_free_bytes=sum(max(memory, 0) for _, memory in free),
            gpus=sum(pool.total for pool in pools),
            gpus_held=sum(pool.taken for pool in pools),
        )

    async def _holders(self) -> dict[str, Workload]:
        """GPU uuid → the workload that has it, where our own scheduler hands them out."""
        held = self._queue.holders()
        if not held:
            return {}
        found = await self._db.read(lambda tx: {id_: tx.workloads.get(id_) for id_ in set(held.values())})
        return {uuid: workload for uuid, id_ in held.items() if (workload := found[id_])}

    def _known_or_made(self, caller: Caller, node: Node, holders: Mapping[str, Workload]) -> NodeView:
        """Return the view of a node. One whose GPUs nobody has looks the same to everyone, until it changes: there may
        be thousands."""
        if node.gpu_pools or any(gpu.uuid in holders or gpu.processes for gpu in node.gpus):
            return self._view(caller, node, holders)
        before, taken = self._shown.get(node.name), self._taken(node)
        if before is None or before[0] is not node or before[1] != taken:
            before = self._shown[node.name] = (node, taken, self._view(caller, node, holders))
        return before[2]

    def _view(self, caller: Caller, node: Node, holders: Mapping[str, Workload]) -> NodeView:
        cpus_free, memory_free = self._free(node)
        cpus_taken, memory_taken = self._taken(node)
        return NodeView(
            name=node.name,
            ready=node.ready,
            message=node.message or node.full,
            cpus=show_cpus(node.cpus_milli),
            cpus_free=show_cpus(max(cpus_free, 0)),
            cpus_taken=show_cpus(cpus_taken),
            memory_bytes=node.memory_bytes,
            memory_free_bytes=max(memory_free, 0),
            memory_taken_bytes=memory_taken,
            gpus=_one_by_one(caller, node, holders),
            gpu_pools=tuple(_pool(caller, node, pool) for pool in (*node.gpu_pools, *_pools(node, holders))),
            limits_enforced=node.limits_enforced,
            group=node.group,
            address=node.address,
            labels=node.labels,
            allows=node.allows,
            maintenance=node.maintenance,
            cpu_product=node.cpu_product,
            version=node.version,
            last_seen=node.last_seen,
        )

    def _free(self, node: Node) -> tuple[int, int]:
        """Return the free CPUs and bytes of memory; a node that takes no work has none."""
        if node.message:
            return 0, 0
        cpus_taken, memory_taken = self._taken(node)
        return node.cpus_milli - cpus_taken, node.memory_bytes - memory_taken

    def _taken(self, node: Node) -> tuple[int, int]:
        """Return the CPUs and bytes of memory that are taken, whether or not more may come."""
        if free := self._queue.free(node):
            return node.cpus_milli - free.cpus_milli, node.memory_bytes - free.memory_bytes
        return node.cpus_taken_milli or 0, node.memory_taken_bytes or 0


def _one_by_one(caller: Caller, node: Node, holders: Mapping[str, Workload]) -> tuple[GpuView, ...]:
    views = []
    for gpu in node.gpus:
        holder = holders.get(gpu.uuid)
        shown = holder is not None and _may_see(caller, holder.user)
        more = {
            "processes": _processes(caller, gpu.processes, holder),
            "taken": holder is not None or gpu.taken_elsewhere or _is_used(gpu, holders),
            "user": holder.user if holder else None,
            "workload": holder.id if holder and shown else None,
        }
        views.append(vars(gpu) | more)
    return _VIEWS.validate_python(views)


def _measured(caller: Caller, node: NodeMeasure, holders: Mapping[str, Workload]) -> tuple[GpuMeasure, ...]:
    return tuple(
        gpu.model_copy(update={"processes": _processes(caller, gpu.processes, holders.get(gpu.uuid))})
        if gpu.processes
        else gpu
        for gpu in node.gpus
    )


def _processes(caller: Caller, processes: tuple[GpuProcess, ...], holder: Workload | None) -> tuple[GpuProcess, ...]:
    """Return the processes on a GPU. Everyone may count what others run on theirs; their names are not for everyone."""
    if holder is None or _may_see(caller, holder.user):
        return processes
    return tuple(process.model_copy(update={"name": ""}) for process in processes)


def _is_used(gpu: Gpu, holders: Mapping[str, Workload]) -> bool:
    """Do programs use it that no server of ours started?"""
    return bool(gpu.processes or gpu.outside) and not gpu.taken_elsewhere and gpu.uuid not in holders


def _pools(node: Node, holders: Mapping[str, Workload]) -> list[GpuPool]:
    return [_counted(node, product, holders) for product in sorted({gpu.product for gpu in node.gpus})]


def _counted(node: Node, product: str, holders: Mapping[str, Workload]) -> GpuPool:
    gpus = [gpu for gpu in node.gpus if gpu.product == product]
    ours = [holder for gpu in gpus if (holder := holders.get(gpu.uuid))]
    named = {holder.id: holder for holder in ours}
    held = [
        Holder(workload=id_, user=named[id_].user, what=f"{named[id_].name} ({id_})", count=count)
        for id_, count in (Counter(holder.id for holder in ours) if ours else {}).items()
    ]
    elsewhere = sum(gpu.taken_elsewhere and gpu.uuid not in holders for gpu in gpus)
    if elsewhere:
        held.append(Holder(what=ELSEWHERE, count=elsewhere))
    used = sum(_is_used(gpu, holders) for gpu in gpus)
    if used:
        held.append(Holder(what=NOT_OURS, count=used))
    taken = len(ours) + elsewhere + used
    return GpuPool(product=product, total=len(gpus), taken=taken, holders=tuple(held))


def _row(caller: Caller, each: Product, holders: Mapping[str, Workload]) -> GpuRow:
    node = each.node
    known = next((pool for pool in node.gpu_pools if pool.product == each.product), None)
    pool = _pool(caller, node, known or _counted(node, each.product, holders))
    return GpuRow(**vars(pool), name=each.name, node=node.name, ready=node.ready, message=node.message)


def _pool(caller: Caller, node: Node, pool: GpuPool) -> GpuPoolView:
    holders = tuple(_holder(caller, holder) for holder in pool.holders)
    free = 0 if node.message else pool.free
    return GpuPoolView(product=pool.product, total=pool.total, taken=pool.taken, free=free, holders=holders)


def _holder(caller: Caller, holder: Holder) -> HolderView:
    """Show who has GPUs to everyone; with which workload, only to themselves and admins."""
    if _may_see(caller, holder.user) or holder.what == ELSEWHERE:
        return HolderView(user=holder.user, what=holder.what, workload=holder.workload, count=holder.count)
    return HolderView(user=holder.user, what=holder.user or NOT_OURS, count=holder.count)


def _may_see(caller: Caller, user: str | None) -> bool:
    return caller.admin or user == caller.user
