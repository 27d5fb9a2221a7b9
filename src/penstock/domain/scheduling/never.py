"""Why a job could not run even if nothing else did, by what it asks for, with what there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.domain.nodes import Node
from penstock.domain.quantities import count_cpus, show_bytes, show_cpus
from penstock.domain.scheduling.asks import Ask
from penstock.domain.scheduling.fitting import count, share
from penstock.domain.scheduling.obstacles import gpu_words, never_there, sized
from penstock.domain.scheduling.rooms import Room, whole

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


def never(ask: Ask, rooms: Sequence[Room]) -> dict[str, str]:
    """`rooms` are the nodes it may use. One that is closed now may be open tomorrow."""
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


def never_shared(ask: Ask, places: int, rooms: Sequence[Room], cpus_milli: int) -> str | None:
    """Of one that is counted with shares and may have so many CPUs at most: what the smallest is, if that is more."""
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


def _on_the_only(ask: Ask, places: int, room: Room) -> dict[str, str]:
    """All its places together, for they must share the node."""
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


def _said(key: str, ask: Ask, rooms: Sequence[Room]) -> str:
    """What no node has, beside what they have."""
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


def inventory(rooms: Iterable[Room]) -> str:
    """`2 × NVIDIA A10 (1 free)`, for each product."""
    totals: dict[str, int] = {}
    free: dict[str, int] = {}
    for room in rooms:
        for product, number in whole(room.node).gpus.items():
            totals[product] = totals.get(product, 0) + number
            free[product] = free.get(product, 0) + room.free.gpus[product]
    return ", ".join(f"{totals[name]} × {name} ({free[name]} free)" for name in sorted(totals)) or "no GPU"
