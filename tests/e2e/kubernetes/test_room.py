"""What the nodes of a cluster have no room for: said before and while it waits, and nothing is held for it in vain."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.kubernetes.deployed import Deployed, deployed
from tests.rig.cluster import Rig
from tests.running import RunningServer, start_server
from tests.server.test_attempts import until

A10, H100 = "NVIDIA-A10", "NVIDIA-H100-80GB-HBM3"
GANG = "name: gang\nnum_nodes: 5\nresources: {cpus: 20m, accelerators: 'A10:1'}\nrun: echo started\n"
SMALL = "name: small\nresources: {cpus: 20m, accelerators: 'A10:1'}\nrun: echo started\n"

Start = Callable[..., RunningServer]


@pytest.fixture(scope="module")
def cluster(own_rig: Rig) -> Rig:
    """Two GPUs, one on each node."""
    for node in own_rig.node_names:
        own_rig.patch_gpus(node, A10, 1)
    return own_rig


@pytest.fixture(scope="module")
def account(cluster: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(cluster, tmp_path_factory.mktemp("account")) as made:
        yield made


@pytest.fixture
def start(account: Deployed, place: Path) -> Iterator[Start]:
    started: list[RunningServer] = []

    def begin(**settings: str) -> RunningServer:
        started.append(start_server(place, **(account.chosen | {"stop_grace": "1s"} | settings)))
        return started[-1]

    yield begin
    for server in started:
        server.end()


def pods_of(account: Deployed, job: dict[str, Any]) -> list[dict[str, Any]]:
    words = ("get", "pods", "-n", account.jobs, "-l", f"task-id={job['id']}", "-o", "json")
    found: list[dict[str, Any]] = json.loads(account.rig.kubectl(*words))["items"]
    return found


def says(server: RunningServer, job: dict[str, Any], text: str) -> dict[str, Any]:
    return until(server, job["id"], lambda found: text in (found["message"] or ""))


def dry_run(server: RunningServer, text: str) -> str:
    command = [sys.executable, "-m", "penstock.cli", "jobs", "submit", "-", "--dry-run"]
    done = subprocess.run(command, env=server.environ, input=text, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


# several nodes


def test_nodes_that_can_never_all_start_take_no_places_from_others(start: Start, account: Deployed) -> None:
    server = start()
    gang = server.submit(GANG)
    waits = says(server, gang, "never")
    assert waits["state"] == "QUEUED"
    assert waits["message"] == (
        "it can never start on the nodes there are: it asks for 5 nodes with 1 × A10, 0.02 CPUs each, and there is "
        "room for 2 even with nothing else on them (1 on node-1, 1 on node-2); it starts when there are enough"
    )
    small = [server.submit(SMALL) for _ in range(2)]
    assert [server.ended(each["id"])["status"] for each in small] == ["completed"] * 2
    assert pods_of(account, gang) == []
    assert f"Fits now: no (It would wait: {waits['message']}.)" in dry_run(server, GANG)


def test_they_start_once_there_are_enough(start: Start, account: Deployed) -> None:
    server = start()
    gang = server.submit(GANG)
    says(server, gang, "never")
    account.rig.patch_gpus("node-1", A10, 4)
    try:
        assert server.ended(gang["id"])["status"] == "completed"
    finally:
        account.rig.patch_gpus("node-1", A10, 1)


def test_where_an_autoscaler_can_bring_more_it_sees_their_pods_and_others_have_their_turn(
    start: Start, account: Deployed
) -> None:
    server = start(kubernetes_autoscaler=f"{A10}:1", placement_timeout="3s")
    gang = server.submit(GANG)
    says(server, gang, "2 of 5 nodes have a place; node ")
    pods = pods_of(account, gang)
    assert len(pods) == 5
    assert sum("nodeName" in pod["spec"] for pod in pods) == 2
    small = server.submit(SMALL)
    assert server.ended(small["id"])["status"] == "completed"
    assert "the cluster's autoscaler can bring A10" in dry_run(server, GANG)


def test_nodes_that_are_cordoned_are_the_reason(start: Start, account: Deployed) -> None:
    server = start()
    account.rig.kubectl("cordon", "node-2")
    try:
        gang = server.submit(GANG.replace("5", "2"))
        waits = says(server, gang, "node-2 is cordoned")
        assert "there is room for 1; node-2 is cordoned" in waits["message"]
        assert pods_of(account, gang) == []
    finally:
        account.rig.kubectl("uncordon", "node-2")
    assert server.ended(gang["id"])["status"] == "completed"


# what no node has


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("memory: 900Gi", "no node has 900Gi of memory: the largest, node-"),
        ("cpus: 500", "no node has 500 CPUs: the largest, node-"),
        ("accelerators: 8", "no node has 8 × GPU: the most is 1 on node-"),
        ("accelerators: 'A10:3'", "no node has 3 × A10: the most is 1 on node-"),
    ],
)
def test_a_dry_run_says_what_no_node_has_and_the_job_that_waits_the_same(start: Start, asked: str, said: str) -> None:
    server = start()
    text = f"resources: {{{asked}}}\nrun: 'true'\n"
    assert f"Fits now: no (It would wait: {said}" in dry_run(server, text)
    assert says(server, server.submit(text), "no node has")["message"].startswith(said)


def test_a_dry_run_says_who_has_what_it_asks_for(start: Start) -> None:
    server = start()
    job = server.submit("name: holder\nnum_nodes: 2\nresources: {accelerators: 1}\nrun: sleep 600\n")
    until(server, job["id"], lambda found: found["state"] == "RUNNING")
    said = dry_run(server, SMALL)
    assert "Fits now: no (It would wait: no node has 1 × A10 free: 1 × A10 on node-" in said
    assert f"all taken by {job['user']} (holder, {job['id']})" in said
    assert "Fits now: the cluster decides" in dry_run(server, "run: 'true'\n")


# GPUs that are to come


def test_a_product_no_node_has_yet_is_accepted_and_starts_on_the_node_that_comes(
    start: Start, account: Deployed
) -> None:
    server = start()
    job = server.submit("resources: {accelerators: 'H100:1'}\nrun: echo started\n")
    assert job["notices"] == [
        "No node has a GPU 'H100' now: it waits until one has. There are: NVIDIA-A10 (2 of 2 free). "
        "An autoscaler brings one only when an admin has named it in kubernetes_autoscaler."
    ]
    waits = says(server, job, "no node has 1 × H100")
    assert waits["message"] == (
        "no node has 1 × H100: there are 2 × A10 (2 free); it starts when a node has what it needs"
    )
    account.rig.patch_gpus("node-2", H100, 1)
    try:
        assert server.ended(job["id"])["status"] == "completed"
    finally:
        account.rig.patch_gpus("node-2", A10, 1)


def test_what_an_autoscaler_can_bring_is_asked_for_by_its_name_and_nothing_else_is_accepted(
    start: Start, account: Deployed
) -> None:
    server = start(kubernetes_autoscaler=f"{H100}:8")
    job = server.submit("resources: {accelerators: 'H100:8'}\nrun: echo started\n")
    assert job["notices"] == []
    waits = says(server, job, "autoscaler")
    assert waits["message"] == (
        "no node has 8 × H100-80GB-HBM3: there are 2 × A10 (2 free); the cluster's autoscaler can bring H100-80GB-HBM3"
    )
    [pod] = pods_of(account, job)
    assert H100 in json.dumps(pod["spec"]["affinity"])
    said = dry_run(server, "resources: {accelerators: 'V100:1'}\nrun: 'true'\n")
    assert "no node has a GPU 'V100'" in said
    assert f"there are: NVIDIA-A10 (2 of 2 free); an autoscaler can bring: {H100}" in said
