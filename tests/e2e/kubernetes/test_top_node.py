"""`penstock top node` on a cluster of its own, with what stands for a metrics-server, and without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Program
from tests.engines.kubernetes.deployed import Deployed, deployed
from tests.exporting import GPU_OPERATOR, Exporter, lines
from tests.rig.cluster import Rig
from tests.rig.processes import wait_for
from tests.running import RunningServer, start_server

FIRST, SECOND = "node-1", "node-2"
MIB = 1 << 20
PATIENCE = 90
METRICS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "nodes.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, stands for a metrics-server"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "scope": "Cluster",
        "names": {"plural": "nodes", "kind": "NodeMetrics"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}

Row = dict[str, Any]


class Seat(Program):
    """`penstock` for a server of its own."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__(server.environ, server.place)
        self.server = server

    def nodes(self, *words: str) -> dict[str, Row]:
        """As somebody who looks once sees them."""
        done = self("top", "node", *words, "-o", "json")
        assert done.code == 0, done.err
        return {node["name"]: node for node in json.loads(done.out)}

    def message(self, name: str) -> str:
        return self.nodes(name)[name]["message"] or ""

    def leave(self) -> None:
        self.end()
        self.server.end()


Start = Callable[..., Seat]


@pytest.fixture(scope="module")
def account(own_rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """With the rights of deploy/kubernetes, those to ask the exporter among them."""
    with deployed(own_rig, tmp_path_factory.mktemp("account"), "base", "gpu-use") as made:
        yield made


@pytest.fixture
def start(account: Deployed, place: Path) -> Iterator[Start]:
    """Another server, in place of the one before."""
    seats: list[Seat] = []

    def begin(**settings: str) -> Seat:
        given = account.chosen | {"kubernetes_dcgm_namespace": account.exporters, "stop_grace": "1s"}
        for seat in seats:
            seat.leave()
        seats[:] = [Seat(start_server(place, **(given | settings)))]
        return seats[0]

    yield begin
    for seat in seats:
        seat.leave()


def test_gpus_of_a_node_are_seen_whoever_has_them(start: Start, own_rig: Rig, account: Deployed) -> None:
    own_rig.patch_gpus(FIRST, "NVIDIA-A10", 2)
    own_rig.patch_gpus(SECOND, "NVIDIA-A10", 1)
    exporter = Exporter(own_rig, account.exporters, FIRST, GPU_OPERATOR)
    try:
        exporter.says(*lines("train", "jobs", 0, 87, 512), *lines("", "", 1, 0))
        penstock = start()
        found = penstock.nodes()
        gpus = [(gpu["uuid"], gpu["utilization"], gpu["memory_used_bytes"]) for gpu in found[FIRST]["gpus"]]
        assert gpus == [("GPU-0", 87, 512 * MIB), ("GPU-1", 0, 0)]
        assert found[SECOND]["gpus"] == []
        assert "; its GPUs are not seen: no dcgm-exporter runs there" in found[SECOND]["message"]
        assert "87%, 0%" in penstock("top", "node").out
    finally:
        exporter.end()
        for name in (FIRST, SECOND):
            own_rig.patch_gpus(name, None, 0)


def test_a_metrics_server_tells_of_cpus_and_memory(start: Start, own_rig: Rig) -> None:
    penstock = start()
    missing = "what it does is not seen: the cluster has no metrics-server (install it)"
    assert {node["message"] for node in penstock.nodes().values()} == {missing}
    assert "what nodes do is not seen for `top node`: the cluster has no metrics-server" in penstock("doctor").out
    own_rig.apply(METRICS)
    own_rig.kubectl("wait", "--for=condition=Established", "crd/nodes.metrics.k8s.io")
    try:
        measured = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": FIRST}}
        own_rig.apply(measured | {"usage": {"cpu": "1250000000n", "memory": "512Mi"}})
        found = penstock.nodes()
        assert (found[FIRST]["cpu_percent"], found[FIRST]["memory_used_bytes"]) == (125, 512 * MIB)
        assert found[FIRST]["message"] is None
        assert found[SECOND]["message"] == "what it does is not seen: the metrics-server has not measured it yet"
        assert "seen on 1 nodes" in penstock("doctor").out
    finally:
        own_rig.kubectl("delete", "crd/nodes.metrics.k8s.io")


def test_of_a_lost_node_that_is_said(start: Start, own_rig: Rig) -> None:
    penstock = start()
    own_rig.pause("kubelet-2")
    try:
        wait_for("the node to be lost", lambda: penstock.message(SECOND).startswith("does not answer since"), PATIENCE)
    finally:
        own_rig.resume("kubelet-2")
