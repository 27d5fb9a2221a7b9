"""Count what nodes have and who uses it; a change recounts only the node it is on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal

from penstock.domain import nodes as domain
from penstock.domain.nodes import GpuPool, Holder
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.objects import OVER, Container, Pod, condition
from penstock.engines.kubernetes.api.resources import KubernetesNode, Taint, add_amounts, amount

CPU, MEMORY, DISK = "cpu", "memory", "ephemeral-storage"
UNNAMED = "GPU"
"""The product of GPUs on a node that does not name them."""
_HINDERS = ("NoSchedule", "NoExecute")
_SAID_ELSEWHERE = ("node.kubernetes.io/",)
"""Taints that Kubernetes sets and the state of the node explains better."""


def sum_requests(pod: Pod) -> dict[str, Decimal]:
    """Return what a pod holds on its node: all its containers together, or the largest of its init containers, if that
    is more."""
    together: dict[str, Decimal] = {}
    before: dict[str, Decimal] = {}
    for container in pod.spec.init_containers:
        asked = _asked(container, together)
        if container.restart_policy == "Always":
            add_amounts(together, container.resources.requests)
        for name, size in asked.items():
            before[name] = max(before.get(name, Decimal(0)), size)
    for container in pod.spec.containers:
        add_amounts(together, container.resources.requests)
    total = {name: max(together.get(name, Decimal(0)), before.get(name, Decimal(0))) for name in together | before}
    add_amounts(total, pod.spec.overhead or {})
    return total


def _asked(container: Container, beside: Mapping[str, Decimal]) -> dict[str, Decimal]:
    total = dict(beside)
    add_amounts(total, container.resources.requests)
    return total


class Inventory:
    def __init__(self, cluster: Cluster, tolerations: Iterable[str] = ()) -> None:
        self._cluster, self._nodes, self._pods = cluster, cluster.nodes, cluster.pods
        self._tolerations = tuple(tolerations)
        self._counted: dict[str, domain.Node] = {}
        self._free: dict[str, dict[str, Decimal]] = {}
        self._total: dict[str, dict[str, Decimal]] = {}
        cluster.nodes.subscribe(self._node_changed)
        cluster.pods.subscribe(self._pod_changed)

    def nodes(self) -> list[domain.Node]:
        """Return all nodes; while the cluster does not answer, as they were before and not ready."""
        self._cluster.require()
        found = sorted(self.all(), key=lambda node: node.name)
        if trouble := self._cluster.trouble():
            old = {"ready": False, "message": f"as last known: {trouble}"}
            return [node.model_copy(update=old) for node in found]
        return found

    def node(self, name: str) -> domain.Node | None:
        if name not in self._counted and (found := self._nodes.get(name)):
            self._count(found)
        return self._counted.get(name)

    def all(self) -> list[domain.Node]:
        return [counted for node in self._nodes.all() if (counted := self.node(node.name))]

    def free(self, name: str) -> Mapping[str, Decimal]:
        """Return what is free on a node, by Kubernetes' names."""
        return self._free.get(name, {}) if self.node(name) else {}

    def total(self, name: str) -> Mapping[str, Decimal]:
        """Return what a node has in all, by Kubernetes' names."""
        return self._total.get(name, {}) if self.node(name) else {}

    def labels(self, name: str) -> Mapping[str, str]:
        found = self._nodes.get(name)
        return found.labels if found else {}

    def products(self) -> dict[str, tuple[int, int]]:
        """Return for each GPU product how many there are, and how many are free on nodes that take work."""
        found: dict[str, tuple[int, int]] = {}
        for node in self.all():
            for pool in node.gpu_pools:
                total, free = found.get(pool.product, (0, 0))
                found[pool.product] = (total + pool.total, free + (pool.free if node.message is None else 0))
        return dict(sorted(found.items()))

    def has_product(self, products: Collection[str]) -> bool:
        """Does a node have one of these, by its own name for them?"""
        return any(node.labels.get(names.GPU_PRODUCT) in products for node in self._nodes.all())

    # counting

    def _node_changed(self, before: KubernetesNode | None, after: KubernetesNode | None) -> None:
        if before and after and _offers(before) == _offers(after):
            return  # a node reports its health every few seconds
        self._forget((after or before).name)  # type: ignore[union-attr]

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        for pod in (before, after):
            if pod and pod.spec.node_name:
                self._forget(pod.spec.node_name)

    def _forget(self, name: str) -> None:
        self._counted.pop(name, None)
        self._free.pop(name, None)
        self._total.pop(name, None)

    def _count(self, node: KubernetesNode) -> None:
        total = {name: amount(text) for name, text in node.status.allocatable.items()}
        taken: dict[str, Decimal] = {}
        holders = []
        for pod in self._pods.by("node", node.name):
            if pod.status.phase in OVER:
                continue
            asked = sum_requests(pod)
            for name, size in asked.items():
                taken[name] = taken.get(name, Decimal(0)) + size
            if gpus := int(asked.get(names.GPU, 0)):
                holders.append(self._holder(pod, gpus))
        self._total[node.name] = total
        self._free[node.name] = {name: size - taken.get(name, Decimal(0)) for name, size in total.items()}
        self._counted[node.name] = domain.Node(
            name=node.name,
            version=node.status.node_info.kubelet_version,
            cpus_milli=int(total.get(CPU, Decimal(0)) * 1000),
            memory_bytes=int(total.get(MEMORY, Decimal(0))),
            gpu_pools=_pools(node, int(total.get(names.GPU, 0)), int(taken.get(names.GPU, 0)), holders),
            cpus_taken_milli=int(taken.get(CPU, Decimal(0)) * 1000),
            memory_taken_bytes=int(taken.get(MEMORY, Decimal(0))),
            ready=is_ready(node),
            message=_hindrance(node, self._tolerations),
            limits_enforced=True,
        )

    def _holder(self, pod: Pod, count: int) -> Holder:
        run, job = names.run_of(pod), self._cluster.job_of(pod)
        if run is None:
            return Holder(what=f"{pod.namespace}/{pod.name}", count=count)
        owner = (job or pod).annotations.get(names.OWNER, "")
        user = owner.partition("/")[2] or (job or pod).labels.get(names.USERNAME)
        name = (job or pod).labels.get(names.TASK_NAME)
        what = f"{name} ({run.workload_id})" if name else run.workload_id
        return Holder(workload=run.workload_id, user=user or None, what=what, count=count)


