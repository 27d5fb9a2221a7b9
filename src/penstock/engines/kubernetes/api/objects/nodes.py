"""Nodes: what they have, and whether pods may run there."""

from __future__ import annotations

import sys

import msgspec

from penstock.engines.kubernetes.api.objects.base import Condition, Kind, Object, Part


class Taint(Part, frozen=True):
    key: str
    effect: str = ""
    value: str = ""

    one_for_all = ("key", "effect", "value")


class NodeSpec(Part, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(Part, frozen=True):
    kubelet_version: str = ""
    architecture: str = ""
    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""

    one_for_all = ("kubelet_version", "architecture", "os_image", "kernel_version", "container_runtime_version")


class Address(Part, frozen=True):
    type: str
    address: str

    one_for_all = ("type",)


class Endpoint(Part, frozen=True):
    port: int = msgspec.field(name="Port", default=0)


class Endpoints(Part, frozen=True):
    kubelet_endpoint: Endpoint = Endpoint()


class NodeStatus(Part, frozen=True):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()
    addresses: tuple[Address, ...] = ()
    daemon_endpoints: Endpoints = Endpoints()

    def __post_init__(self) -> None:
        for amounts in (self.capacity, self.allocatable):
            for name, amount in amounts.items():
                amounts[name] = sys.intern(amount)


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    kind = Kind("Node", "nodes", namespaced=False)


class NodeMetrics(Object, frozen=True):
    """What a node uses, where a metrics-server says it."""

    usage: dict[str, str] = {}

    kind = Kind("NodeMetrics", "nodes", "metrics.k8s.io", "v1beta1", namespaced=False)
