"""Compute whether pods fit on the nodes there are, what an autoscaler can bring, and explain what nodes lack.

Only what is sure counts against a workload: volumes, affinities of pods and what always runs on a node are left out, so
there may be less room than is said here, never more. What nodes may come the admin says in `kubernetes_autoscaler`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from penstock.domain.nodes import GpuPool, Holder, Node
from penstock.domain.quantities import show_bytes, show_cpus
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects import NodeSelectorTerm, Pod
from penstock.engines.kubernetes.nodes.inventory import CPU, DISK, MEMORY, Inventory, sum_requests
from penstock.engines.kubernetes.settings import LABEL_VALUE
from penstock.errors import Problem, SettingsError
from penstock.settings import Settings

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
    return f"no node has {what} free: {_some([_pool(node, pool) for node, pool in able], 'more nodes', '; ')}"


def describe_gpus(count: int, products: Collection[str]) -> str:
    return f"{count} × {' or '.join(sorted(map(short_product, products))) or 'GPU'}"


def _pool(node: Node, pool: GpuPool) -> str:
    have = f"{pool.total} × {short_product(pool.product)} on {node.name}"
    if node.message:
        return f"{have}, which {_is(node.message)}"
    if not pool.taken:
        return have
    taken = "all taken" if not pool.free else f"{pool.taken} taken"
    return f"{have}, {taken} by {_some([*map(describe_holder, pool.holders)])}" if pool.holders else f"{have}, {taken}"


def describe_holder(held: Holder) -> str:
    """Name a holder of GPUs, `ada (train, abcd2345)`; what is not Penstock's by its own name."""
    if held.user is None:
        return held.what
    name, _, identity = held.what.partition(" (")
    return f"{held.user} ({name}, {identity.rstrip(')')})" if identity else f"{held.user} ({name})"


def _some(items: Sequence[str], more: str = "more", between: str = ", ") -> str:
    """Name the first items, and how many more there are."""
    rest = [f"{len(items) - SHOWN} {more}"] if len(items) > SHOWN else []
    return between.join([*items[:SHOWN], *rest])


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
    what = f"{len(found)} nodes" if len(found) > SHOWN else ", ".join(found)
    if why.startswith("does"):
        return f"{what} {why}" if len(found) == 1 else f"{what}: {why}"
    return f"{what} {'is' if len(found) == 1 else 'are'} {why}"


def _plain(message: str) -> str:
    found = _LIST.match(message)
    return (found[2] if found else message).strip().rstrip(".").replace("node(s)", "nodes")


# how many fit


PLAIN, NOTHING = "cpu", "none"
ANY_NUMBER = 1 << 16


@dataclass(frozen=True)
class Autoscaler:
    known: bool = False
    """Has the admin said what nodes can come? Otherwise any might."""
    gpus: Mapping[str, int] | None = None
    """How many GPUs one node has, by the product as nodes name it."""
    plain: bool = False
    """Nodes without GPUs can come."""

    @property
    def products(self) -> tuple[str, ...]:
        return tuple(self.gpus or ())

    def brings(self, pod: Pod) -> str | None:
        """Say in a few words what nodes can come for such a pod; None if none can."""
        count, wanted = int(sum_requests(pod).get(names.GPU, 0)), wanted_products(pod)
        if not count:
            return "more nodes" if self.plain else None
        return " or ".join(map(short_product, self._with(count, wanted))) or None

    def _with(self, count: int, wanted: Collection[str]) -> list[str]:
        found = (self.gpus or {}).items()
        return [product for product, each in found if each >= count and (not wanted or product in wanted)]


def read_autoscaler(settings: Settings) -> Autoscaler:
    said = settings.kubernetes_autoscaler
    gpus: dict[str, int] = {}
    problems = []
    for text in said:
        product, colon, count = text.partition(":")
        if text in (PLAIN, NOTHING):
            continue
        if not product or not LABEL_VALUE.match(product) or (colon and not (count.isdecimal() and int(count))):
            hint = f"for example NVIDIA-H100-80GB-HBM3:8, or {PLAIN}, or {NOTHING}"
            problems.append(Problem(f"'{text}' is no GPU product", field="kubernetes_autoscaler", hint=hint))
        else:
            gpus[product] = int(count) if colon else ANY_NUMBER
    if NOTHING in said and len(said) > 1:
        problem = Problem(f"'{NOTHING}' stands beside something", field="kubernetes_autoscaler", hint="leave one out")
        problems.append(problem)
    if problems:
        raise SettingsError("The settings are wrong.", problems=problems)
    return Autoscaler(bool(said), gpus, PLAIN in said)


