"""Placement on an engine that does not schedule: what fits now, what waits and why, what never fits.

First come, first served. A later workload may pass an earlier one that waits only where it takes nothing the earlier
one could use: everything ahead in the queue is counted as if it had started. An array starts with as many places as
there is room for, once that is half of what it could have on the empty machine. Deterministic, and pure: no clock, no
randomness, no input or output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.domain.nodes import Gpu, Node, product_matches
from penstock.domain.quantities import show_bytes, show_cpus
from penstock.domain.workloads import Spec


@dataclass(frozen=True)
class Ask:
    """What a whole workload takes, all its places (nodes, or indexes of an array at once) together."""

    nodes: int
    cpus_milli: int
    memory_bytes: int
    gpus: int
    products: tuple[str, ...] = ()
    least: int | None = None
    """So many places are enough to start; None is all or nothing."""

    def on(self, places: int) -> Ask:
        """The same with so many places."""
        return Ask(
            places,
            places * (self.cpus_milli // self.nodes),
            places * (self.memory_bytes // self.nodes),
            places * (self.gpus // self.nodes),
            self.products,
        )


@dataclass(frozen=True)
class Room:
    """What is left of a machine."""

    cpus_milli: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]

    def less(self, ask: Ask, taken: Iterable[str] = ()) -> Room:
        gone = set(taken)
        return Room(
            self.cpus_milli - ask.cpus_milli,
            self.memory_bytes - ask.memory_bytes,
            tuple(gpu for gpu in self.gpus if gpu.uuid not in gone),
        )


@dataclass(frozen=True)
class Decision:
    """`gpus` by place if it starts now; otherwise the sentence that says why it waits."""

    workload_id: str
    gpus: tuple[tuple[str, ...], ...] = ()
    waits: str | None = None


def ask_of(spec: Spec, default_cpus_milli: int, node: Node, indexes: int | None = None) -> Ask:
    """A workload's demand; a place that names no CPUs is counted with the default, no memory as none.
    `indexes` is how many of an array are left to run."""
    asked, least = spec.resources, spec.resources.requests
    one = Ask(
        nodes=1,
        cpus_milli=_first(least.cpus_milli, asked.cpus_milli, default_cpus_milli),
        memory_bytes=_first(least.memory_bytes, asked.memory_bytes, 0),
        gpus=asked.gpus,
        products=asked.gpu_products,
    )
    if spec.array is None:
        return one.on(spec.nodes)
    count = indexes or spec.array.count
    most = max(min(count, spec.array.parallelism or count, _places(one, node)), 1)
    whole = one.on(most)
    return Ask(most, whole.cpus_milli, whole.memory_bytes, whole.gpus, whole.products, least=-(-most // 2))


def _first(*amounts: int | None) -> int:
    return next(amount for amount in amounts if amount is not None)


def _places(one: Ask, node: Node) -> int:
    """How many of one the empty machine has room for."""
    had = (
        (node.cpus_milli, one.cpus_milli),
        (node.memory_bytes, one.memory_bytes),
        (len(matching(one.products, node.gpus)), one.gpus),
    )
    return min(total // each for total, each in had if each) if any(each for _, each in had) else node.cpus_milli


def room_of(node: Node) -> Room:
    return Room(node.cpus_milli, node.memory_bytes, node.gpus)


def never(ask: Ask, node: Node, room: Room | None = None) -> dict[str, str]:
    """Why it could not run even on the empty machine, by resource; nothing, if it could."""
    reasons = {}
    each = f" ({ask.nodes} nodes together)" if ask.nodes > 1 else ""
    if ask.cpus_milli > node.cpus_milli:
        had = show_cpus(node.cpus_milli)
        reasons["cpus"] = f"asks for {show_cpus(ask.cpus_milli)} CPUs{each}; {node.name} has {had}"
    if ask.memory_bytes > node.memory_bytes:
        had = show_bytes(node.memory_bytes)
        reasons["memory"] = f"asks for {show_bytes(ask.memory_bytes)} of memory{each}; {node.name} has {had}"
    if ask.gpus and ask.gpus > len(matching(ask.products, node.gpus)):
        free = (room or room_of(node)).gpus
        reasons["accelerators"] = f"asks for {_gpu_words(ask)}{each}; {node.name} has {_inventory(node.gpus, free)}"
    return reasons


def shortage(ask: Ask, room: Room, total: Node) -> str | None:
    """Why it cannot start now, in the user's words; None if it can."""
    if ask.least is not None:
        ask = ask.on(ask.least)
    if ask.cpus_milli > room.cpus_milli:
        free, all_ = show_cpus(max(room.cpus_milli, 0)), show_cpus(total.cpus_milli)
        return f"needs {show_cpus(ask.cpus_milli)} CPUs; {free} of {all_} are free"
    if ask.memory_bytes > room.memory_bytes:
        free, all_ = show_bytes(max(room.memory_bytes, 0)), show_bytes(total.memory_bytes)
        return f"needs {show_bytes(ask.memory_bytes)} of memory; {free} of {all_} are free"
    if ask.gpus:
        free_gpus = available(ask.products, room.gpus)
        if ask.gpus > len(free_gpus):
            there = matching(ask.products, total.gpus)
            return f"needs {_gpu_words(ask)}; {len(free_gpus)} of {len(there)} are free{_others(ask, room, there)}"
    return None


