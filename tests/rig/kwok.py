"""Nodes that do not exist, in numbers no machine has, on which pods run that do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.rig import build

if TYPE_CHECKING:
    from tests.rig.cluster import Rig

ANNOTATION = "kwok.x-k8s.io/node"
TAINT = {"key": ANNOTATION, "value": "fake", "effect": "NoSchedule"}
TOLERATION = {"key": ANNOTATION, "operator": "Exists", "effect": "NoSchedule"}
"""What a pod must carry to be placed on such a node."""

_AT_ONCE = 500
_HEARTBEAT_SECONDS = 1200


def start(
    rig: Rig, nodes: int, *, cpus: int = 32, memory: str = "256Gi", gpus: int = 0, product: str = ""
) -> list[str]:
    """Make them, and the process that plays them; their names.

    In such a rig no node is ever lost: thousands cannot be heard of every few seconds on one machine. Use one of your
    own for it.
    """
    program = build.build_kwok()
    if "kwok" not in rig.processes.running:
        rig.stop("controller-manager")
        rig.control.start_controllers(node_lost_seconds=3 * _HEARTBEAT_SECONDS)
    rig.processes.start(
        "kwok",
        program,
        f"--kubeconfig={rig.kubeconfig}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
        f"--node-ip={rig.addresses.control}",
        f"--node-lease-duration-seconds={_HEARTBEAT_SECONDS}",
        "--enable-crds=",
    )
    names = [f"fake-{number}" for number in range(nodes)]
    for first in range(0, nodes, _AT_ONCE):
        rig.apply(*(node(name, cpus, memory, gpus, product) for name in names[first : first + _AT_ONCE]))
    return names


def node(name: str, cpus: int = 32, memory: str = "256Gi", gpus: int = 0, product: str = "") -> dict[str, Any]:
    resources = {"cpu": str(cpus), "memory": memory, "pods": "1000", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
    if product:
        labels["nvidia.com/gpu.product"] = product
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {ANNOTATION: "fake"}, "labels": labels},
        "spec": {"taints": [TAINT]},
        "status": {"capacity": resources, "allocatable": resources},
    }
