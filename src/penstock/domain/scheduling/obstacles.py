"""Why a node does not take a place of an ask: for good, or for now. As data, and as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.domain.nodes import Allows, Gpu, Node, product_matches
from penstock.domain.quantities import count_cpus, show_bytes, show_cpus
from penstock.domain.scheduling.asks import Ask
from penstock.domain.scheduling.fitting import half, share
from penstock.domain.scheduling.rooms import Room, usable


@dataclass(frozen=True)
class Obstacle:
    """`node dgx1: has 2 of 4 free Tesla V100, needs 4`, without the node."""

    key: str
    """What of the ask it concerns: node, volumes, allows, cpu_product, labels, accelerators, cpus, memory; or what of
    the node: maintenance, ready, kept; or limits, of its user and group."""
    message: str
    passes: bool = True
    """False: even the empty node would not do."""


def obstacles(ask: Ask, room: Room) -> list[Obstacle]:
    """All that keep one place of it from this node now."""
    return [*never_there(ask, room.node), *closed(ask, room.node), *short(ask, room)]


def possible(ask: Ask, node: Node) -> bool:
    """Would the empty node do, and is it open?"""
    if ask.share_milli is not None and share(node.cpus_milli, ask, node) > ask.share_milli:
        return False
    return ask.may_use(node) and not closed(ask, node) and not never_there(ask, node)


def closed(ask: Ask, node: Node) -> list[Obstacle]:
    if node.maintenance:
        return [Obstacle("maintenance", "is in maintenance: what runs there goes on, nothing new comes")]
    if not node.ready:
        return [Obstacle("ready", f"is not ready: {node.message}" if node.message else "is not ready")]
    if node.message:
        return [Obstacle("ready", node.message)]
    if node.full and not ask.shell:
        return [Obstacle("ready", node.full)]
    return []


def never_there(ask: Ask, node: Node) -> list[Obstacle]:
    """Why even the empty node would not do."""
    return [Obstacle(key, message, passes=False) for key, message in _never(ask, node)]


def _never(ask: Ask, node: Node) -> Iterable[tuple[str, str]]:
    if ask.node and ask.node != node.name:
        yield "node", f"is not {ask.node}"
    for volume, home in ask.volumes:
        if home != node.name:
            yield "volumes", f"does not have volume {volume}, which is on {home}"
    wanted = Allows.GPUWorkload if ask.gpus else Allows.CPUWorkload
    if wanted not in node.allows:
        yield "allows", f"takes no {wanted}"
    if ask.cpu_product and sized(node) and not product_matches(ask.cpu_product, node.cpu_product):
        had = f"its CPUs are {node.cpu_product}" if node.cpu_product else "the product of its CPUs is not known"
        yield "cpu_product", f"{had}, not {ask.cpu_product}"
    for label, value in ask.labels:
        if node.labels.get(label) != value:
            yield "labels", f"has no label {label}={value}"
    if sized(node):
        yield from _too_small(ask, node)


def sized(node: Node) -> bool:
    """Of one that has never answered nobody knows what it has."""
    return node.cpus_milli > 0


def _too_small(ask: Ask, node: Node) -> Iterable[tuple[str, str]]:
    if ask.gpus and (there := sum(ask.takes(gpu) for gpu in node.gpus)) < ask.gpus:
        yield "accelerators", f"has {there or 'no'} {gpu_words(ask.products, there)}, needs {ask.gpus}"
    if ask.cpus_milli is not None and ask.cpus_milli > _cpus(ask, node):
        yield "cpus", f"has {count_cpus(_cpus(ask, node))}, needs {show_cpus(ask.cpus_milli)}"
    if ask.memory_bytes is not None and ask.memory_bytes > node.memory_bytes:
        yield "memory", f"has {show_bytes(node.memory_bytes)} of memory, needs {show_bytes(ask.memory_bytes)}"


def _cpus(ask: Ask, node: Node) -> int:
    """Of a machine with 3.5 CPUs three can be had whole."""
    return node.cpus_milli // 1000 * 1000 if ask.exclusive else node.cpus_milli


def short(ask: Ask, room: Room) -> list[Obstacle]:
    """Of what the node has, too little is free."""
    node, free = room.node, room.free
    found = []
    there = [gpu for gpu in node.gpus if ask.takes(gpu)] if ask.gpus else []
    left = sum(free.gpus[product] for product in {gpu.product for gpu in there})
    if left < ask.gpus <= len(there):
        words = product_words(there) or gpu_words(ask.products, len(there))
        busy = foreign(there, room)
        message = f"has {left} of {len(there)} free {words}, needs {ask.gpus}"
        found.append(Obstacle("accelerators", message + (f" ({busy})" if busy else "")))
    cpus, whose = _needed(ask.cpus_milli, node.cpus_milli, ask, node)
    had = min(free.cpus_milli, free.whole * 1000) if ask.exclusive else free.cpus_milli
    if had < cpus <= node.cpus_milli:
        left_words = f"has {show_cpus(max(had, 0))} of {show_cpus(node.cpus_milli)} CPUs free"
        found.append(Obstacle("cpus", f"{left_words}, needs {show_cpus(cpus)}{whose}"))
    memory, whose = _needed(ask.memory_bytes, node.memory_bytes, ask, node)
    if free.memory_bytes < memory <= node.memory_bytes:
        left_words = f"has {show_bytes(max(free.memory_bytes, 0))} of {show_bytes(node.memory_bytes)} of memory free"
        found.append(Obstacle("memory", f"{left_words}, needs {show_bytes(memory)}{whose}"))
    return found


def _needed(each: int | None, total: int, ask: Ask, node: Node) -> tuple[int, str]:
    if each is not None:
        return each, ""
    return half(share(total, ask, node)), f", half of the share of {ask.gpus} of {len(node.gpus)} GPUs"


def foreign(gpus: Sequence[Gpu], room: Room) -> str:
    """`1 used by programs that Penstock did not start (python, process 4711)`."""
    ours = {uuid for held in room.held.values() for place in room.places_of(held) for uuid in place.gpus}
    others = [gpu for gpu in gpus if gpu.uuid not in ours and not usable(gpu)]
    elsewhere = sum(gpu.taken_elsewhere for gpu in others)
    strangers = [gpu for gpu in others if not gpu.taken_elsewhere]
    said = [f"{elsewhere} held by another server on this machine"] if elsewhere else []
    if strangers:
        said.append(f"{len(strangers)} used by programs that Penstock did not start ({_first(strangers[0])})")
    return ", ".join(said)


def _first(gpu: Gpu) -> str:
    """The first that computes there, or what is seen of it."""
    if not gpu.processes:
        return gpu.outside
    process = gpu.processes[0]
    return f"{process.name}, process {process.pid}" if process.name else str(process.pid)


def gpu_words(products: Sequence[str], number: int) -> str:
    """`A10 or L4 GPUs`."""
    product = f"{' or '.join(products)} " if products else ""
    return f"{product}GPU{'s' if number != 1 else ''}"


def product_words(gpus: Sequence[Gpu]) -> str | None:
    """Their name, if all are of one product."""
    names = {gpu.product for gpu in gpus}
    return names.pop() if len(names) == 1 else None