def _others(ask: Ask, room: Room, there: Sequence[Gpu]) -> str:
    """Who has GPUs that nobody here was given."""
    elsewhere = sum(gpu.taken_elsewhere for gpu in there)
    used = [gpu for gpu in matching(ask.products, room.gpus) if gpu.processes and not gpu.taken_elsewhere]
    said = f", {elsewhere} held by another server on this machine" if elsewhere else ""
    if used:
        first = used[0].processes[0]
        named = f"{first.name}, process {first.pid}" if first.name else f"process {first.pid}"
        said += f", {len(used)} used by programs that Penstock did not start ({named})"
    return said


def decide(
    waiting: Mapping[str, Ask], held: Mapping[str, tuple[Ask, Sequence[str]]], node: Node, *, most: int = 64
) -> list[Decision]:
    """What happens to the head of the queue. Stops where nothing further can start: the rest keep waiting behind."""
    room = room_of(node)
    for ask, uuids in held.values():
        room = room.less(ask, uuids)
    decisions: list[Decision] = []
    for position, (workload_id, ask) in enumerate(waiting.items()):
        if (room.cpus_milli <= 0 and ask.cpus_milli) or len(decisions) >= most:
            break
        lack = shortage(ask, room, node)
        if lack is None:
            granted = _granted(ask, room, node)
            chosen = _choose(granted, room)
            decisions.append(Decision(workload_id, gpus=chosen))
            room = room.less(granted, [uuid for place in chosen for uuid in place])
        else:
            ahead = f"; {position} ahead in the queue" if position else ""
            decisions.append(Decision(workload_id, waits=lack + ahead))
            room = _reserve(room, ask)
    return decisions


def _granted(ask: Ask, room: Room, node: Node) -> Ask:
    """As many places as there is room for."""
    if ask.least is None:
        return ask
    tried = (ask.on(places) for places in range(ask.nodes, ask.least, -1))
    return next((each for each in tried if shortage(each, room, node) is None), ask.on(ask.least))


def _reserve(room: Room, ask: Ask) -> Room:
    """Counts a waiting workload as started, so that nothing behind it can delay it."""
    usable = [gpu.uuid for gpu in available(ask.products, room.gpus)]
    return room.less(ask, usable[: ask.gpus])


def _choose(ask: Ask, room: Room) -> tuple[tuple[str, ...], ...]:
    """GPUs for each place: one product for all where possible, lowest minor number first."""
    if not ask.gpus:
        return ((),) * ask.nodes
    candidates = available(ask.products, room.gpus)
    counts: dict[str, int] = {}
    for gpu in candidates:
        counts[gpu.product] = counts.get(gpu.product, 0) + 1
    candidates.sort(key=lambda gpu: (counts[gpu.product] < ask.gpus, gpu.product, gpu.minor))
    each = ask.gpus // ask.nodes
    uuids = [gpu.uuid for gpu in candidates[: ask.gpus]]
    return tuple(tuple(uuids[place * each : (place + 1) * each]) for place in range(ask.nodes))


def matching(products: Sequence[str], gpus: Sequence[Gpu]) -> list[Gpu]:
    return [gpu for gpu in gpus if not products or any(product_matches(want, gpu.product) for want in products)]


def available(products: Sequence[str], gpus: Sequence[Gpu]) -> list[Gpu]:
    """Of those that nothing of ours has: what computes on one of them, others started."""
    return [gpu for gpu in matching(products, gpus) if not gpu.taken_elsewhere and not gpu.processes]


def _gpu_words(ask: Ask) -> str:
    product = f" {' or '.join(ask.products)}" if ask.products else ""
    return f"{ask.gpus}{product} GPU{'s' if ask.gpus != 1 else ''}"


def _inventory(gpus: Sequence[Gpu], free: Sequence[Gpu]) -> str:
    """`2 × NVIDIA A10 (1 free)`, for each product."""
    counts: dict[str, list[int]] = {}
    left = {gpu.uuid for gpu in available((), free)}
    for gpu in gpus:
        count = counts.setdefault(gpu.product, [0, 0])
        count[0] += 1
        count[1] += gpu.uuid in left
    return ", ".join(f"{n} × {product} ({free} free)" for product, (n, free) in sorted(counts.items())) or "no GPU"
