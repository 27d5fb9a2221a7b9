"""Nodes and GPUs over HTTP: what there is, what is free, who has the rest, and who may see with what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.running import RunningServer, start_server
from tests.server.test_attempts import until


@pytest.fixture
def server(place: Path, compiled_fake: Callable[[str, str], Path]) -> Iterator[RunningServer]:
    library = compiled_fake("nvml.c", "libnvidia-ml.so.1")
    environ = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": "NVIDIA A10,NVIDIA A10,NVIDIA L4"}
    running = start_server(place, environ=environ, cpus="8", memory="8Gi", gpu_lock_dir=str(place / "locks"))
    yield running
    running.end()


def as_alice(server: RunningServer, path: str) -> dict:
    _, made = server.request("POST", "/v1/tokens", {"user": "alice"})
    status, answer = server.tcp("GET", path, headers={"Authorization": f"Bearer {made['token']}"})
    assert status == 200, answer
    return answer


def test_who_has_which_gpus_is_shown_and_with_what_only_to_them_and_admins(server: RunningServer):
    job = server.submit("name: train\nresources: {cpus: 1, accelerators: 'A10:1'}\nrun: sleep 600\n")
    until(server, job["id"], lambda found: found["state"] == "RUNNING")
    _, page = server.request("GET", "/v1/nodes")
    [node] = page["items"]
    assert (node["ready"], node["message"], node["cpus"], node["cpus_free"]) == (True, None, "8", "7")
    holder = {"user": job["user"], "what": f"train ({job['id']})", "workload": job["id"], "count": 1}
    assert node["gpu_pools"] == [
        {"product": "NVIDIA A10", "total": 2, "taken": 1, "free": 1, "holders": [holder]},
        {"product": "NVIDIA L4", "total": 1, "taken": 0, "free": 1, "holders": []},
    ]
    assert [(gpu["taken"], gpu["user"], gpu["workload"]) for gpu in node["gpus"]].count(
        (True, job["user"], job["id"])
    ) == 1
    [theirs] = as_alice(server, "/v1/nodes")["items"]
    assert theirs["gpu_pools"][0]["holders"] == [
        {"user": job["user"], "what": job["user"], "workload": None, "count": 1}
    ]
    assert {gpu["workload"] for gpu in theirs["gpus"]} == {None}


def test_the_gpus_are_one_list_by_node_and_product(server: RunningServer):
    _, page = server.request("GET", "/v1/gpus")
    assert [(row["product"], row["total"], row["free"]) for row in page["items"]] == [
        ("NVIDIA A10", 2, 2),
        ("NVIDIA L4", 1, 1),
    ]
    first = page["items"][0]
    assert first["name"] == f"{first['node']}/NVIDIA A10"
    _, part = server.request("GET", "/v1/gpus?limit=1")
    assert part["next"] == page["items"][1]["name"]


def test_a_product_that_is_not_there_is_refused_with_those_that_are(server: RunningServer):
    body = {"text": "resources:\n  accelerators: H100:1\nrun: 'true'\n", "source": "train.yaml"}
    status, refused = server.request("POST", "/v1/workloads", body)
    assert status == 422
    [problem] = refused["problems"]
    assert (problem["where"], problem["field"]) == ("train.yaml:2:3", "resources.accelerators")
    assert problem["message"].endswith("has 2 × NVIDIA A10 (2 free), 1 × NVIDIA L4 (1 free)")


def test_the_metrics_count_gpus_and_nodes(server: RunningServer):
    _, text = server.request("GET", "/metrics")
    assert "penstock_gpus 3.0" in text
    assert "penstock_nodes_ready 1.0" in text


def test_a_server_without_hosts_says_what_is_missing(place: Path):
    server = start_server(place, engine="docker")
    try:
        assert server.notices == [
            "no Docker host is registered. Fix: an admin applies a document of the kind Node",
        ]
    finally:
        server.end()
