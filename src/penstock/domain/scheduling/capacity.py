"""Account for one node: its capacity, what is used of it and what is free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.domain.nodes import Gpu, Node
from penstock.domain.scheduling.demand import Allocation, PlacedJob

Key = tuple[int, int, int, int, str]
Moment = tuple[int, datetime, str]


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


class FreeAfterEnds:
    """What is free after each end that is expected, as columns that can be searched: they only grow."""

    def __init__(self, frees: list[Free]) -> None:
        self.cpus_milli = [free.cpus_milli for free in frees]
        self.memory_bytes = [free.memory_bytes for free in frees]
        self.whole = [free.whole for free in frees]
        self._gpus = {product: [free.gpus[product] for free in frees] for product in (frees[0].gpus if frees else ())}

    def gpus(self, products: Sequence[str]) -> list[int]:
        """Return the column of all these products together."""
        found = [self._gpus[product] for product in products if product in self._gpus]
        if len(found) == 1:
            return found[0]
        return [sum(each) for each in zip(*found, strict=True)] if found else [0] * len(self.whole)


class NodeCapacity:
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
        self._ends: FreeAfterEnds | None = None
        self._soonest: Moment | None = None
        self._keys: dict[bool, Key] = {}
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
        self._free = self._later = self._ends = self._soonest = None
        self._keys.clear()

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

    @property
    def soonest(self) -> Moment | None:
        """Return the first end that is expected here."""
        if self._soonest is None:
            self._soonest = min((held.end_key for held in self.held.values()), default=None)
        return self._soonest

    @property
    def ends(self) -> FreeAfterEnds:
        """Return `later` in columns."""
        if self._ends is None:
            self._ends = FreeAfterEnds([free for _, free in self.later])
        return self._ends

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
        if with_gpus not in self._keys:
            free = self.free
            gpus = sum(free.gpus.values())
            empty = int(not self.held)
            first, second = (empty, gpus) if with_gpus else (gpus, empty)
            self._keys[with_gpus] = (first, second, free.cpus_milli, free.memory_bytes, self.node.name)
        return self._keys[with_gpus]


def whole(node: Node) -> Free:
    """Return all of a node, as if nothing ran there."""
    counts: dict[str, int] = {}
    for gpu in node.gpus:
        counts[gpu.product] = counts.get(gpu.product, 0) + 1
    return Free(node.cpus_milli, node.memory_bytes, node.cpus_milli // 1000, counts)


def usable(gpu: Gpu) -> bool:
    """May a job get this GPU? Somebody else's process or another server on the machine may need all of it."""
    return not gpu.taken_elsewhere and not gpu.processes and not gpu.outside
