"""Explain why no node takes a pod, from the scheduler's causes and the inventory."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from penstock.domain.nodes import GpuPool, Holder, Node
from penstock.domain.quantities import show_bytes, show_cpus
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects import NodeSelectorTerm, Pod
from penstock.engines.kubernetes.nodes import CPU, DISK, MEMORY, Inventory, sum_requests

SHOWN = 3
"""The most nodes, holders and products that are named; of more only their number is."""

_CAUSES = re.compile(r"(\d+) ((?:(?!, \d+ ).)+)")
_LIST = re.compile(
    r"^\d+/(\d+) nodes are available: (.*?)(?:\.? no new claims to deallocate.*|\.? preemption: .*|\.?)$", re.S
)
_INSUFFICIENT = re.compile(r"Insufficient (\S+)")
_KNOWN = ("Insufficient ", "untolerated taint", "were unschedulable", "node affinity/selector", "volume", "persistent")


@dataclass(frozen=True)
class ShortageCauses:
    """The causes in the scheduler's message."""

    insufficient: frozenset[str] = frozenset()
    affinity: bool = False
    closed: bool = False
    others: tuple[str, ...] = ()


def read_causes(message: str) -> ShortageCauses:
    found = _LIST.match(message)
    listed = [what for _, what in _CAUSES.findall(found[2])] if found else []
    return ShortageCauses(
        insufficient=frozenset(found[1] for what in listed if (found := _INSUFFICIENT.match(what))),
        affinity=any("node affinity/selector" in what for what in listed),
        closed=any("untolerated taint" in what or "were unschedulable" in what for what in listed),
        others=tuple(what for what in listed if not any(known in what for known in _KNOWN)),
    )


def explain_shortage(pod: Pod, message: str, inventory: Inventory) -> str:
    return explain_causes(pod, read_causes(message), inventory) or _plain(message)


def explain_causes(pod: Pod, causes: ShortageCauses, inventory: Inventory) -> str:
    asked, products = sum_requests(pod), wanted_products(pod)
    nodes = inventory.all()
    if not nodes:
        return "there is no node"
    said = []
    gpus = int(asked.get(names.GPU, 0))
    short_of_gpus = gpus and (
        names.GPU in causes.insufficient or (causes.affinity and not _with_products(nodes, products))
    )
    if short_of_gpus:
        said.append(_no_gpus(gpus, products, nodes))
    elif causes.affinity and not causes.insufficient and (node := _node_missing(pod, nodes)):
        said.append(f"there is no node {node}")
    elif causes.affinity and not causes.insufficient and (labels := _labels_missing(pod, nodes, inventory)):
        said.append(f"no node has the labels it needs: {labels}")
    fitting = [node for node in nodes if fits(pod, node, inventory)]
    for name in (CPU, MEMORY, DISK, *sorted(causes.insufficient - {CPU, MEMORY, DISK, names.GPU})):
        if name in causes.insufficient:
            said.append(_too_little(name, asked.get(name, Decimal(0)), fitting or nodes, inventory))
    if causes.closed:
        said += describe_closed_nodes([node for node in fitting or nodes if not (short_of_gpus and node.gpu_pools)])
    said += [_plain(what) for what in causes.others]
    return "; ".join(said)


def reduce_to_shape(pod: Pod) -> object:
    """Return what of a pod decides where it fits, for comparing."""
    selector = frozenset((pod.spec.node_selector or {}).items())
    return (frozenset(sum_requests(pod).items()), wanted_products(pod), wanted_node(pod), selector)


def wanted_products(pod: Pod) -> frozenset[str]:
    return frozenset(
        value
        for term in _terms(pod)
        for expression in term.match_expressions
        if expression.key == names.GPU_PRODUCT and expression.operator == "In"
        for value in expression.values
    )


def wanted_node(pod: Pod) -> str | None:
    """Return the one node a pod names."""
    named = (field.values for term in _terms(pod) for field in term.match_fields if field.key == "metadata.name")
    return next((values[0] for values in named if values), None)


def _terms(pod: Pod) -> tuple[NodeSelectorTerm, ...]:
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity and pod.spec.affinity.node_affinity.required
    return affinity.node_selector_terms if affinity else ()


# GPUs


def _no_gpus(count: int, products: frozenset[str], nodes: list[Node]) -> str:
    pools = [(node, pool) for node in nodes for pool in node.gpu_pools if not products or pool.product in products]
    what = describe_gpus(count, products)
    if not pools:
        return f"no node has {what}: {_what_there_is(nodes)}"
    most_node, most = max(pools, key=lambda pair: pair[1].total)
    if most.total < count:
        return f"no node has {what}: the most is {most.total} on {most_node.name}"
    able = [(node, pool) for node, pool in pools if pool.total >= count]
    shown = "; ".join(_pool(node, pool) for node, pool in able[:SHOWN])
    more = f"; {len(able) - SHOWN} more nodes" if len(able) > SHOWN else ""
    return f"no node has {what} free: {shown}{more}"


def describe_gpus(count: int, products: Collection[str]) -> str:
    return f"{count} × {' or '.join(sorted(map(short_product, products))) or 'GPU'}"