def _pools(node: KubernetesNode, total: int, taken: int, holders: list[Holder]) -> tuple[GpuPool, ...]:
    if not total and not taken:
        return ()
    product = node.labels.get(names.GPU_PRODUCT) or UNNAMED
    return (GpuPool(product=product, total=total, taken=taken, holders=_together(holders)),)


def _together(holders: list[Holder]) -> tuple[Holder, ...]:
    """Count several pods of one workload as one holder."""
    found: dict[str, Holder] = {}
    for holder in holders:
        known = found.get(holder.what)
        count = holder.count + (known.count if known else 0)
        found[holder.what] = holder.model_copy(update={"count": count})
    return tuple(found.values())


# why a node takes no work


def _offers(node: KubernetesNode) -> tuple[object, ...]:
    status = condition(node.status.conditions, "Ready")
    ready = (status.status, status.message) if status else None
    return (node.status.allocatable, node.spec, ready, node.labels)


def changes_room(before: Pod | KubernetesNode | None, after: Pod | KubernetesNode | None) -> bool:
    """May there be more room now? A node offers something else, or a pod gave up its place."""
    if isinstance(after or before, KubernetesNode):
        return (
            not isinstance(before, KubernetesNode)
            or not isinstance(after, KubernetesNode)
            or _offers(before) != _offers(after)
        )
    held = isinstance(before, Pod) and bool(before.spec.node_name) and before.status.phase not in OVER
    return held and (not isinstance(after, Pod) or after.status.phase in OVER)


def is_ready(node: KubernetesNode) -> bool:
    found = condition(node.status.conditions, "Ready")
    return found is not None and found.true


def _hindrance(node: KubernetesNode, tolerations: tuple[str, ...]) -> str | None:
    if not is_ready(node):
        return _not_ready(node)
    if node.spec.unschedulable:
        return "cordoned: nothing new starts there"
    kept = [show_taint(taint) for taint in node.spec.taints if keeps_away(taint, tolerations)]
    return f"kept for others by the taint {', '.join(kept)}" if kept else None


def _not_ready(node: KubernetesNode) -> str:
    found = condition(node.status.conditions, "Ready")
    if found is None:
        return "not ready"
    since = f" since {found.last_transition_time.astimezone():%H:%M}" if found.last_transition_time else ""
    if found.status == "Unknown":
        return f"does not answer{since}"
    return f"not ready{since}: {found.message.rstrip('.')}" if found.message else f"not ready{since}"


def keeps_away(taint: Taint, tolerations: Iterable[str]) -> bool:
    """Does the taint keep Penstock's pods away?"""
    if taint.effect not in _HINDERS or taint.key.startswith(_SAID_ELSEWHERE):
        return False
    return not any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: str, taint: Taint) -> bool:
    """Does a toleration, as in the settings, match? `key` or `key=value`, either with `:effect`."""
    what, _, effect = toleration.partition(":")
    key, equals, value = what.partition("=")
    return key == taint.key and (not equals or value == taint.value) and effect in ("", taint.effect)


def show_taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}" if taint.value else taint.key
