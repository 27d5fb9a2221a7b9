"""Measure what GPUs do, from NVIDIA's dcgm-exporter on their nodes.

Its pods are asked through the API server and side by side: one that does not answer costs the others nothing. Which of
them is on which node is remembered for as long as it answers.

DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-6e5f",…,container="task",namespace="jobs",pod="train-abcd2345-0-x7k2p"} 87

The names of the pod are there while one has the GPU. What is not known is left out, `N/A`, or a number that cannot be.
Of a part of a GPU (MIG) the lines say which, and its use is told only as a ratio.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from penstock.domain.workloads import Workload
from penstock.engines.base import GpuUse, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import AdmissionDenied, KubernetesError, KubernetesForbidden, Trouble
from penstock.engines.kubernetes.api.objects import OVER, Pod
from penstock.engines.kubernetes.nodes.inventory import sum_requests
from penstock.wire.measures import GpuMeasure

PERCENT, RATIO, USED_MIB = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED"
MOST = {PERCENT: 100.0, RATIO: 1.0, USED_MIB: float(1 << 30)}
"""The highest believable numbers; a higher one means that it is not known."""
MIB = 1 << 20
_LINE = re.compile(rf"({'|'.join(MOST)})\{{(.*)\}} (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

PodKey = tuple[str, str]
"""Namespace and name of a pod."""


class _GpuLabels(NamedTuple):
    namespace: str
    pod: str
    uuid: str
    part: str
    share: str
    """Which share it is, of a GPU that several pods take turns on."""
    product: str


def read_gpus(text: str) -> dict[PodKey, list[GpuMeasure]]:
    """Read the GPUs that pods have and of which everything is known."""
    gpus: defaultdict[PodKey, list[GpuMeasure]] = defaultdict(list)
    for gpu, known in _numbers(text).items():
        if all(gpu[:3]) and (measure := _measure(gpu, known)):
            gpus[gpu.namespace, gpu.pod].append(measure)
    return gpus


def read_node(text: str) -> tuple[GpuMeasure, ...]:
    """Read all GPUs of a node with what is known of each; one that several pods share is one."""
    gpus: defaultdict[_GpuLabels, dict[str, float]] = defaultdict(dict)
    for gpu, known in _numbers(text).items():
        if gpu.uuid:
            whole = gpus[gpu._replace(namespace="", pod="", share="")]
            whole |= {name: max(number, whole.get(name, 0.0)) for name, number in known.items()}
    return tuple(
        GpuMeasure(
            uuid=gpu.uuid,
            product=gpu.product,
            utilization=_use(gpu, known),
            memory_used_bytes=int(known[USED_MIB]) * MIB if USED_MIB in known else None,
        )
        for gpu, known in gpus.items()
    )


def _numbers(text: str) -> Mapping[_GpuLabels, dict[str, float]]:
    numbers: defaultdict[_GpuLabels, dict[str, float]] = defaultdict(dict)
    for line in text.splitlines():
        if (found := _LINE.match(line)) and (number := _number(found[3], MOST[found[1]])) is not None:
            known = numbers[_gpu(dict(_LABEL.findall(found[2])))]
            known[found[1]] = max(number, known.get(found[1], 0.0))  # some versions have a line for each process
    return numbers


def _gpu(labels: Mapping[str, str]) -> _GpuLabels:
    """Read the labels of a GPU; older versions, and some newer ones, have other names for the pod."""
    return _GpuLabels(
        labels.get("namespace") or labels.get("pod_namespace", ""),
        labels.get("pod") or labels.get("pod_name", ""),
        labels.get("UUID") or labels.get("uuid", ""),
        labels.get("GPU_I_ID", ""),
        labels.get("vgpu", ""),
        labels.get("modelName", ""),
    )


def _number(text: str, most: float) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= most else None


def _use(gpu: _GpuLabels, known: Mapping[str, float]) -> int | None:
    """Return the use in percent, rounded up: a GPU that does a little is not idle."""
    uses = [100 * known[RATIO]] if RATIO in known else []
    if PERCENT in known and not gpu.part:
        uses.append(known[PERCENT])
    return ceil(max(uses)) if uses else None


def _measure(gpu: _GpuLabels, known: Mapping[str, float]) -> GpuMeasure | None:
    use = _use(gpu, known)
    if use is None or USED_MIB not in known:
        return None
    return GpuMeasure(uuid=gpu.uuid, utilization=use, memory_used_bytes=int(known[USED_MIB]) * MIB)


log = logging.getLogger(__name__)
LABELS = (
    "app in (nvidia-dcgm-exporter, dcgm-exporter)",
    "app.kubernetes.io/name in (dcgm-exporter, nvidia-dcgm-exporter, gke-managed-dcgm-exporter)",
)
"""Selectors of the exporter's pods: NVIDIA's GPU operator, its own chart and Google's clusters mark them differently.
"""
PORT, PATH = 9400, "metrics"
NUMBERS = f"{PERCENT}, {USED_MIB} and, for MIG, {RATIO}"
PATIENCE, AT_ONCE, MOST_BYTES = 5.0, 100, 8 << 20
"""The most seconds and bytes of one answer, and how many are awaited at the same time."""


class GpuExporters:
    def __init__(self, api: KubernetesApi, cluster: Cluster, namespace: str, every: float) -> None:
        """Samples are taken `every` so many seconds, so none may take longer."""
        self._patience = min(PATIENCE, every)
        self._api, self._cluster, self.namespace = api.hurried(self._patience), cluster, namespace
        self._there: dict[str, str] = {}
        """The exporter's pod on each node."""
        self._places = asyncio.Semaphore(AT_ONCE)
        self._said: str | None = None

    async def use(self, workloads: Sequence[Workload]) -> GpuUse:
        """Measure the GPUs of workloads; only nodes with their pods are asked."""
        pods = {each.id: self._cluster.pods_of(Run.of(each)) for each in workloads}
        nodes = {pod.spec.node_name for each in pods.values() for pod in each if pod.status.phase not in OVER}
        pages, troubles = await self._pages(nodes - {""})
        self._tell(next(iter(troubles.values()), None))
        gpus: dict[PodKey, list[GpuMeasure]] = {}
        for page in pages.values():
            gpus |= read_gpus(page)
        return {each.id: list_gpus(each, pods[each.id], gpus) for each in workloads}

    async def gpus_seen(self) -> list[bool]:
        """Return for each node with GPUs whether its exporter may be asked; nothing while that is not known."""
        allowed = bool(self.namespace)
        try:
            if allowed:
                allowed = await self._api.may("get", Pod, self.namespace, subresource="proxy")
                await self._find()
        except KubernetesForbidden:
            allowed = False
        except KubernetesError:
            return []
        return [allowed and node.name in self._there for node in self._cluster.nodes_with_gpus()]

    async def troubles(self) -> dict[str, Trouble]:
        """Return by node why GPUs cannot be measured, also those of a single pod."""
        nodes = sorted(node.name for node in self._cluster.nodes_with_gpus())
        pages, troubles = await self._pages(nodes)
        untold = {node: said for node, page in pages.items() if (said := self._untold(node, read_gpus(page)))}
        return untold | troubles

    def _untold(self, node: str, seen: Mapping[PodKey, object]) -> Trouble | None:
        for pod in self._cluster.pods.by("node", node):
            has_some = pod.status.phase == "Running" and sum_requests(pod).get(names.GPU)
            if has_some and (pod.namespace, pod.name) not in seen:
                said = f"its dcgm-exporter does not say yet what those of the pod {pod.namespace}/{pod.name} do"
                return Trouble(
                    said, f"if this stays so: let it name pods (DCGM_EXPORTER_KUBERNETES) and tell {NUMBERS}"
                )
        return None

    async def of_nodes(self, nodes: Collection[str]) -> tuple[dict[str, tuple[GpuMeasure, ...]], dict[str, Trouble]]:
        """Measure the GPUs of nodes, whoever has them, and say why those of others cannot be measured."""
        pages, troubles = await self._pages(nodes)
        return {node: read_node(page) for node, page in pages.items()}, troubles

    async def _pages(self, nodes: Collection[str]) -> tuple[dict[str, str], dict[str, Trouble]]:
        if not self.namespace:
            return {}, {}
        if not self._there.keys() >= set(nodes):
            try:
                await self._find()
            except KubernetesError as error:
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
        except KubernetesError as error:
            self._there.pop(node, None)  # there may be another by now
            return self._trouble(error, pod)
        return page.decode(errors="replace")

    def _trouble(self, error: KubernetesError, pod: str | None = None) -> Trouble:
        if isinstance(error, KubernetesForbidden | AdmissionDenied):
            return Trouble(error.message, "kubectl apply -k deploy/kubernetes/gpu-use")
        named = f" {pod}" if pod else ""
        return Trouble(error.message, f"kubectl describe pod -n {self.namespace}{named}")

    def _tell(self, trouble: Trouble | None) -> None:
        """Log why GPUs are not measured, when the reason is new."""
        if trouble and trouble.why != self._said:
            log.warning("what GPUs do is not seen: %s", trouble.why)
        self._said = trouble.why if trouble else None


def _answers(pod: Pod) -> bool:
    """Only exporters count that are no workloads of Penstock's: what a workload says of itself is not believed."""
    return pod.status.phase == "Running" and not pod.metadata.deletion_timestamp and names.run_of(pod) is None


def list_gpus(
    workload: Workload, pods: Sequence[Pod], seen: Mapping[PodKey, Sequence[GpuMeasure]]
) -> tuple[GpuMeasure | None, ...]:
    """Return all GPUs of a workload; None for those of a node that has no pod, or whose pod has no place yet."""
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
