"""What GPUs of a cluster do: counted, and reported when it is nothing. The GPUs and NVIDIA's exporter are stand-ins."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.shared.refusals import IDLE_PARTLY_UNSEEN, IDLE_UNSEEN
from tests.engines.kubernetes.deployed import Deployed, deployed
from tests.exporting import CHART, GPU_OPERATOR, Exporter, lines
from tests.rig.cluster import Rig
from tests.rig.places import RigError
from tests.rig.processes import wait_for
from tests.running import RunningServer, start_server
from tests.server.test_attempts import until
from tests.server.test_idle import idle_lines, is_idle, used

SEEN, HIDDEN = "NVIDIA-A10", "NVIDIA-L4"
"""What node-1 has, where an exporter is, and what node-2 has."""
TASK = "name: {name}\nresources: {{accelerators: '{gpus}'}}\nrun: sleep 600\n"
IDLE_SOON = TASK + "idle_timeout: 1s\n"
PATIENCE = 90

Start = Callable[..., RunningServer]


@pytest.fixture(scope="module")
def cluster(own_rig: Rig) -> Rig:
    own_rig.patch_gpus("node-1", SEEN, 4)
    own_rig.patch_gpus("node-2", HIDDEN, 4)
    return own_rig


@pytest.fixture(scope="module")
def account(cluster: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """With the rights of deploy/kubernetes, those to ask the exporter among them."""
    with deployed(cluster, tmp_path_factory.mktemp("account"), "base", "gpu-use") as made:
        yield made


@pytest.fixture(scope="module")
def node_1(cluster: Rig, account: Deployed) -> Exporter:
    return Exporter(cluster, account.exporters, "node-1", GPU_OPERATOR)


@pytest.fixture
def exporter(node_1: Exporter) -> Exporter:
    """It has nothing to say yet."""
    node_1.says()
    return node_1


@pytest.fixture
def start(account: Deployed, place: Path) -> Iterator[Start]:
    started: list[RunningServer] = []

    def begin(**settings: str) -> RunningServer:
        given = account.chosen | {
            "kubernetes_dcgm_namespace": account.exporters,
            "stop_grace": "1s",
            "gpu_sample": "2s",
        }
        started.append(start_server(place, **(given | settings)))
        return started[-1]

    yield begin
    for server in started:
        server.end()


@pytest.fixture
def server(start: Start, exporter: Exporter) -> RunningServer:
    return start()


def runs(server: RunningServer, account: Deployed, text: str) -> tuple[dict[str, Any], list[str]]:
    """One that runs, and its pods."""
    job = server.submit(text)
    until(server, job["id"], lambda found: found["state"] == "RUNNING")
    words = ("get", "pods", "-n", account.jobs, "-l", f"task-id={job['id']}", "-o", "json")
    pods = json.loads(account.rig.kubectl(*words))["items"]
    return job, sorted(pod["metadata"]["name"] for pod in pods)


def penstock(server: RunningServer, *words: str) -> str:
    command = [sys.executable, "-m", "penstock.cli", *words]
    return subprocess.run(command, env=server.environ, capture_output=True, text=True, timeout=PATIENCE).stdout


def looked_in_vain(server: RunningServer, why: str) -> None:
    log = server.place / "server.log"
    wait_for("a look", lambda: f"what GPUs do is not seen: {why}" in log.read_text(), PATIENCE)


def told_idle(server: RunningServer, job: dict[str, Any]) -> list[str]:
    return idle_lines(server.request("GET", f"/v1/workloads/{job['id']}")[1])


def test_what_gpus_do_is_counted_and_what_works_is_not_idle(
    server: RunningServer, account: Deployed, exporter: Exporter
) -> None:
    job, [pod] = runs(server, account, IDLE_SOON.format(name="half", gpus="A10:2"))
    assert job["notices"] == [IDLE_PARTLY_UNSEEN]
    exporter.says(*lines(pod, account.jobs, 0, 100, 512), *lines(pod, account.jobs, 1, 0))
    until(server, job["id"], lambda _: used(server)["gpu_hours_measured"] > 0.001)
    row = used(server)
    assert row["gpu_hours_used"] == pytest.approx(row["gpu_hours_measured"] / 2, abs=0.0002)
    assert row["gpu_hours_measured"] <= row["gpu_hours"]
    assert "%)" in penstock(server, "usage")
    assert told_idle(server, job) == []


def test_an_idle_one_is_reported_and_those_of_which_a_gpu_is_not_seen_never(
    server: RunningServer, account: Deployed, exporter: Exporter
) -> None:
    half, [half_pod] = runs(server, account, IDLE_SOON.format(name="half", gpus="A10:2"))
    hidden, [hidden_pod] = runs(server, account, IDLE_SOON.format(name="hidden", gpus="A10:1"))
    unseen = [*lines(half_pod, account.jobs, 0, 0), *lines(hidden_pod, account.jobs, 2, "N/A")]
    exporter.says(*unseen)
    job, [pod] = runs(server, account, IDLE_SOON.format(name="train", gpus="A10:1"))
    exporter.says(*unseen, *lines(pod, account.jobs, 3, 0, 100))
    idle = until(server, job["id"], is_idle)
    assert idle["state"] == "RUNNING"
    assert idle["message"].startswith("its GPU has done nothing for ")
    assert told_idle(server, half) == told_idle(server, hidden) == []
    exporter.says(*lines(half_pod, account.jobs, 0, 0), *lines(half_pod, account.jobs, 1, 0))
    assert "its 2 GPUs have done nothing for " in until(server, half["id"], is_idle)["message"]
    exporter.says(*lines(pod, account.jobs, 3, 7, 100))
    again = until(server, job["id"], lambda found: found["reason"] == "STARTED")
    assert again["history"][-1]["message"] == "its GPUs work again"


def test_of_several_nodes_all_must_be_seen(server: RunningServer, account: Deployed, exporter: Exporter) -> None:
    job, pods = runs(server, account, IDLE_SOON.format(name="ranks", gpus="A10:1") + "num_nodes: 2\n")
    other, [pod] = runs(server, account, IDLE_SOON.format(name="other", gpus="A10:1"))
    first, second = (lines(each, account.jobs, number, 0) for number, each in enumerate(pods))
    exporter.says(*first, *lines(pod, account.jobs, 2, 0))
    until(server, other["id"], is_idle)
    assert told_idle(server, job) == []
    exporter.says(*first, *second)
    assert "its 2 GPUs have done nothing for " in until(server, job["id"], is_idle)["message"]


def test_a_group_may_have_idle_ones_stopped(server: RunningServer, account: Deployed, exporter: Exporter) -> None:
    status, first = server.request("POST", "/v1/adm/init", {})
    assert status == 201, first
    me = first["user"]
    assert server.request("PUT", f"/v1/groups/{me}", {"name": me, "idle_timeout": 1, "stop_idle": True})[0] == 200
    job, [pod] = runs(server, account, TASK.format(name="forgotten", gpus="A10:1"))
    exporter.says(*lines(pod, account.jobs, 0, 0))
    ended = server.ended(job["id"])
    assert (ended["state"], ended["reason"]) == ("STOPPED", "GPUS_IDLE")


def test_an_exporter_that_does_not_answer_hides_only_its_own_node(
    server: RunningServer, account: Deployed, exporter: Exporter
) -> None:
    dumb = Exporter(account.rig, account.exporters, "node-2", CHART)
    try:
        dumb.stands_still()
        lost, _ = runs(server, account, IDLE_SOON.format(name="lost", gpus="L4:1"))
        assert lost["notices"] == []
        job, [pod] = runs(server, account, IDLE_SOON.format(name="train", gpus="A10:1"))
        exporter.says(*lines(pod, account.jobs, 0, 0))
        until(server, job["id"], is_idle)
        assert told_idle(server, lost) == []
        said = penstock(server, "doctor")
        assert f"what the GPUs of node-2 do is not seen: the pod {dumb.name} does not say it within 2 seconds" in said
    finally:
        dumb.end()


def test_an_exporter_that_was_made_anew_is_found(server: RunningServer, account: Deployed, exporter: Exporter) -> None:
    job, [pod] = runs(server, account, IDLE_SOON.format(name="train", gpus="A10:1"))
    exporter.says(*lines(pod, account.jobs, 0, 0))
    until(server, job["id"], is_idle)
    exporter.end()
    exporter.begin(CHART)
    exporter.says(*lines(pod, account.jobs, 0, 9))
    until(server, job["id"], lambda found: found["reason"] == "STARTED")


def test_without_an_exporter_nothing_is_known_and_that_is_said(start: Start, account: Deployed) -> None:
    server = start(kubernetes_dcgm_namespace="default")
    job, _ = runs(server, account, IDLE_SOON.format(name="train", gpus="A10:1"))
    assert job["notices"] == [IDLE_UNSEEN]
    why = "no dcgm-exporter runs there in the namespace default"
    looked_in_vain(server, why)
    row = used(server)
    assert (row["gpu_hours_used"], row["gpu_hours_measured"]) == (None, 0)
    assert told_idle(server, job) == []
    said = penstock(server, "doctor")
    assert f"what the GPUs of node-1, node-2 do is not seen: {why}" in said
    assert "install NVIDIA's GPU operator, or name its namespace in kubernetes_dcgm_namespace" in said


def test_one_that_does_not_say_whose_gpus_they_are_is_named(
    server: RunningServer, account: Deployed, exporter: Exporter
) -> None:
    _, [pod] = runs(server, account, TASK.format(name="train", gpus="A10:1"))
    exporter.says('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-0"} 0', 'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-0"} 0')
    said = penstock(server, "doctor")
    assert f"its dcgm-exporter does not say yet what those of the pod {account.jobs}/{pod} do" in said
    assert "DCGM_EXPORTER_KUBERNETES" in said


def test_where_it_is_seen_nobody_is_warned(
    server: RunningServer, account: Deployed, exporter: Exporter, cluster: Rig
) -> None:
    other = Exporter(cluster, account.exporters, "node-2", CHART)
    try:
        assert "seen on 2 nodes" in penstock(server, "doctor")
        assert server.submit(IDLE_SOON.format(name="train", gpus="A10:1"))["notices"] == []
    finally:
        other.end()


def test_without_the_right_nothing_is_known_and_the_doctor_has_the_fix(
    cluster: Rig, account: Deployed, exporter: Exporter, start: Start, tmp_path: Path
) -> None:
    with deployed(cluster, tmp_path) as less:
        server = start(kubernetes_config=str(less.kubeconfig), kubernetes_namespace=less.jobs)
        job, [pod] = runs(server, less, IDLE_SOON.format(name="train", gpus="A10:1"))
        assert job["notices"] == [IDLE_UNSEEN]
        exporter.says(*lines(pod, less.jobs, 0, 0))
        looked_in_vain(server, "pods")
        said = penstock(server, "doctor")
        assert 'cannot get resource "pods/proxy"' in said
        assert "kubectl apply -k deploy/kubernetes/gpu-use" in said
        assert told_idle(server, job) == []
        assert used(server)["gpu_hours_used"] is None
        server.end()


def test_a_server_of_many_namespaces_may_read_there_and_change_nothing(cluster: Rig, tmp_path: Path) -> None:
    """Its rights let only that through."""
    with deployed(cluster, tmp_path, "namespace-per-user", "gpu-use") as made:
        exporter = Exporter(cluster, made.exporters, "node-1", GPU_OPERATOR)
        exporter.says("hello")
        as_server = f"--kubeconfig={made.kubeconfig}"
        page = f"/api/v1/namespaces/{made.exporters}/pods/{exporter.name}:9400/proxy/metrics"
        assert cluster.kubectl(as_server, "get", "--raw", page) == "hello\n"
        with pytest.raises(RigError, match="orbidden"):
            cluster.kubectl(as_server, "create", "--raw", page, "-f", "-", text="hello")
        with pytest.raises(RigError, match="orbidden"):
            cluster.kubectl(as_server, "exec", "-n", made.exporters, exporter.name, "--", "true")
        assert cluster.kubectl(as_server, "create", "token", "penstock-nodes", "-n", made.server)
        with pytest.raises(RigError, match="orbidden"):
            cluster.kubectl(as_server, "create", "token", "default", "-n", made.server)
