"""An attempt starts when those before it have ended for certain: two of them would write to the same volumes.

A node that does not answer may run its pods on. Kubernetes gives them up after some minutes and marks them as deleted,
but keeps the objects until the kubelet confirms the end, the node is removed from the cluster, or an admin says with a
taint that the machine is off. A Job makes no new pod before that (`podReplacementPolicy`); neither do we by a new Job.
"""

from __future__ import annotations

from penstock.domain.states import Reason
from penstock.engines.base import HeldUp, Run
from penstock.engines.kubernetes.cluster import Cluster
from penstock.engines.kubernetes.objects import Node, Pod, condition

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OVER = ("Succeeded", "Failed")


def require_end(cluster: Cluster, run: Run) -> None:
    """Raise HeldUp while a pod of an earlier attempt may still run."""
    for attempt in range(1, run.attempt):
        for pod in cluster.pods_of(Run(run.workload_id, attempt)):
            node = cluster.nodes.get(pod.spec.node_name) if pod.spec.node_name else None
            if node and _may_run(pod, node):
                raise HeldUp(Reason.NODE_LOST, _said(attempt, node))


def _may_run(pod: Pod, node: Node) -> bool:
    return pod.status.phase not in OVER and not any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _said(attempt: int, node: Node) -> str:
    ready = condition(node.status.conditions, "Ready")
    if ready and ready.true:
        return f"attempt {attempt} is still being ended on {node.name}; this one starts when that is done"
    return (
        f"attempt {attempt} may still run on {node.name}, which does not answer; this one starts when {node.name} "
        f"answers again or is deleted from the cluster, or when an admin says that it is off: "
        f"kubectl taint nodes {node.name} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    )
