"""Find why a node cannot take a replica: never, or not now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.domain.nodes import Allows, Gpu, Node, product_matches
from penstock.domain.quantities import count_cpus, show_bytes, show_cpus
from penstock.domain.scheduling.capacity import NodeCapacity, usable, whole
from penstock.domain.scheduling.demand import Ask
from penstock.domain.scheduling.fit import count, half, share


@dataclass(frozen=True)
class Obstacle:
    """`node dgx1: has 2 of 4 free Tesla V100, needs 4`, without the node."""

    key: str
    """What of the ask it concerns: node, volumes, allows, cpu_product, labels, accelerators, cpus, memory; or what of
    the node: maintenance, ready, kept; or limits, of its user and group."""
    message: str
    passes: bool = True
    """False: even the empty node would not do."""


def obstacles(ask: Ask, room: NodeCapacity) -> list[Obstacle]:
    """Return all that keeps one place of it from this node now."""
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
    """Return why even the empty node would not do."""
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
    """Is the node's size known? A node that has never answered has none."""
    return node.cpus_milli > 0


def _too_small(ask: Ask, node: Node) -> Iterable[tuple[str, str]]:
    if ask.gpus and (there := sum(ask.takes(gpu) for gpu in node.gpus)) < ask.gpus:
        yield "accelerators", f"has {there or 'no'} {gpu_words(ask.products, there)}, needs {ask.gpus}"
    if ask.cpus_milli is not None and ask.cpus_milli > _cpus(ask, node):
        yield "cpus", f"has {count_cpus(_cpus(ask, node))}, needs {show_cpus(ask.cpus_milli)}"
    if ask.memory_bytes is not None and ask.memory_bytes > node.memory_bytes:
        yield "memory", f"has {show_bytes(node.memory_bytes)} of memory, needs {show_bytes(ask.memory_bytes)}"


def _cpus(ask: Ask, node: Node) -> int:
    """Return how many CPUs can be had: of a machine with 3.5, three can be had whole."""
    return node.cpus_milli // 1000 * 1000 if ask.exclusive else node.cpus_milli


def short(ask: Ask, room: NodeCapacity) -> list[Obstacle]:
    """Return of what the node has too little free."""
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


def foreign(gpus: Sequence[Gpu], room: NodeCapacity) -> str:
    """Say who else uses the GPUs: `1 used by programs that Penstock did not start (python, process 4711)`."""
    ours = {uuid for held in room.held.values() for place in room.places_of(held) for uuid in place.gpus}
    others = [gpu for gpu in gpus if gpu.uuid not in ours and not usable(gpu)]
    elsewhere = sum(gpu.taken_elsewhere for gpu in others)
    strangers = [gpu for gpu in others if not gpu.taken_elsewhere]
    said = [f"{elsewhere} held by another server on this machine"] if elsewhere else []
    if strangers:
        said.append(f"{len(strangers)} used by programs that Penstock did not start ({_first(strangers[0])})")
    return ", ".join(said)


def _first(gpu: Gpu) -> str:
    """Name the first program that computes there, or what is seen of it."""
    if not gpu.processes:
        return gpu.outside
    process = gpu.processes[0]
    return f"{process.name}, process {process.pid}" if process.name else str(process.pid)


def gpu_words(products: Sequence[str], number: int) -> str:
    """Name the GPUs: `A10 or L4 GPUs`."""
    product = f"{' or '.join(products)} " if products else ""
    return f"{product}GPU{'s' if number != 1 else ''}"


def product_words(gpus: Sequence[Gpu]) -> str | None:
    """Return the product's name, if all are of one product."""
    names = {gpu.product for gpu in gpus}
    return names.pop() if len(names) == 1 else None


NO_NODE = "there is no node that you may use"


def fits_ever(ask: Ask, nodes: Iterable[Node]) -> bool:
    """Return whether these nodes could run it if they were empty and open; it may not use all of them."""
    missing = _places(ask)
    for node in nodes:
        if not ask.may_use(node) or never_there(ask, node):
            continue
        if not sized(node):
            return True
        fits = count(ask, _products(ask, node), whole(node), node)
        if fits >= missing:
            return True
        missing -= 0 if ask.together else fits
    return False


def never(ask: Ask, rooms: Sequence[NodeCapacity]) -> dict[str, str]:
    """Return why no node could ever run it; `rooms` are the nodes it may use. One that is closed now may be open
    tomorrow."""
    if not rooms:
        return {"node": NO_NODE}
    if elsewhere := [f"volume {volume} is on {home}" for volume, home in ask.volumes if ask.node not in (None, home)]:
        return {
            "node": f"asks for node {ask.node}, but {', '.join(elsewhere)}: ask for no node, or mount another volume"
        }
    places = _places(ask)
    if len(rooms) == 1:
        return _on_the_only(ask, places, rooms[0])
    found = {room.node.name: {each.key: each.message for each in never_there(ask, room.node)} for room in rooms}
    fitting = [room.node for room in rooms if not found[room.node.name]]
    if not fitting:
        common = [key for key in _KEYS if all(key in each for each in found.values())]
        if common:
            return {key: _said(key, ask, rooms) for key in common}
        name, nearest = min(found.items(), key=lambda item: (len(item[1]), item[0]))
        return {key: f"no node has all it asks for; {name} {message}" for key, message in nearest.items()}
    if not all(map(sized, fitting)):
        return {}
    rooms_for = [count(ask, _products(ask, node), whole(node), node) for node in fitting]
    could = max(rooms_for) if ask.together else sum(rooms_for)
    if could < places:
        there = "the largest has" if ask.together else "there is"
        return {_largest(ask): f"asks for {places} nodes with {_each(ask)} each; {there} room for {could}"}
    return {}


