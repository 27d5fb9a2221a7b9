"""Nodes and jobs as the tests need them, and the same pool made afresh."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.domain.nodes import Gpu, GpuProcess, Node
from penstock.domain.scheduling.demand import Allocation, Ask, PlacedJob, QueuedJob
from penstock.domain.scheduling.pool import Pool
from penstock.domain.users import Group

GI = 1024**3
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
A10, V100 = "NVIDIA A10", "Tesla V100-SXM2-16GB"


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def gpus(node: str, count: int, product: str = V100, first: int = 0, **more) -> tuple[Gpu, ...]:
    memory = 16 * GI if product == V100 else 24 * GI
    return tuple(
        Gpu(uuid=f"{node}-{minor}", product=product, memory_bytes=memory, minor=minor, **more)
        for minor in range(first, first + count)
    )


def node(name: str = "box", cpus: float = 8, memory: int = 64, has: tuple[Gpu, ...] | int = (), **more) -> Node:
    found = gpus(name, has) if isinstance(has, int) else has
    size = {"cpus_milli": int(cpus * 1000), "memory_bytes": memory * GI}
    return Node(**{"name": name, "gpus": found, "limits_enforced": True} | size | more)


def ask(cpus: float | None = 1, memory: int | None = 0, gpus: int = 0, **more) -> Ask:
    return Ask(
        cpus_milli=None if cpus is None else int(cpus * 1000),
        memory_bytes=None if memory is None else memory * GI,
        gpus=gpus,
        **more,
    )


def job(id_: str, wants: Ask | None = None, since: float = 0, **more) -> QueuedJob:
    given = {"user": "ann", "group": "ann"} | more
    return QueuedJob(id_, wants or ask(), given.pop("user"), given.pop("group"), later(since), **given)


def running(
    id_: str, on: str = "box", cpus: float = 1, since: float = 0, uuids: tuple[str, ...] = (), **more
) -> PlacedJob:
    one = job(id_, ask(cpus, gpus=len(uuids)), **more)
    return PlacedJob(one, (Allocation(on, int(cpus * 1000), 0, uuids),), later(since))


def pool_of(*nodes: Node, waiting: list[QueuedJob] = (), held: list[PlacedJob] = (), groups: list[Group] = ()) -> Pool:
    pool = Pool()
    for each in nodes:
        pool.see(each)
    for group in groups:
        pool.set_group(group)
    for each in held:
        pool.hold(each)
    for each in waiting:
        pool.enqueue(each)
    return pool


def decided(pool: Pool, now: datetime = NOW) -> dict[str, list[str]]:
    """Who starts, and on which nodes."""
    found: dict[str, list[str]] = {}
    while (starts := pool.decide(now)) or not pool.settled:
        found |= {held.job.id: [place.node for place in held.places] for held in starts}
    return found


def why(pool: Pool, workload_id: str) -> str:
    return pool.causes([workload_id])[workload_id].message


def given(pool: Pool, workload_id: str) -> list[tuple[str, ...]]:
    """Its GPUs by place."""
    return [place.gpus for place in pool.held[workload_id].places]


def stranger() -> GpuProcess:
    return GpuProcess(pid=4711, memory_bytes=GI, name="python")
