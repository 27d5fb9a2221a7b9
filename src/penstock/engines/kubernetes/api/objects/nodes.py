"""Nodes: what they have, and whether pods may run there."""

from __future__ import annotations

import sys

import msgspec

from penstock.engines.kubernetes.api.objects.base import Condition, KubernetesObject, ObjectPart, ResourceKind


class Taint(ObjectPart, frozen=True):
    key: str
    effect: str = ""
    value: str = ""

    one_for_all = ("key", "effect", "value")


class NodeSpec(ObjectPart, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(ObjectPart, frozen=True):
    kubelet_version: str = ""
    architecture: str = ""
    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""

    one_for_all = ("kubelet_version", "architecture", "os_image", "kernel_version", "container_runtime_version")


class NodeAddress(ObjectPart, frozen=True):
    type: str
    address: str

    one_for_all = ("type",)


class DaemonEndpoint(ObjectPart, frozen=True):
    port: int = msgspec.field(name="Port", default=0)


class NodeDaemonEndpoints(ObjectPart, frozen=True):
    kubelet_endpoint: DaemonEndpoint = DaemonEndpoint()


class NodeStatus(ObjectPart, frozen=True):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()
    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: NodeDaemonEndpoints = NodeDaemonEndpoints()

    def __post_init__(self) -> None:
        for amounts in (self.capacity, self.allocatable):
            for name, amount in amounts.items():
                amounts[name] = sys.intern(amount)


class KubernetesNode(KubernetesObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    kind = ResourceKind("Node", "nodes", namespaced=False)


class NodeMetrics(KubernetesObject, frozen=True):
    """What a node uses, where a metrics-server says it."""

    usage: dict[str, str] = {}

    kind = ResourceKind("NodeMetrics", "nodes", "metrics.k8s.io", "v1beta1", namespaced=False)
