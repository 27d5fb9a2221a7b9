"""What nodes have and who has it: from a real cluster, and of many nodes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.domain.nodes import GpuPool, Node
from penstock.domain.workloads import Resources
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.api.resources import Taint
from penstock.engines.kubernetes.nodes.inventory import keeps_away, sum_requests
from tests.engines.kubernetes.making import IMAGE, eventually
from tests.engines.kubernetes.observed import Observed, observed
from tests.engines.launches import a_launch
from tests.rig.cluster import Rig


@pytest.fixture(scope="module")
def own_namespace(own_rig: Rig) -> str:
    own_rig.make_namespace("inventory")
    own_rig.patch_gpus("node-1", "NVIDIA-A10", 4)
    return "inventory"


@pytest.fixture
async def seen(own_rig: Rig, own_namespace: str, tmp_path: Path) -> AsyncIterator[Observed]:
    async with observed(own_rig, own_namespace, tmp_path) as seen:
        yield seen


async def a_node(seen: Observed, name: str = "node-1") -> Node:
    return next(node for node in seen.inventory.nodes() if node.name == name)


def pool(node: Node) -> GpuPool:
    return node.gpu_pools[0]


async def test_a_node_has_cpus_memory_and_gpus_by_product(seen: Observed) -> None:
    node = await a_node(seen)
    assert node.cpus_milli >= 1000
    assert node.memory_bytes > 1 << 30
    assert (pool(node).product, pool(node).total) == ("NVIDIA-A10", 4)
    assert node.ready
    assert node.message is None
    assert node.version.startswith("v1.")
    assert (await a_node(seen, "node-2")).gpu_pools == ()


async def test_what_runs_there_is_taken_and_named_by_whose_it_is(seen: Observed) -> None:
    before = await a_node(seen)
    ours = await seen.start(
        a_launch("sleep 600", resources=Resources(gpus=2, cpus_milli=300, memory_bytes=100 << 20), stop_grace=1)
    )
    await seen.running(ours)
    gpu = {"limits": {names.GPU: "1"}}
    container = {"name": "main", "image": IMAGE, "command": ["sleep", "600"], "resources": gpu}
    await seen.api.create(Pod, {"metadata": {"name": "theirs"}, "spec": {"containers": [container]}}, "default")
    node = await eventually_taken(seen, 3)
    assert (node.cpus_taken_milli or 0) - (before.cpus_taken_milli or 0) == 300
    assert (node.memory_taken_bytes or 0) - (before.memory_taken_bytes or 0) == 100 << 20
    holders = {(holder.workload, holder.user, holder.what, holder.count) for holder in pool(node).holders}
    assert holders == {
        (ours.workload_id, "ada", f"try ({ours.workload_id})", 2),
        (None, None, "default/theirs", 1),
    }
    assert seen.inventory.products() == {"NVIDIA-A10": (4, 1)}
    await seen.stop(ours)
    await seen.api.delete(Pod, "theirs", "default", grace=0)
    await eventually_taken(seen, 0)


async def eventually_taken(seen: Observed, count: int) -> Node:
    async with asyncio.timeout(60):
        while pool(node := await a_node(seen)).taken != count:
            await asyncio.sleep(0.05)
    return node


async def test_a_node_that_takes_no_work_says_why(seen: Observed) -> None:
    seen.rig.kubectl("cordon", "node-2")
    try:
        await eventually(lambda: _message(seen) == "cordoned: nothing new starts there")
        assert (await a_node(seen, "node-2")).ready
    finally:
        seen.rig.kubectl("uncordon", "node-2")
    await eventually(lambda: _message(seen) is None)
    seen.rig.kubectl("taint", "node", "node-2", "dedicated=ml:NoSchedule")
    try:
        await eventually(lambda: _message(seen) == "kept for others by the taint dedicated=ml")
    finally:
        seen.rig.kubectl("taint", "node", "node-2", "dedicated-")


async def test_a_taint_our_pods_tolerate_is_no_hindrance(own_rig: Rig, own_namespace: str, tmp_path: Path) -> None:
    own_rig.kubectl("taint", "node", "node-2", "dedicated=ml:NoSchedule")
    try:
        async with observed(own_rig, own_namespace, tmp_path, kubernetes_tolerations=("dedicated=ml",)) as seen:
            assert (await a_node(seen, "node-2")).message is None
    finally:
        own_rig.kubectl("taint", "node", "node-2", "dedicated-")


async def test_a_node_that_is_lost_is_not_ready(seen: Observed) -> None:
    seen.rig.cut("node-2")
    try:
        await eventually(lambda: (_message(seen) or "").startswith("does not answer since "))
        assert not (await a_node(seen, "node-2")).ready
    finally:
        seen.rig.mend("node-2")
        await eventually(lambda: _message(seen) is None)


def _message(seen: Observed) -> str | None:
    node = seen.inventory.node("node-2")
    return node.message if node else "gone"


# amounts


def a_pod(**spec: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "a"}, "spec": spec}, Pod)


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": cpu, "resources": {"requests": {"cpu": cpu}}, **more}


def test_a_pod_holds_what_all_its_containers_ask_for() -> None:
    assert sum_requests(a_pod(containers=[container("500m"), container("1")])) == {"cpu": Decimal("1.5")}


def test_a_container_that_runs_before_them_counts_only_if_it_asks_for_more() -> None:
    assert sum_requests(a_pod(containers=[container("1")], initContainers=[container("3")])) == {"cpu": Decimal(3)}
    assert sum_requests(a_pod(containers=[container("1")], initContainers=[container("500m")])) == {"cpu": Decimal(1)}


def test_a_sidecar_runs_beside_them() -> None:
    beside = container("500m", restartPolicy="Always")
    assert sum_requests(a_pod(containers=[container("1")], initContainers=[beside])) == {"cpu": Decimal("1.5")}


def test_what_the_runtime_itself_needs_counts() -> None:
    assert sum_requests(a_pod(containers=[container("1")], overhead={"cpu": "100m"})) == {"cpu": Decimal("1.1")}


@pytest.mark.parametrize(
    ("toleration", "hindered"),
    [
        ("dedicated", False),
        ("dedicated=ml", False),
        ("dedicated=ml:NoSchedule", False),
        ("dedicated:NoExecute", True),
        ("dedicated=other", True),
        ("other", True),
    ],
)
def test_a_toleration_is_read_as_in_the_settings(toleration: str, hindered: bool) -> None:
    assert keeps_away(Taint("dedicated", "NoSchedule", "ml"), [toleration]) is hindered
