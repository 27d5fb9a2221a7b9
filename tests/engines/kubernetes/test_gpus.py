"""Which GPUs a workload in a cluster has, and that each of them is there though it is not seen."""

from __future__ import annotations

import msgspec

from penstock.domain.workloads import Array, Resources, Spec
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.gpus import list_gpus
from penstock.engines.kubernetes.names import INDEX
from penstock.wire.measures import GpuMeasure
from tests.store.making import a_workload

IDLE, BUSY = GpuMeasure(uuid="GPU-0", utilization=0), GpuMeasure(uuid="GPU-1", utilization=90)


def a_pod(part: int, phase: str = "Running", node: str = "node-1") -> Pod:
    meta = {"name": f"train-{part}-{phase.lower()}", "namespace": "jobs", "annotations": {INDEX: str(part)}}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}, Pod)


def found(pods: list[Pod], *gpus: GpuMeasure, nodes: int = 1, array: Array | None = None) -> tuple[object, ...]:
    """Of one that asks for two GPUs on each node, the first of which is seen with these."""
    spec = Spec(name="train", run="true", nodes=nodes, array=array, resources=Resources(gpus=2))
    return list_gpus(a_workload(spec=spec), pods, {("jobs", "train-0-running"): gpus})


def test_all_that_it_asked_for_are_there_seen_or_not() -> None:
    assert found([a_pod(0)], IDLE, BUSY) == (IDLE, BUSY)
    assert found([a_pod(0)], IDLE) == (IDLE, None)
    assert found([a_pod(0)]) == (None, None)
    assert found([]) == (None, None)


def test_a_node_whose_pod_is_elsewhere_gone_or_without_a_place_is_not_seen() -> None:
    both = (IDLE, BUSY)
    assert found([a_pod(0), a_pod(1)], *both, nodes=2) == (*both, None, None)
    assert found([a_pod(0)], *both, nodes=2) == (*both, None, None)
    assert found([a_pod(0), a_pod(1, "Pending", "")], *both, nodes=2) == (*both, None, None)
    assert found([a_pod(0), a_pod(1, "Failed")], *both, nodes=2) == (*both, None, None)
    assert found([a_pod(0), a_pod(1, "Failed"), a_pod(1)], *both, nodes=2) == (*both, None, None)


def test_a_node_that_has_ended_has_none_any_more() -> None:
    assert found([a_pod(0), a_pod(1, "Succeeded")], IDLE, BUSY, nodes=2) == (IDLE, BUSY)


def test_of_an_array_only_what_runs_now_has_some() -> None:
    pods = [a_pod(0), a_pod(1, "Succeeded"), a_pod(2, "Failed"), a_pod(3, "Pending", "")]
    assert found(pods, IDLE, BUSY, array=Array(count=9)) == (IDLE, BUSY)
    assert found([*pods, a_pod(4)], IDLE, BUSY, array=Array(count=9)) == (IDLE, BUSY, None, None)
    assert found([], array=Array(count=9)) == ()