@dataclass(frozen=True)
class PodRoom:
    """How many pods of one shape fit on each node."""

    ever: Mapping[str, int]
    """With nothing else on the node, whether or not it takes work now."""
    open: Mapping[str, int]
    """With nothing else on the node, if it takes work."""
    now: Mapping[str, int]
    """Beside what runs on the node."""


def count_room(pod: Pod, most: int, inventory: Inventory) -> PodRoom:
    asked = {name: size for name, size in sum_requests(pod).items() if size}
    ever, open_, now = {}, {}, {}
    for node in inventory.all():
        if not fits(pod, node, inventory):
            continue
        ever[node.name] = _count(asked, inventory.total(node.name), most)
        if node.message is None:
            open_[node.name] = ever[node.name]
            now[node.name] = _count(asked, inventory.free(node.name), most)
    return PodRoom(ever, open_, now)


def _count(asked: Mapping[str, Decimal], there: Mapping[str, Decimal], most: int) -> int:
    rooms = (int(there.get(name, Decimal(0)) // size) for name, size in asked.items())
    return max(min(rooms, default=most), 0)


def explain_lack_of_room(pod: Pod, nodes: int, inventory: Inventory, autoscaler: Autoscaler) -> str | None:
    """Say why nodes that start together must take no places: some would find one, and never all of them.

    None also where none would find one: their pods take nothing from others, and show an autoscaler what is wanted.
    """
    room = count_room(pod, nodes, inventory)
    there = sum(room.open.values())
    if not 0 < there < nodes or autoscaler.brings(pod):
        return None
    asked = f"it asks for {nodes} nodes with {_amounts(pod)} each"
    if sum(room.ever.values()) < nodes:
        has = f"there is room for {there} even with nothing else on them ({_places(room.open)})"
        return f"it can never start on the nodes there are: {asked}, and {has}; it starts when there are enough"
    shut = [node for node in inventory.all() if room.ever.get(node.name) and node.message]
    why = "; ".join(describe_closed_nodes(shut))
    return f"it cannot start on the nodes that take work now: {asked}, and there is room for {there}; {why}"


def explain_outlook(pod: Pod, nodes: int, inventory: Inventory, autoscaler: Autoscaler) -> str | None:
    """Say why a workload of so many nodes would wait, as far as what nodes have decides it; None if it need not."""
    room = count_room(pod, nodes, inventory)
    free = sum(room.now.values())
    if free >= nodes:
        return None
    if not free:
        said = explain_causes(pod, _foreseen(pod, inventory), inventory) or "no node has all it asks for free at once"
    else:
        said = (
            explain_lack_of_room(pod, nodes, inventory, autoscaler)
            or f"{free} of its {nodes} nodes would find a place now"
        )
    coming = autoscaler.brings(pod)
    return f"{said}; the cluster's autoscaler can bring {coming}" if coming else said


def _foreseen(pod: Pod, inventory: Inventory) -> ShortageCauses:
    """Foresee the causes the scheduler will name."""
    fitting = [node for node in inventory.all() if fits(pod, node, inventory)]
    open_ = [node for node in fitting if node.message is None]
    lacking = {
        name
        for name, size in sum_requests(pod).items()
        if all(inventory.free(node.name).get(name, Decimal(0)) < size for node in open_ or fitting)
    }
    return ShortageCauses(insufficient=frozenset(lacking if fitting else ()), affinity=not fitting, closed=not open_)


def _amounts(pod: Pod) -> str:
    asked = sum_requests(pod)
    gpus = int(asked.pop(names.GPU, 0))
    found = [describe_gpus(gpus, wanted_products(pod))] if gpus else []
    order = (CPU, MEMORY, DISK, *sorted(asked.keys() - {CPU, MEMORY, DISK}))
    return ", ".join([*found, *(show_amount(name, asked[name]) for name in order if asked.get(name))])


def _places(room: Mapping[str, int]) -> str:
    having = sorted(((count, name) for name, count in room.items() if count), key=lambda pair: (-pair[0], pair[1]))
    return _some([f"{count} on {name}" for count, name in having], "more nodes")
