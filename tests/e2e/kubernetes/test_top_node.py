"""`penstock top node` on a cluster of its own, whose kubelets are asked, refuse, are not believed and do not answer."""

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
RATES = ("disk_read_per_second", "disk_written_per_second", "received_per_second", "sent_per_second")
PATIENCE = 90
LOAD = """
name: load
num_nodes: 2
run: |
  if [ $NODE_RANK = 0 ]; then
    (while :; do :; done) &
    while :; do dd if=/dev/zero of=/tmp/written bs=1M count=8 conv=fsync 2>/dev/null; sleep 0.1; done &
    python3 -c "$SERVES"
  else
    python3 -c "$TAKES" >/dev/null
  fi
"""
SERVES = """
import os, socket, time
with socket.create_server(("", int(os.environ["MASTER_PORT"]))) as server:
    with server.accept()[0] as taker:
        while True:
            taker.sendall(bytes(1 << 20))
            time.sleep(0.1)
"""
TAKES = """
import os, socket
while True:
    try:
        with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5) as master:
            while master.recv(1 << 20):
                pass
    except OSError:
        pass
"""

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

    def at_a_glance(self) -> dict[str, Row]:
        """As somebody sees them first who goes on looking."""
        return {node["name"]: node for node in self.server.request("GET", "/v1/nodes/top")[1]["items"]}

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


def ok(node: Row) -> bool:
    return node["message"] is None and node["cpu_percent"] > 0 and node["memory_used_bytes"] > 0


# -- what is seen ------------------------------------------------------------------------------------------------------


def test_who_looks_once_waits_for_all_of_it_and_who_goes_on_looking_does_not(start: Start) -> None:
    penstock = start()
    for node in penstock.at_a_glance().values():
        assert node["memory_used_bytes"] > 0
        assert {node[rate] for rate in RATES} == {None}
        assert node["message"].startswith("disk and network are known once its kubelet has measured again")
    found = penstock.nodes()
    assert set(found) == {FIRST, SECOND}
    for node in found.values():
        assert ok(node)
        assert node["cpu_percent"] > 0
        assert None not in {node[rate] for rate in RATES}
    assert all(map(ok, penstock.at_a_glance().values()))  # what was measured a moment ago is still known


def test_what_a_job_does_is_seen_on_its_nodes(start: Start) -> None:
    """One computes, writes and sends, the other receives."""
    penstock = start()
    envs = json.dumps({"SERVES": SERVES, "TAKES": TAKES})
    (penstock.folder / "load.yaml").write_text(f"{LOAD}envs: {envs}\n")
    done = penstock("jobs", "submit", "load.yaml", "--detach", "-o", "json")
    assert done.code == 0, done.err
    seen: dict[str, Row] = {}

    def is_seen() -> bool:
        seen.update(penstock.nodes())
        fast = {rate for node in seen.values() for rate in RATES if (node[rate] or 0) > MIB}
        busy = any((node["cpu_percent"] or 0) > 20 for node in seen.values())
        return busy and fast >= {"disk_written_per_second", "received_per_second", "sent_per_second"}

    wait_for(f"the load to be seen, not {seen}", is_seen, PATIENCE)


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
        assert found[SECOND]["message"].startswith("its GPUs are not seen: no dcgm-exporter runs there")
        assert "87%, 0%" in penstock("top", "node").out
    finally:
        exporter.end()
        for name in (FIRST, SECOND):
            own_rig.patch_gpus(name, None, 0)


def test_doctor_says_that_they_are_seen(start: Start) -> None:
    assert "seen on 2 nodes" in start()("doctor").out


# -- what is not -------------------------------------------------------------------------------------------------------


