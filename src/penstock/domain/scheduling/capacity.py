"""Account for one node: what is used of it, what is free, how many places fit, and which GPUs and CPUs they get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.domain.nodes import Gpu, Node
from penstock.domain.scheduling.demand import Allocation, Ask, PlacedJob

Key = tuple[int, int, int, int, str]
Moment = tuple[int, datetime, str]
PLENTY = 1 << 20
"""Places on a node for something that takes nothing."""


@dataclass(slots=True)
class Free:
    """The amounts that are left of a node now, or would be at some time."""

    cpus_milli: int
    memory_bytes: int
    whole: int
    """How many CPUs nobody has to himself."""
    gpus: dict[str, int]
    """By product."""

    def copy(self) -> Free:
        return Free(self.cpus_milli, self.memory_bytes, self.whole, self.gpus.copy())

    def common(self, other: Free) -> Free:
        """Return what is free in both."""
        return Free(
            min(self.cpus_milli, other.cpus_milli),
            min(self.memory_bytes, other.memory_bytes),
            min(self.whole, other.whole),
            {product: min(count, other.gpus.get(product, 0)) for product, count in self.gpus.items()},
        )


class NodeUsage:
    def __init__(self, node: Node, held: Iterable[PlacedJob] = ()) -> None:
        self.node = node
        self.held: dict[str, PlacedJob] = {}
        self.products = {gpu.uuid: gpu.product for gpu in node.gpus}
        self._cpus = node.cpus_milli
        self._memory = node.memory_bytes
        self._numbers = set(range(node.cpus_milli // 1000))
        self._gpus = {gpu.uuid: gpu for gpu in node.gpus}
        self._free: Free | None = None
        self._later: list[tuple[PlacedJob, Free]] | None = None
        for each in held:
            self.take(each)

    # what happens

    def take(self, held: PlacedJob) -> None:
        self.held[held.job.id] = held
        for place in self.places_of(held):
            self._cpus -= place.cpus_milli
            self._memory -= place.memory_bytes
            self._numbers.difference_update(place.cpuset)
            for uuid in place.gpus:
                self._gpus.pop(uuid, None)
        self._changed()

    def give(self, workload_id: str) -> None:
        held = self.held.pop(workload_id)
        for place in self.places_of(held):
            self._cpus += place.cpus_milli
            self._memory += place.memory_bytes
            self._numbers.update(place.cpuset)
        returned = {uuid for place in self.places_of(held) for uuid in place.gpus}
        if returned:
            self._seen_without(returned)
        self._changed()

    def _changed(self) -> None:
        self._free = self._later = None

    def _seen_without(self, returned: set[str]) -> None:
        """Forget the processes last seen on these GPUs, which were ours: each is free until somebody else is seen
        there."""
        if any(gpu.processes or gpu.outside for gpu in self.node.gpus if gpu.uuid in returned):
            unused = {"processes": (), "outside": ""}
            gpus = [gpu.model_copy(update=unused) if gpu.uuid in returned else gpu for gpu in self.node.gpus]
            self.node = self.node.model_copy(update={"gpus": tuple(gpus)})
        self._gpus.update((gpu.uuid, gpu) for gpu in self.node.gpus if gpu.uuid in returned)

    # what there is

    def places_of(self, held: PlacedJob) -> list[Allocation]:
        return [place for place in held.places if place.node == self.node.name]

    @property
    def free(self) -> Free:
        if self._free is None:
            counts = dict.fromkeys(self.products.values(), 0)
            for gpu in self._gpus.values():
                if usable(gpu):
                    counts[gpu.product] += 1
            self._free = Free(self._cpus, self._memory, len(self._numbers), counts)
        return self._free

    def free_gpus(self, product: str) -> list[Gpu]:
        """Return the free GPUs of a product, lowest minor number first."""
        found = [gpu for gpu in self._gpus.values() if gpu.product == product and usable(gpu)]
        return sorted(found, key=lambda gpu: (gpu.minor, gpu.uuid))

    def free_numbers(self) -> list[int]:
        return sorted(self._numbers)

    @property
    def later(self) -> list[tuple[PlacedJob, Free]]:
        """Return what runs here, in the order in which it is expected to end, and what is free once it has."""
        if self._later is None:
            self._later = []
            free = self.free
            for held in sorted(self.held.values(), key=lambda held: held.end_key):
                free = self._without(free, held)
                self._later.append((held, free))
        return self._later

    def _without(self, free: Free, held: PlacedJob) -> Free:
        free = free.copy()
        for place in self.places_of(held):
            free.cpus_milli += place.cpus_milli
            free.memory_bytes += place.memory_bytes
            free.whole += len(place.cpuset)
            for uuid in place.gpus:
                if product := self.products.get(uuid):
                    free.gpus[product] += 1
        return free

    def free_at(self, moment: datetime) -> Free:
        """Return what is free then, at the latest."""
        found = self.free
        for held, free in self.later:
            if held.ends is None or held.ends > moment:
                break
            found = free
        return found

    def key(self, with_gpus: bool) -> Key:
        """Return the node's place in the order in which nodes are filled, so that whole ones stay free: those in use
        first, of those the fullest; and what needs no GPU goes where fewest are free."""
        free = self.free
        gpus = sum(free.gpus.values())
        empty = int(not self.held)
        first, second = (empty, gpus) if with_gpus else (gpus, empty)
        return first, second, free.cpus_milli, free.memory_bytes, self.node.name


def whole(node: Node) -> Free:
    """Return all of a node, as if nothing ran there."""
    counts: dict[str, int] = {}
    for gpu in node.gpus:
        counts[gpu.product] = counts.get(gpu.product, 0) + 1
    return Free(node.cpus_milli, node.memory_bytes, node.cpus_milli // 1000, counts)


def usable(gpu: Gpu) -> bool:
    """May a job get this GPU? Somebody else's process or another server on the machine may need all of it."""
    return not gpu.taken_elsewhere and not gpu.processes and not gpu.outside


