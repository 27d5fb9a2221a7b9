"""Compute how many replicas fit on a node, and which GPUs and CPUs they get."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from penstock.domain.nodes import Node
from penstock.domain.scheduling.capacity import Free, NodeCapacity
from penstock.domain.scheduling.demand import Allocation, Ask

PLENTY = 1 << 20
"""Places on a node for something that takes nothing."""


def share(total: int, ask: Ask, node: Node) -> int:
    """Return as much of a node's CPUs or memory as its GPUs are of the node's."""
    return total * ask.gpus // len(node.gpus) if node.gpus else total


def count(ask: Ask, products: Sequence[str], free: Free, node: Node) -> int:
    """Count how many places fit; `products` are those its GPUs may be of.

    Nothing is asked as often as this: what has a name of its own elsewhere (`share`, `half`) is written out.
    """
    fits = PLENTY
    gpus = ask.gpus
    if gpus:
        left = 0
        for product in products:
            left += free.gpus.get(product, 0)
        fits = left // gpus
        if fits <= 0:
            return 0
    each = ask.cpus_milli
    if each is None:
        each = node.cpus_milli * gpus // len(node.gpus) if node.gpus else node.cpus_milli
        there = _shares(free.cpus_milli, each)
    else:
        there = free.cpus_milli // each if each else PLENTY
    if there < fits:
        fits = there
    each = ask.memory_bytes
    if each is None:
        each = node.memory_bytes * gpus // len(node.gpus) if node.gpus else node.memory_bytes
        there = _shares(free.memory_bytes, each)
    else:
        there = free.memory_bytes // each if each else PLENTY
    if there < fits:
        fits = there
    if ask.exclusive and ask.cpus_milli:
        fits = min(fits, free.whole * 1000 // ask.cpus_milli)
    return fits if fits > 0 else 0


def _shares(free: int, each: int) -> int:
    """Count places by shares: a share gives way to what others asked for by number, down to half of it."""
    if not each:
        return PLENTY
    return (free + each // 2) // each if free > 0 else 0


def first_end(ask: Ask, products: Sequence[str], places: int, room: NodeCapacity) -> int:
    """Find after how many of the expected ends so many places fit, less one, without counting."""
    ends, node = room.ends, room.node
    found = bisect_left(ends.gpus(products), places * ask.gpus) if ask.gpus else 0
    for column, each, total in (
        (ends.cpus_milli, ask.cpus_milli, node.cpus_milli),
        (ends.memory_bytes, ask.memory_bytes, node.memory_bytes),
    ):
        if each is None:
            each = share(total, ask, node)
            need = (places - 1) * each + half(each)
        else:
            need = places * each
        if need:
            found = bisect_left(column, need, found)
    if ask.exclusive and ask.cpus_milli:
        found = bisect_left(ends.whole, -(-places * ask.cpus_milli // 1000), found)
    return found


def needed_cpus(ask: Ask, node: Node) -> int:
    """Return how many CPUs must be free: with fewer, a place has no room."""
    return ask.cpus_milli if ask.cpus_milli is not None else half(share(node.cpus_milli, ask, node))


def needed_memory(ask: Ask, node: Node) -> int:
    return ask.memory_bytes if ask.memory_bytes is not None else half(share(node.memory_bytes, ask, node))


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
    cpus = ask.cpus_milli if ask.cpus_milli is not None else share(node.cpus_milli, ask, node)
    memory = ask.memory_bytes if ask.memory_bytes is not None else share(node.memory_bytes, ask, node)
    left.cpus_milli -= places * cpus
    left.memory_bytes -= places * memory
    if ask.exclusive:
        left.whole -= places * cpus // 1000
    return left


def fill(ask: Ask, products: Sequence[str], places: int, room: NodeCapacity, free: Free) -> list[Allocation]:
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
        each_cpus = ask.cpus_milli
        if each_cpus is None:
            each_cpus = min(cpus, share(room.node.cpus_milli, ask, room.node))
        each_memory = ask.memory_bytes
        if each_memory is None:
            each_memory = min(memory, share(room.node.memory_bytes, ask, room.node))
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


def _in_order(products: Sequence[str], gpus: dict[str, int], need: int) -> list[str]:
    """Order products so that those with enough by themselves come first."""
    there = [product for product in products if gpus.get(product)]
    return sorted(there, key=lambda product: gpus[product] < need)
