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
from penstock.engines.kubernetes.sightings import sighting

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def require_end(cluster: Cluster, run: Run) -> None:
    """Raise HeldUp while a pod of an earlier attempt may still run."""
    for attempt in range(1, run.attempt):
        for pod in cluster.pods_of(Run(run.workload_id, attempt)):
            node = cluster.nodes.get(pod.spec.node_name) if pod.spec.node_name else None
            if node and _may_run(pod, node):
                raise _held_up(attempt, node)


def _may_run(pod: Pod, node: Node) -> bool:
    return not sighting(pod, array=False).over and not any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _held_up(attempt: int, node: Node) -> HeldUp:
    ready = condition(node.status.conditions, "Ready")
    if ready and ready.true:
        said = f"attempt {attempt} is still being ended on {node.name}; this one starts when that is done"
        return HeldUp(Reason.IN_QUEUE, said)
    said = (
        f"attempt {attempt} may still run on {node.name}, which does not answer; this one starts when {node.name} "
        f"answers again or is deleted from the cluster, or when an admin says that it is off: "
        f"kubectl taint nodes {node.name} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    )
    return HeldUp(Reason.NODE_LOST, said)
