"""What GPUs do, of pods and of nodes, as NVIDIA's dcgm-exporter on their nodes tells it.

Its pods are asked through the API server and side by side: one that does not answer costs the others nothing. Which of
them is on which node is remembered for as long as it answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.domain.workloads import Workload
from penstock.engines.base import GpuUse, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api import Api
from penstock.engines.kubernetes.cluster import Cluster
from penstock.engines.kubernetes.dcgm import PERCENT, RATIO, USED_MIB, Place, read_gpus, read_node
from penstock.engines.kubernetes.failures import ApiError, Denied, Forbidden, Trouble
from penstock.engines.kubernetes.inventory import requests
from penstock.engines.kubernetes.objects import Pod
from penstock.engines.kubernetes.trimming import OVER
from penstock.wire.measures import GpuMeasure

log = logging.getLogger(__name__)
LABELS = (
    "app in (nvidia-dcgm-exporter, dcgm-exporter)",
    "app.kubernetes.io/name in (dcgm-exporter, nvidia-dcgm-exporter, gke-managed-dcgm-exporter)",
)
"""Of its pods: NVIDIA's GPU operator, its own chart and Google's clusters mark them differently."""
PORT, PATH = 9400, "metrics"
PATIENCE, AT_ONCE, MOST_BYTES = 5.0, 100, 8 << 20
"""Seconds and bytes of one answer at most, and how many are awaited at the same time."""
NUMBERS = f"{PERCENT}, {USED_MIB} and, for MIG, {RATIO}"


class Look(NamedTuple):
    gpus: Mapping[Place, Sequence[GpuMeasure]]
    """By pod; those that cannot be seen are not there."""
    troubles: Mapping[str, Trouble]
    """By node: why none of its GPUs can be seen."""


class Exporters:
    def __init__(self, api: Api, cluster: Cluster, namespace: str, every: float) -> None:
        """It is looked `every` so many seconds: no look is to take longer."""
        self._patience = min(PATIENCE, every)
        self._api, self._cluster, self.namespace = api.hurried(self._patience), cluster, namespace
        self._there: dict[str, str] = {}
        """Node → the exporter's pod there."""
        self._places = asyncio.Semaphore(AT_ONCE)
        self._said: str | None = None

    async def use(self, workloads: Sequence[Workload]) -> GpuUse:
        """Only nodes on which their pods are, are asked."""
        pods = {each.id: self._cluster.pods_of(Run.of(each)) for each in workloads}
        nodes = {pod.spec.node_name for each in pods.values() for pod in each if pod.status.phase not in OVER}
        look = await self.look(nodes - {""})
        self._tell(next(iter(look.troubles.values()), None))
        return {each.id: gpus_of(each, pods[each.id], look.gpus) for each in workloads}

    async def gpus_seen(self) -> list[bool]:
        """Of each node that has some: whether an exporter is there that may be asked. Nothing, while nobody knows."""
        allowed = bool(self.namespace)
        try:
            if allowed:
                allowed = await self._api.may("get", Pod, self.namespace, subresource="proxy")
                await self._find()
        except Forbidden:
            allowed = False
        except ApiError:
            return []
        return [allowed and node.name in self._there for node in self._cluster.nodes_with_gpus()]

    async def troubles(self) -> dict[str, Trouble]:
        """Why GPUs cannot be seen, by node: of those that somebody has, also why not each of them."""
        nodes = sorted(node.name for node in self._cluster.nodes_with_gpus())
        look = await self.look(nodes)
        untold = {node: trouble for node in nodes if (trouble := self._untold(node, look))}
        return {**untold, **look.troubles}

    def _untold(self, node: str, look: Look) -> Trouble | None:
        for pod in self._cluster.pods.by("node", node):
            has_some = pod.status.phase == "Running" and requests(pod).get(names.GPU)
            if has_some and (pod.namespace, pod.name) not in look.gpus:
                said = f"its dcgm-exporter does not say yet what those of the pod {pod.namespace}/{pod.name} do"
                return Trouble(
                    said, f"if this stays so: let it name pods (DCGM_EXPORTER_KUBERNETES) and tell {NUMBERS}"
                )
        return None

    async def look(self, nodes: Collection[str]) -> Look:
        pages, troubles = await self._pages(nodes)
        gpus = [read_gpus(page) for page in pages.values()]
        return Look({place: found for each in gpus for place, found in each.items()}, troubles)

    async def of_nodes(self, nodes: Collection[str]) -> tuple[dict[str, tuple[GpuMeasure, ...]], dict[str, Trouble]]:
        """What the GPUs of these do, whoever has them, and why those of others cannot be seen."""
        pages, troubles = await self._pages(nodes)
        return {node: read_node(page) for node, page in pages.items()}, troubles

    async def _pages(self, nodes: Collection[str]) -> tuple[dict[str, str], dict[str, Trouble]]:
        if not self.namespace:
            return {}, {}
        if not self._there.keys() >= set(nodes):
            try:
                await self._find()
            except ApiError as error:
                return {}, dict.fromkeys(nodes, self._trouble(error))
        answers = dict(zip(nodes, await asyncio.gather(*(self._ask(node) for node in nodes)), strict=True))
        told = {node: said for node, said in answers.items() if isinstance(said, str)}
        return told, {node: said for node, said in answers.items() if isinstance(said, Trouble)}

    async def _find(self) -> None:
        lists = await asyncio.gather(*(self._api.list(Pod, self.namespace, labels=labels) for labels in LABELS))
        self._there = {pod.spec.node_name: pod.name for pods in lists for pod in pods if _answers(pod)}

    async def _ask(self, node: str) -> str | Trouble:
        pod = self._there.get(node)
        if pod is None:
            said = f"no dcgm-exporter runs there in the namespace {self.namespace}"
            return Trouble(said, "install NVIDIA's GPU operator, or name its namespace in kubernetes_dcgm_namespace")
        try:
            async with self._places:
                page = await self._api.page(pod, self.namespace, PORT, PATH, seconds=self._patience, most=MOST_BYTES)
        except ApiError as error:
            self._there.pop(node, None)  # there may be another by now
            return self._trouble(error, pod)
        return page.decode(errors="replace")

    def _trouble(self, error: ApiError, pod: str | None = None) -> Trouble:
        if isinstance(error, Forbidden | Denied):
            return Trouble(error.message, "kubectl apply -k deploy/kubernetes/gpu-use")
        named = f" {pod}" if pod else ""
        return Trouble(error.message, f"kubectl describe pod -n {self.namespace}{named}")

    def _tell(self, trouble: Trouble | None) -> None:
        """In the log, and only what is new."""
        if trouble and trouble.why != self._said:
            log.warning("what GPUs do is not seen: %s", trouble.why)
        self._said = trouble.why if trouble else None


def _answers(pod: Pod) -> bool:
    """What a workload would say of itself is not asked for."""
    return pod.status.phase == "Running" and not pod.metadata.deletion_timestamp and names.run_of(pod) is None


def gpus_of(
    workload: Workload, pods: Sequence[Pod], seen: Mapping[Place, Sequence[GpuMeasure]]
) -> tuple[GpuMeasure | None, ...]:
    """All that its pods have. Those of a node that has no pod, or whose pod has no place yet, are not seen."""
    spec = workload.spec
    found: list[GpuMeasure | None] = []
    for pod in pods:
        if pod.status.phase not in OVER and (pod.spec.node_name or not spec.array):
            gpus = seen.get((pod.namespace, pod.name), ())
            found += [*gpus, *[None] * (spec.resources.gpus - len(gpus))]
    if not spec.array:
        known = {names.part_of(pod) for pod in pods if pod.status.phase != "Failed"}
        found += [None] * (spec.resources.gpus * (spec.nodes - len(known)))
    return tuple(found)