def never_shared(ask: Ask, places: int, rooms: Sequence[NodeCapacity], cpus_milli: int) -> str | None:
    """Say that the smallest share of a node is more CPUs than its limits leave."""
    nodes = [room.node for room in rooms if not never_there(ask, room.node)]
    if not all(map(sized, nodes)):
        return None
    if ask.together:
        nodes = [node for node in nodes if count(ask, _products(ask, node), whole(node), node) >= places]
    shares = [(places * share(node.cpus_milli, ask, node), node.name) for node in nodes]
    least, name = min(shares, default=(0, ""))
    if least <= cpus_milli:
        return None
    return f"names no CPUs, so its share of a node counts, at least {count_cpus(least)} ({name})"


def _places(ask: Ask) -> int:
    """Return how many it needs to start at all: an array goes on with few."""
    return 1 if ask.array else ask.places


_AMOUNTS = {"accelerators", "cpus", "memory"}
_KEYS = ("node", "volumes", "allows", "cpu_product", "labels", "accelerators", "cpus", "memory")


def _on_the_only(ask: Ask, places: int, room: NodeCapacity) -> dict[str, str]:
    """Return why all places together do not fit, for they must share the only node."""
    node = room.node
    each = f" ({places} nodes together)" if places > 1 else ""
    there = {obstacle.key for obstacle in never_there(ask, node)}
    reasons = {key: _said(key, ask, [room]) for key in _KEYS if key in there - _AMOUNTS}
    if not sized(node):
        return reasons
    cpus, memory, gpus = places * (ask.cpus_milli or 0), places * (ask.memory_bytes or 0), places * ask.gpus
    had = node.cpus_milli // 1000 * 1000 if ask.exclusive else node.cpus_milli
    if cpus > had:
        reasons["cpus"] = f"asks for {count_cpus(cpus)}{each}; {node.name} has {show_cpus(had)}"
    if memory > node.memory_bytes:
        has = show_bytes(node.memory_bytes)
        reasons["memory"] = f"asks for {show_bytes(memory)} of memory{each}; {node.name} has {has}"
    if gpus > sum(ask.takes(gpu) for gpu in node.gpus):
        asked = f"{gpus} {gpu_words(ask.products, gpus)}"
        reasons["accelerators"] = f"asks for {asked}{each}; {node.name} has {inventory([room])}"
    return reasons


def _said(key: str, ask: Ask, rooms: Sequence[NodeCapacity]) -> str:
    """Say what no node has, beside what they have."""
    nodes = [room.node for room in rooms]
    match key:
        case "node":
            return f"asks for node {ask.node}; there {_are([node.name for node in nodes])}"
        case "volumes":
            homes = [f"{volume} is on {home}" for volume, home in ask.volumes]
            return f"no node that you may use has all its volumes: {', '.join(homes)}"
        case "allows":
            return f"no node takes {'GPU' if ask.gpus else 'CPU'} workloads"
        case "cpu_product":
            return f"asks for {ask.cpu_product} CPUs; there {_are([node.cpu_product or 'unknown' for node in nodes])}"
        case "labels":
            wanted = [f"{label}={value}" for label, value in ask.labels]
            return f"asks for nodes with the label {' and '.join(wanted)}; there is none"
        case "accelerators":
            return f"asks for {ask.gpus} {gpu_words(ask.products, ask.gpus)} on one node; there are {inventory(rooms)}"
        case "cpus":
            largest = max(nodes, key=lambda node: node.cpus_milli)
            had = show_cpus(largest.cpus_milli)
            return f"asks for {count_cpus(ask.cpus_milli or 0)} on one node; the largest, {largest.name}, has {had}"
        case _:
            largest = max(nodes, key=lambda node: node.memory_bytes)
            asked, had = show_bytes(ask.memory_bytes or 0), show_bytes(largest.memory_bytes)
            return f"asks for {asked} of memory on one node; the largest, {largest.name}, has {had}"


def _are(names: Iterable[str]) -> str:
    found = sorted(set(names))
    return f"{'is' if len(found) == 1 else 'are'} {', '.join(found)}"


def _largest(ask: Ask) -> str:
    if ask.gpus:
        return "accelerators"
    return "memory" if not ask.cpus_milli else "cpus"


def _each(ask: Ask) -> str:
    said = [f"{ask.gpus} {gpu_words(ask.products, ask.gpus)}"] if ask.gpus else []
    said += [count_cpus(ask.cpus_milli)] if ask.cpus_milli else []
    said += [f"{show_bytes(ask.memory_bytes)} of memory"] if ask.memory_bytes else []
    return ", ".join(said)


def _products(ask: Ask, node: Node) -> list[str]:
    return sorted({gpu.product for gpu in node.gpus if ask.takes(gpu)})


def inventory(rooms: Iterable[NodeCapacity]) -> str:
    """List what there is of each product: `2 × NVIDIA A10 (1 free)`."""
    totals: dict[str, int] = {}
    free: dict[str, int] = {}
    for room in rooms:
        for product, number in whole(room.node).gpus.items():
            totals[product] = totals.get(product, 0) + number
            free[product] = free.get(product, 0) + room.free.gpus[product]
    return ", ".join(f"{totals[name]} × {name} ({free[name]} free)" for name in sorted(totals)) or "no GPU"
