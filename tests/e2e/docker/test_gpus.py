"""What GPUs of Docker hosts do: shown, counted, and reported when it is nothing. The GPUs are a stand-in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.shared.refusals import IDLE_UNSEEN
from tests.e2e.docker.test_placement import until
from tests.hosts.gpus import MEMORY_MB, uuid
from tests.hosts.lot import Hosts
from tests.running import RunningServer, start_server
from tests.server.test_attempts import until as until_it
from tests.server.test_idle import idle_lines, is_idle, used

NODE = """apiVersion: v1
kind: Node
metadata: {{name: {name}, group: pwm.resource}}
spec: {{address: '{address}'}}
"""
TASK = """name: {name}
resources: {{image_id: 'penstock-test:1', cpus: 0.1, accelerators: 'A10:1'}}
selectors: {{node: {node}}}
run: nvidia-smi --query-gpu=uuid --format=csv,noheader; sleep 600
"""
IDLE_SOON = TASK + "idle_timeout: 1s\n"
MIB = 1 << 20


@pytest.fixture
def server(place: Path, gpu_hosts: Hosts) -> Iterator[RunningServer]:
    """It knows the GPUs of both hosts."""
    running = start_server(place, engine="docker", stop_grace="1s", gpu_sample="3s")
    for host in gpu_hosts.hosts:
        text = NODE.format(name=host.name, address=host.unix)
        status, answer = running.request("POST", "/v1/apply", {"text": text})
        assert status == 200, answer
    until(lambda: all(node["gpus"] for node in nodes(running)), lambda: nodes(running))
    yield running
    running.end()
    for host in gpu_hosts.hosts:
        host.has_gpus("NVIDIA A10", "NVIDIA A10")
        host.clean()


def nodes(server: RunningServer, path: str = "/v1/nodes") -> list[dict[str, Any]]:
    status, page = server.request("GET", path)
    assert status == 200, page
    return list(page["items"])


def shown(server: RunningServer, *words: str, name: str = "penstock") -> str:
    command = [str(Path(sys.executable).parent / name), *words]
    return subprocess.run(command, env=server.environ, capture_output=True, text=True).stdout


def started(server: RunningServer, text: str) -> tuple[dict[str, Any], str]:
    """One that runs, and the GPU that it has."""
    job = server.submit(text)
    until_it(server, job["id"], lambda found: found["state"] == "RUNNING")
    [held] = [gpu["uuid"] for node in nodes(server) for gpu in node["gpus"] if gpu["workload"] == job["id"]]
    return job, held


def test_a_job_gets_its_own_gpu_and_sees_what_that_does(server: RunningServer, gpu_hosts: Hosts) -> None:
    first, _ = gpu_hosts.hosts
    _, other = started(server, TASK.format(name="other", node="host-1"))
    job, held = started(server, TASK.format(name="train", node="host-1"))
    assert {other, held} == {uuid("host-1", 0), uuid("host-1", 1)}
    _, known = server.request("GET", f"/v1/workloads/{job['id']}/inspect")
    [container] = known["found"]["containers"]
    [request] = container["HostConfig"]["DeviceRequests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("nvidia", [held])
    until(lambda: server.request("GET", f"/v1/workloads/{job['id']}/logs")[1] == f"{held}\n")
    first.gpu_does(int(held[-1]), 87, 2048)

    def measured() -> dict[str, Any]:
        [gpu] = server.request("GET", f"/v1/workloads/{job['id']}/top")[1]["gpus"]
        return dict(gpu)

    until(lambda: measured()["utilization"] == 87)  # what was seen a moment ago is not looked at again
    gpu = measured()
    assert (gpu["uuid"], gpu["product"], gpu["utilization"]) == (held, "NVIDIA A10", 87)
    assert (gpu["memory_used_bytes"], gpu["memory_bytes"]) == (2048 * MIB, MEMORY_MB * MIB)
    use = {gpu["uuid"]: gpu["utilization"] for node in nodes(server, "/v1/nodes/top") for gpu in node["gpus"]}
    assert use == {other: 0, held: 87, uuid("host-2", 0): 0, uuid("host-2", 1): 0}
    said = shown(server, "top", "train")
    assert [line.split()[-2:] for line in said.splitlines() if held in line] == [["87%", "-"]]
    memory = {gpu["uuid"]: gpu["memory_used_bytes"] for node in nodes(server) for gpu in node["gpus"]}
    assert (memory[held], memory[other]) == (2048 * MIB, 0)


def test_a_gpu_that_others_use_is_given_to_nobody(server: RunningServer, gpu_hosts: Hosts) -> None:
    first, _ = gpu_hosts.hosts
    for number in (0, 1):
        first.gpu_does(number, 90, 8192, processes=1)
    nodes(server, "/v1/nodes/top")  # looks now
    waits = server.submit(TASK.format(name="waits", node="host-1"))
    why = "used by programs that Penstock did not start (1 compute process, 8192 MiB in use)"
    said = until_it(server, waits["id"], lambda found: "did not start" in (found["message"] or ""))
    assert f"2 {why}" in said["message"]
    assert why in shown(server, "explain", "wk", "waits")
    for words in (("get", "gpu", "-o", "wide"), ("describe", "gpu", uuid("host-1", 0))):
        assert "outside Penstock: 1 compute process, 8192 MiB in use" in shown(server, *words, name="pwmcli")
    first.gpu_does(1, 0, 0)
    nodes(server, "/v1/nodes/top")
    until_it(server, waits["id"], lambda found: found["state"] == "RUNNING")
    [got] = [gpu["uuid"] for node in nodes(server) for gpu in node["gpus"] if gpu["workload"] == waits["id"]]
    assert got == uuid("host-1", 1)


def test_idle_is_told_what_works_is_counted_and_what_does_not_tell_is_neither(
    server: RunningServer, gpu_hosts: Hosts
) -> None:
    hidden, number = started(server, IDLE_SOON.format(name="hidden", node="host-2"))
    gpu_hosts.hosts[1].gpu_does(int(number[-1]), "[N/A]", 0)
    assert IDLE_UNSEEN not in hidden["notices"]
    job, held = started(server, IDLE_SOON.format(name="train", node="host-1"))
    idle = until_it(server, job["id"], is_idle)
    assert idle["message"].startswith("its GPU has done nothing for ")
    gpu_hosts.hosts[0].gpu_does(int(held[-1]), 50, 1024)
    until_it(server, job["id"], lambda found: found["reason"] == "STARTED")
    until(lambda: used(server)["gpu_hours_used"], lambda: used(server))
    row = used(server)
    assert 0 < row["gpu_hours_used"] < row["gpu_hours_measured"] <= row["gpu_hours"]
    _, found = server.request("GET", f"/v1/workloads/{hidden['id']}")
    assert idle_lines(found) == []


def test_a_group_may_have_idle_ones_stopped(server: RunningServer, gpu_hosts: Hosts) -> None:
    status, first = server.request("POST", "/v1/adm/init", {})
    assert status == 201, first
    me = first["user"]
    group = {"name": me, "idle_timeout": 1, "stop_idle": True}
    assert server.request("PUT", f"/v1/groups/{me}", group)[0] == 200
    job, _ = started(server, TASK.format(name="forgotten", node="host-1"))
    ended = server.ended(job["id"])
    assert (ended["state"], ended["reason"]) == ("STOPPED", "GPUS_IDLE")


def test_one_on_a_host_that_does_not_answer_is_not_idle_and_those_elsewhere_are(
    server: RunningServer, gpu_hosts: Hosts
) -> None:
    second = gpu_hosts.hosts[1]
    lost, number = started(server, IDLE_SOON.format(name="lost", node="host-2"))
    second.gpu_does(int(number[-1]), 50, 0)
    until(lambda: used(server)["gpu_hours_used"], lambda: used(server))
    second.pause()
    try:
        job, _ = started(server, IDLE_SOON.format(name="train", node="host-1"))
        until_it(server, job["id"], is_idle)
        _, found = server.request("GET", f"/v1/workloads/{lost['id']}")
        assert idle_lines(found) == []
    finally:
        second.resume()
    until_it(server, lost["id"], lambda found: found["state"] == "RUNNING")
