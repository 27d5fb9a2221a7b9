"""Compute whether several pods of one shape fit on the nodes there are, and what an autoscaler can bring.

Only what is sure counts against a workload: volumes, affinities of pods and what always runs on a node are left out, so
there may be less room than is said here, never more. What nodes may come the admin says in `kubernetes_autoscaler`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal

from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.nodes import CPU, DISK, MEMORY, Inventory, sum_requests
from penstock.engines.kubernetes.settings import LABEL_VALUE
from penstock.engines.kubernetes.waiting.shortage import (
    SHOWN,
    ShortageCauses,
    describe_closed_nodes,
    describe_gpus,
    explain_causes,
    fits,
    short_product,
    show_amount,
    wanted_products,
)
from penstock.errors import Problem, SettingsError
from penstock.settings import Settings

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
    shown = [f"{count} on {name}" for count, name in having[:SHOWN]]
    more = [f"{len(having) - SHOWN} more nodes"] if len(having) > SHOWN else []
    return ", ".join([*shown, *more])
