"""Measure what nodes do now for `top node`, from their kubelets and GPU exporters.

What disks and networks move a kubelet only counts, so that a rate needs two of its measurements: the last ones of each
node are kept for that. Where a kubelet cannot be asked, a metrics-server may still tell of CPUs and memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

from penstock.domain import nodes as domain
from penstock.domain.model import now
from penstock.domain.quantities import show_cpus
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesError, Trouble
from penstock.engines.kubernetes.api.resources import KubernetesNode, NodeMetrics, milli, whole
from penstock.engines.kubernetes.gpus import GpuExporters
from penstock.engines.kubernetes.nodes.inventory import is_ready
from penstock.engines.kubernetes.nodes.kubelet import (
    LOG,
    NUMBERS,
    USE,
    ContainerUsage,
    Kubelets,
    NotMeasured,
    TrafficSample,
    is_wanted,
    read_sample,
    read_use,
)
from penstock.wire.measures import NodeMeasure

LONGEST_SECONDS = 30.0
"""The longest time between two measurements of which a rate is made."""
AGAIN_SECONDS = 1.0
FEW_TO_WAIT = 100
"""The most nodes whose rates a caller waits for."""
METRICS_PATIENCE = 3.0
CHECKED = 50
NOT_ASKED = Trouble("kubelets are not asked", "name an account in kubernetes_kubelet_account")
UNREADABLE = Trouble("what its kubelet says of it cannot be read", LOG)
UNCOUNTED = Trouble(
    "its kubelet does not count them for the whole node", "its feature PodAndContainerStatsFromCRI must be off"
)
MOVED = (("disks", "disk_read_per_second"), ("networks", "received_per_second"))
NOT_YET = "disk and network are known once its kubelet has measured again, in about ten seconds"

Fields = dict[str, Any]
"""Fields of a `NodeMeasure`."""


class _LastSamples(NamedTuple):
    at: str = ""
    """When the last sample was taken, as the other page calls it."""
    before: TrafficSample | None = None
    last: TrafficSample | None = None

    def then(self, at: str, sample: TrafficSample) -> _LastSamples:
        if self.last is None or not 0 <= sample.at - self.last.at <= LONGEST_SECONDS:
            return _LastSamples(at, None, sample)
        return self._replace(at=at) if sample.at == self.last.at else _LastSamples(at, self.last, sample)

    def rates(self) -> Fields | None:
        if self.before is None or self.last is None:
            return None
        return dict(self.last.traffic.since(self.before.traffic, self.last.at - self.before.at))


class _NodeUsage(NamedTuple):
    use: ContainerUsage | None = None
    rates: Fields | None = None
    trouble: Trouble | None = None
    """Why one of these is missing."""


class Activity:
    def __init__(
        self, api: KubernetesApi, cluster: Cluster, exporters: GpuExporters, kubelets: Kubelets | None
    ) -> None:
        self._api, self._cluster = api.hurried(METRICS_PATIENCE), cluster
        self._exporters, self._kubelets = exporters, kubelets
        self._known: dict[str, _LastSamples] = {}

    async def of(self, nodes: Sequence[domain.Node], wait: float) -> list[NodeMeasure]:
        """Measure nodes; of a few, rates that are not known yet are waited for, so many seconds at most."""
        self._known = {name: known for name, known in self._known.items() if self._cluster.nodes.get(name)}
        end = monotonic() + (wait if len(nodes) <= FEW_TO_WAIT else 0)
        found = await asyncio.gather(*(self._look(node.name, end) for node in nodes))
        looks = {node.name: look for node, look in zip(nodes, found, strict=True)}
        (gpus, unseen), metrics = await asyncio.gather(
            self._exporters.of_nodes([node.name for node in nodes if node.gpu_pools]),
            self._metrics(looks),
        )
        told = []
        for node in nodes:
            look, name = looks[node.name], node.name
            fields = _used(look, metrics.get(name)) | {"gpus": gpus.get(name, ())}
            told.append(_told(node, look, fields, unseen.get(name)))
        return told

    async def troubles(self) -> tuple[int, dict[str, Trouble]]:
        """Return how many nodes were asked, and why some cannot be measured; of many nodes only some are asked."""
        nodes = sorted(node.name for node in self._cluster.nodes.all() if is_ready(node))[:CHECKED]
        looks = await asyncio.gather(*(self._look(name, 0) for name in nodes))
        return len(nodes), {name: look.trouble for name, look in zip(nodes, looks, strict=True) if look.trouble}

    # -- kubelets ----------------------------------------------------------------------------------------------------

    async def _look(self, name: str, end: float) -> _NodeUsage:
        node, use, rates = self._cluster.nodes.get(name), None, None
        if self._kubelets is None or node is None:
            return _NodeUsage(trouble=NOT_ASKED)
        try:
            while True:
                use = read_use(await self._kubelets.ask(node, USE))
                if use is None:
                    raise NotMeasured(UNREADABLE)
                rates = await self._rates(self._kubelets, node, use.at)
                if rates or monotonic() + AGAIN_SECONDS > end:
                    return _NodeUsage(use, rates)
                await asyncio.sleep(AGAIN_SECONDS)
        except NotMeasured as unseen:
            return _NodeUsage(use, rates, unseen.trouble)

    async def _rates(self, kubelets: Kubelets, node: KubernetesNode, at: str) -> Fields | None:
        known = self._known.get(node.name)
        if known is None or known.at != at:
            page = await kubelets.ask(node, NUMBERS, is_wanted)
            sample = read_sample(page.decode(errors="replace").splitlines())
            if sample is None:
                raise NotMeasured(UNCOUNTED)
            known = self._known[node.name] = self._known.get(node.name, _LastSamples()).then(at, sample)
        return known.rates()

    # -- the others --------------------------------------------------------------------------------------------------

    async def _metrics(self, looks: Mapping[str, _NodeUsage]) -> dict[str, Mapping[str, str]]:
        """Ask the cluster's metrics-server, where it has one that may be asked."""
        if all(look.use for look in looks.values()):
            return {}
        try:
            return {each.name: each.usage for each in await self._api.list(NodeMetrics)}
        except KubernetesError:
            return {}


