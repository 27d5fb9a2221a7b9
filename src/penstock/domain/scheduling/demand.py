"""Describe what a workload asks for, and what it holds once it is placed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import cached_property
from operator import attrgetter

from penstock.domain.nodes import Gpu, Node, product_matches
from penstock.domain.policy import EVERYTHING
from penstock.domain.workloads import Spec


@dataclass(frozen=True)
class Ask:
    """What one place asks for (a rank, or an index of an array), and how many places there are to be."""

    places: int = 1
    cpus_milli: int | None = None
    """None: the share of the node that its GPUs are of the node's."""
    memory_bytes: int | None = None
    """None: as with CPUs."""
    gpus: int = 0
    products: tuple[str, ...] = ()
    """Any one of these; empty is any product."""
    exclusive: bool = False
    """Its CPUs are whole ones, by number, that nobody else gets meanwhile."""
    node: str | None = None
    cpu_product: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    groups: frozenset[str] | None = None
    """The groups whose nodes its user may use; None is everyone's. Nodes of others read as if they were not there."""
    spread: bool = False
    """Spread it over as many nodes as there are, instead of as few."""
    together: bool = False
    """Put all places on one node: they could not reach each other otherwise."""
    volumes: tuple[tuple[str, str], ...] = ()
    """Names of volumes, and the node whose disk each is on."""
    array: bool = False
    """Half of the places it could have are enough to start; otherwise it is all or nothing."""
    shell: bool = False
    """It is a shell on a volume, which keeps nothing and may clear a disk."""
    share_milli: int | None = None
    """Where its share of the CPUs is more than this, a node would not do: its limits leave no more."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash is kept, for asks are looked up all the time."""
        return hash(_all_of(self))

    @cached_property
    def shape(self) -> Ask:
        """Return one place of it: what decides whether a node has room."""
        return Ask(
            1,
            self.cpus_milli,
            self.memory_bytes,
            self.gpus,
            self.products,
            self.exclusive,
            self.node,
            self.cpu_product,
            self.labels,
            self.groups,
            volumes=self.volumes,
            shell=self.shell,
            share_milli=self.share_milli,
        )

    def may_use(self, node: Node) -> bool:
        return self.groups is None or not node.group or node.group in self.groups or EVERYTHING in self.groups

    def takes(self, gpu: Gpu) -> bool:
        return self.takes_product(gpu.product)

    def takes_product(self, product: str) -> bool:
        return not self.products or any(product_matches(wanted, product) for wanted in self.products)


_all_of = attrgetter(*(each.name for each in fields(Ask)))


def ask_of(
    spec: Spec,
    default_cpus_milli: int,
    *,
    indexes: int | None = None,
    groups: frozenset[str] | None = None,
    shares: bool = True,
    together: bool = False,
    volumes: tuple[tuple[str, str], ...] = (),
    shell: bool = False,
) -> Ask:
    """Return what a workload asks for. `indexes` is how many of an array are left to run. What names no CPUs is counted
    with the default, what names no memory with none; but with `shares` a place that has GPUs is counted with its share
    of the node, for it will keep that much of the machine busy."""
    asked, least, pick = spec.resources, spec.resources.requests, spec.selectors
    cpus = least.cpus_milli if least.cpus_milli is not None else asked.cpus_milli
    memory = least.memory_bytes if least.memory_bytes is not None else asked.memory_bytes
    by_share = shares and asked.gpus > 0
    if asked.exclusive_cpus:
        cpus = _whole(cpus if cpus is not None else 1000)
    elif cpus is None and not by_share:
        cpus = default_cpus_milli
    if memory is None and not by_share:
        memory = 0
    count = (indexes or spec.array.count) if spec.array else spec.nodes
    return Ask(
        places=min(count, spec.array.parallelism or count) if spec.array else count,
        cpus_milli=cpus,
        memory_bytes=memory,
        gpus=asked.gpus,
        products=asked.gpu_products,
        exclusive=asked.exclusive_cpus,
        node=pick.node,
        cpu_product=pick.cpu_product,
        labels=tuple(sorted(pick.labels.items())),
        groups=groups,
        spread=pick.spread,
        together=together and spec.nodes > 1,
        volumes=volumes,
        shell=shell,
        array=spec.array is not None,
    )


def _whole(milli: int) -> int:
    return -(-milli // 1000) * 1000


@dataclass(frozen=True)
class QueuedJob:
    """A workload as the queue sees it."""

    id: str
    ask: Ask
    user: str
    group: str
    since: datetime
    """When it came: first come, first served, and then by id."""
    priority: int = 0
    max_duration: int | None = None
    """Seconds, its own or its group's; None: it never ends, as far as anyone knows."""
    unlimited: bool = False
    """Nobody's limits count it: a shell on a volume is no work."""

    @property
    def lasts(self) -> int:
        return lasts(self.max_duration)


FOR_EVER = 1 << 60


def lasts(max_duration: int | None) -> int:
    """Seconds."""
    return FOR_EVER if max_duration is None else max_duration


@dataclass(frozen=True)
class Allocation:
    """What one rank or index has."""

    node: str
    cpus_milli: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()
    """By uuid."""
    cpuset: tuple[int, ...] = ()
    """By number, where they are its own."""


@dataclass(frozen=True)
class PlacedJob:
    """A job that has its places."""

    job: QueuedJob
    places: tuple[Allocation, ...]
    started: datetime

    @cached_property
    def ends(self) -> datetime | None:
        """Return when it ends at the latest; None is not known."""
        limit = self.job.max_duration
        return None if limit is None else self.started + timedelta(seconds=limit)

    @cached_property
    def end_key(self) -> tuple[int, datetime, str]:
        """Return its place in the order in which room is expected: what has an end before what has none, of those the
        oldest first."""
        return (0, self.ends, self.job.id) if self.ends else (1, self.started, self.job.id)

    @property
    def gpus(self) -> int:
        return sum(len(place.gpus) for place in self.places)

    @property
    def cpus_milli(self) -> int:
        return sum(place.cpus_milli for place in self.places)

    @property
    def memory_bytes(self) -> int:
        return sum(place.memory_bytes for place in self.places)