def test_without_the_right_that_is_said_with_what_gives_it(start: Start, own_rig: Rig, account: Deployed) -> None:
    """The kubelet itself refuses a token of somebody who may not."""
    for about in ("role", "rolebinding"):
        words = {"role": ("--verb=create", "--resource=serviceaccounts/token"), "rolebinding": ("--role=others",)}[
            about
        ]
        subject = (f"--serviceaccount={account.server}:penstock",) if about == "rolebinding" else ()
        own_rig.kubectl("create", about, "others", "-n", account.server, *words, *subject)
    penstock = start(kubernetes_kubelet_account=f"{account.server}/default")
    for node in penstock.nodes().values():
        assert node["cpu_percent"] is None
        assert node["message"].startswith("what it does is not seen: its kubelet refuses: Forbidden (user=")
        assert node["message"].endswith("(kubectl apply -k deploy/kubernetes/base)")
    said = penstock("doctor").out
    assert "of node-1, node-2 not all is seen for `top node`: its kubelet refuses" in said
    assert "kubectl apply -k deploy/kubernetes/base" in said


def test_where_kubelets_are_not_to_be_asked_a_metrics_server_still_tells_of_cpus_and_memory(
    start: Start, own_rig: Rig
) -> None:
    penstock = start(kubernetes_kubelet_account="")
    asks = "kubelets are not asked (name an account in kubernetes_kubelet_account)"
    assert {node["message"] for node in penstock.nodes().values()} == {f"what it does is not seen: {asks}"}
    assert "node use" not in penstock("doctor").out
    own_rig.apply(METRICS)
    own_rig.kubectl("wait", "--for=condition=Established", "crd/nodes.metrics.k8s.io")
    try:
        measured = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": FIRST}}
        own_rig.apply(measured | {"usage": {"cpu": "1250000000n", "memory": "512Mi"}})
        found = penstock.nodes()
        assert (found[FIRST]["cpu_percent"], found[FIRST]["memory_used_bytes"]) == (125, 512 * MIB)
        assert found[FIRST]["message"] == f"disk and network are not seen: {asks}"
        assert found[SECOND]["message"] == f"what it does is not seen: {asks}"
    finally:
        own_rig.kubectl("delete", "crd/nodes.metrics.k8s.io")


def test_a_node_that_does_not_answer_costs_the_others_nothing(start: Start, own_rig: Rig) -> None:
    penstock = start()
    penstock.nodes()
    own_rig.pause("kubelet-2")
    try:
        found = penstock.nodes()
        assert ok(found[FIRST])
        assert found[FIRST]["received_per_second"] is not None
        said = found[SECOND]["message"]
        assert said.startswith("what it does is not seen: its kubelet at https://")
        assert said.endswith("does not answer in time (let the server reach that port)")
        wait_for("the node to be lost", lambda: penstock.message(SECOND).startswith("does not answer since"), PATIENCE)
    finally:
        own_rig.resume("kubelet-2")
    wait_for("the node to be seen again", lambda: penstock.message(SECOND) == "", PATIENCE)


def test_a_certificate_of_its_own_making_is_believed_only_if_an_admin_says_so(
    start: Start, own_rig: Rig, tmp_path: Path
) -> None:
    """The last test: from now on the API server cannot reach that kubelet. Many kubelets have such a certificate."""
    config = own_rig.nodes[1].home / "kubelet.json"
    settings = json.loads(config.read_text())
    del settings["tlsCertFile"], settings["tlsPrivateKeyFile"]
    config.write_text(json.dumps(settings))
    own_rig.stop("kubelet-2")
    own_rig.start("kubelet-2")
    made = own_rig.directory / "own/var-lib-kubelet/pki/kubelet.crt"
    wait_for("the kubelet to make its certificate", made.exists, PATIENCE)
    penstock = start()
    wait_for("the kubelet to be up", lambda: "not trusted" in penstock.message(SECOND), PATIENCE)
    said = penstock.message(SECOND)
    assert said.startswith("what it does is not seen: its kubelet at https://")
    assert said.endswith("(name the authority of the kubelets' certificates in kubernetes_kubelet_ca)")
    assert ok(penstock.nodes()[FIRST])
    both = tmp_path / "both.crt"
    both.write_text(own_rig.control.certificates.authority.read_text() + made.read_text())
    for authorities in (str(both), "none"):
        again = start(kubernetes_kubelet_ca=authorities)
        assert all(map(ok, again.nodes().values()))
    others = start(kubernetes_kubelet_ca=str(made))
    assert "not trusted" in others.message(FIRST)