def _used(look: _NodeUsage, metrics: Mapping[str, str] | None) -> Fields:
    if look.use:
        return {"cpu_percent": look.use.cpu_percent, "memory_used_bytes": look.use.memory_bytes, **(look.rates or {})}
    if metrics:
        cpu, memory = milli(metrics.get("cpu", "0")) / 10, whole(metrics.get("memory", "0"))
        return {"cpu_percent": cpu, "memory_used_bytes": memory}
    return {}


def _told(node: domain.Node, look: _NodeUsage, fields: Fields, gpus: Trouble | None) -> NodeMeasure:
    return NodeMeasure(
        name=node.name,
        at=now(),
        cpu_product=node.cpu_product,
        cpus=show_cpus(node.cpus_milli),
        memory_bytes=node.memory_bytes,
        message=_message(node, look, fields, gpus),
        **fields,
    )


def _message(node: domain.Node, look: _NodeUsage, fields: Fields, gpus: Trouble | None) -> str | None:
    """Say why something could not be measured; otherwise what is the matter with the node."""
    if not node.ready:
        return node.message
    said = []
    if look.trouble:
        what = "disk and network are" if "cpu_percent" in fields else "what it does is"
        said.append(f"{what} not seen: {look.trouble}")
    elif look.rates is None:
        said.append(NOT_YET)
    elif lacking := [what for what, key in MOVED if look.rates[key] is None]:
        said.append(f"its kubelet does not tell what its {' and '.join(lacking)} move")
    if gpus:
        said.append(f"its GPUs are not seen: {gpus}")
    return "; ".join(said) or node.message