def _pool(node: Node, pool: GpuPool) -> str:
    have = f"{pool.total} × {short_product(pool.product)} on {node.name}"
    if node.message:
        return f"{have}, which {_is(node.message)}"
    if not pool.taken:
        return have
    taken = "all taken" if not pool.free else f"{pool.taken} taken"
    return f"{have}, {taken} by {_several(pool.holders, describe_holder)}" if pool.holders else f"{have}, {taken}"


def describe_holder(held: Holder) -> str:
    """Name a holder of GPUs, `ada (train, abcd2345)`; what is not Penstock's by its own name."""
    if held.user is None:
        return held.what
    name, _, identity = held.what.partition(" (")
    return f"{held.user} ({name}, {identity.rstrip(')')})" if identity else f"{held.user} ({name})"


def _several(items: Iterable[Holder], describe: Callable[[Holder], str]) -> str:
    shown = [describe(item) for item in items]
    more = [f"{len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
    return ", ".join([*shown[:SHOWN], *more])


def _what_there_is(nodes: Iterable[Node]) -> str:
    found: dict[str, tuple[int, int]] = {}
    for node in nodes:
        for pool in node.gpu_pools:
            total, free = found.get(pool.product, (0, 0))
            found[pool.product] = (total + pool.total, free + pool.free)
    shown = [f"{total} × {short_product(product)} ({free} free)" for product, (total, free) in sorted(found.items())]
    return f"there are {', '.join(shown)}" if shown else "there are no GPUs"


def short_product(product: str) -> str:
    """Name a product as people do: nodes call an A10 `NVIDIA-A10`."""
    return product.removeprefix("NVIDIA-")


def _with_products(nodes: Iterable[Node], products: frozenset[str]) -> bool:
    return any(pool.product in products for node in nodes for pool in node.gpu_pools)


# the rest


def fits(pod: Pod, node: Node, inventory: Inventory) -> bool:
    """Does a pod fit on a node, as far as its name, labels and GPU product go?"""
    products, wanted = wanted_products(pod), wanted_node(pod)
    if (products and not _with_products([node], products)) or (wanted and wanted != node.name):
        return False
    return not _unlike(pod, inventory.labels(node.name))


def _unlike(pod: Pod, labels: Mapping[str, str]) -> bool:
    return any(labels.get(key) != value for key, value in (pod.spec.node_selector or {}).items())


def _node_missing(pod: Pod, nodes: Iterable[Node]) -> str | None:
    wanted = wanted_node(pod)
    return wanted if wanted and all(node.name != wanted for node in nodes) else None


def _labels_missing(pod: Pod, nodes: Iterable[Node], inventory: Inventory) -> str:
    asked = pod.spec.node_selector or {}
    if not asked or any(not _unlike(pod, inventory.labels(node.name)) for node in nodes):
        return ""
    return ", ".join(f"{key}={value}" for key, value in asked.items())


def _too_little(name: str, asked: Decimal, nodes: list[Node], inventory: Inventory) -> str:
    zero = Decimal(0)
    largest = max(nodes, key=lambda node: inventory.total(node.name).get(name, zero))
    total = inventory.total(largest.name).get(name, zero)
    if total < asked:
        has = show_amount(name, total, short=True)
        return f"no node has {show_amount(name, asked)}: the largest, {largest.name}, has {has}"
    open_ = [node for node in nodes if node.message is None] or nodes
    freest = max(open_, key=lambda node: inventory.free(node.name).get(name, zero))
    free = max(inventory.free(freest.name).get(name, zero), zero)
    of = inventory.total(freest.name).get(name, zero)
    have = f"{show_amount(name, free, short=True)} of {show_amount(name, of, short=True)}"
    return f"no node has {show_amount(name, asked)} free: {freest.name} has the most, {have}"


def show_amount(name: str, size: Decimal, *, short: bool = False) -> str:
    if name == CPU:
        number = show_cpus(int(size * 1000))
        return number if short else f"{number} {'CPU' if number == '1' else 'CPUs'}"
    if name in (MEMORY, DISK):
        shown = show_bytes(int(size)) if size else "0"
        return shown if short else f"{shown} of {'memory' if name == MEMORY else 'disk'}"
    return str(int(size)) if short else f"{int(size)} × {name}"


def describe_closed_nodes(nodes: Iterable[Node]) -> list[str]:
    """Describe nodes that take no work, those with one reason together."""
    reasons: dict[str, list[str]] = {}
    for node in nodes:
        if node.message:
            reasons.setdefault(node.message, []).append(node.name)
    return [_these(found, why) for why, found in reasons.items()]


def _is(why: str) -> str:
    return why if why.startswith("does") else f"is {why}"


def _these(found: list[str], why: str) -> str:
    if len(found) > SHOWN:
        return f"{len(found)} nodes are {why}" if not why.startswith("does") else f"{len(found)} nodes: {why}"
    verb = "" if why.startswith("does") else (" is" if len(found) == 1 else " are")
    return f"{', '.join(found)}{verb} {why}" if verb or len(found) == 1 else f"{', '.join(found)}: {why}"


def _plain(message: str) -> str:
    found = _LIST.match(message)
    return (found[2] if found else message).strip().rstrip(".").replace("node(s)", "nodes")