def share(total: int, ask: Ask, node: Node) -> int:
    """Return as much of a node's CPUs or memory as its GPUs are of the node's."""
    return total * ask.gpus // len(node.gpus) if node.gpus else total


def count(ask: Ask, products: Sequence[str], free: Free, node: Node) -> int:
    """Count how many places fit; `products` are those its GPUs may be of."""
    fits = _count(ask.cpus_milli, free.cpus_milli, node.cpus_milli, ask, node)
    if fits > 0:
        fits = min(fits, _count(ask.memory_bytes, free.memory_bytes, node.memory_bytes, ask, node))
    if ask.gpus and fits > 0:
        fits = min(fits, sum(free.gpus.get(product, 0) for product in products) // ask.gpus)
    if ask.exclusive and ask.cpus_milli:
        fits = min(fits, free.whole * 1000 // ask.cpus_milli)
    return max(fits, 0)


def _count(each: int | None, free: int, total: int, ask: Ask, node: Node) -> int:
    """Count places by one amount: a share gives way to what others asked for by number, down to half of it."""
    if each is None:
        each = share(total, ask, node)
        free = free + each // 2 if free > 0 else 0
    return free // each if each else PLENTY


def half(amount: int) -> int:
    return -(-amount // 2)


def spend(ask: Ask, products: Sequence[str], places: int, free: Free, node: Node) -> Free:
    """Return what is left beside so many places; of what is short, nothing."""
    left = free.copy()
    need = ask.gpus * places
    for product in _in_order(products, left.gpus, need):
        taken = min(left.gpus[product], need)
        left.gpus[product] -= taken
        need -= taken
    cpus, memory = _one_place(ask, node)
    left.cpus_milli -= places * cpus
    left.memory_bytes -= places * memory
    if ask.exclusive:
        left.whole -= places * cpus // 1000
    return left


def fill(ask: Ask, products: Sequence[str], places: int, room: NodeUsage, free: Free) -> list[Allocation]:
    """Return so many places that fit into `free`: one product for all where possible, lowest minor number first."""
    need = ask.gpus * places
    uuids: list[str] = []
    if need:
        for product in _in_order(products, free.gpus, need):
            uuids += [gpu.uuid for gpu in room.free_gpus(product)[: free.gpus[product]]]
    numbers = room.free_numbers() if ask.exclusive else []
    found = []
    cpus, memory = free.cpus_milli, free.memory_bytes
    for rank in range(places):
        each_cpus, each_memory = _one_place(ask, room.node)
        if ask.cpus_milli is None:
            each_cpus = min(cpus, each_cpus)
        if ask.memory_bytes is None:
            each_memory = min(memory, each_memory)
        cpus, memory = cpus - each_cpus, memory - each_memory
        own = each_cpus // 1000 if ask.exclusive else 0
        found.append(
            Allocation(
                room.node.name,
                each_cpus,
                each_memory,
                tuple(uuids[rank * ask.gpus : (rank + 1) * ask.gpus]),
                tuple(numbers[rank * own : (rank + 1) * own]),
            )
        )
    return found


def _one_place(ask: Ask, node: Node) -> tuple[int, int]:
    """Return the CPUs and memory of one place: a share of the node where the ask says nothing."""
    cpus = ask.cpus_milli if ask.cpus_milli is not None else share(node.cpus_milli, ask, node)
    memory = ask.memory_bytes if ask.memory_bytes is not None else share(node.memory_bytes, ask, node)
    return cpus, memory


def _in_order(products: Sequence[str], gpus: dict[str, int], need: int) -> list[str]:
    """Order products so that those with enough by themselves come first."""
    there = [product for product in products if gpus.get(product)]
    return sorted(there, key=lambda product: gpus[product] < need)
