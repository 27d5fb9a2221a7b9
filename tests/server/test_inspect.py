"""What runs, what it uses and the way to its ports over HTTP: who may, what is said, and what is masked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.dialects.convert import ConvertTarget, convert
from tests.engines.contract.inspect import ECHO
from tests.running import RunningServer, start_server
from tests.server.test_attempts import until
from tests.server.test_exec import talk, talk_tcp, wait_for


def echoing(server: RunningServer, name: str = "echo") -> tuple[str, int]:
    """A job with a program that listens: its id and the port."""
    script = ECHO.replace("\n", "\n  ")
    workload = server.submit(f"name: {name}\nenvs: {{API_KEY: hunter2, COLOUR: blue}}\nrun: |\n  {script}\n")
    said = listens(server, workload["id"])
    return workload["id"], int(said)


def listens(server: RunningServer, ref: str) -> str:
    found: list[str] = []

    def has_said() -> bool:
        found[:] = re.findall(r"port (\d+)", server.request("GET", f"/v1/workloads/{ref}/logs")[1])
        return bool(found)

    wait_for(has_said)
    return found[0]


def token(server: RunningServer, user: str) -> dict[str, str]:
    _, made = server.request("POST", "/v1/tokens", {"user": user})
    return {"Authorization": f"Bearer {made['token']}"}


@pytest.fixture(scope="module")
def echo(module_server: RunningServer) -> tuple[str, int]:
    return echoing(module_server)


# -- inspect and top ----------------------------------------------------------------------------------------------


def test_what_the_engine_knows_is_shown_without_secrets(module_server, echo):
    ref, _ = echo
    status, answer = module_server.request("GET", "/v1/workloads/echo/inspect")
    assert status == 200, answer
    assert (answer["id"], answer["attempt"], answer["engine"]) == (ref, 1, "local")
    [part] = answer["found"]["parts"]
    assert any("echo.py" in " ".join(process["command"]) for process in part["processes"])
    envs = answer["found"]["plan"]["ranks"][0]["envs"]
    assert (envs["API_KEY"], envs["COLOUR"]) == ("***", "blue")
    assert "hunter2" not in json.dumps(answer)


def test_what_a_task_calls_a_secret_is_never_shown_and_reads_back(module_server):
    text = "name: licensed\nsecrets: {MODEL_LICENCE: abc-very-secret}\nenvs: {COLOUR: blue}\nrun: sleep 60\n"
    job = module_server.submit(text)
    until(module_server, job["id"], lambda seen: seen["status"] == "running")
    answer = module_server.request("GET", "/v1/workloads/licensed/inspect")[1]
    envs = answer["found"]["plan"]["ranks"][0]["envs"]
    assert (envs["MODEL_LICENCE"], envs["COLOUR"]) == ("***", "blue")
    assert "abc-very-secret" not in json.dumps(answer)
    other = {"text": text.replace("abc-very", "xyz-less")}
    status, refused = module_server.request("POST", "/v1/apply", other)
    assert status == 422
    assert "different: secrets.MODEL_LICENCE" in refused["problems"][0]["message"]
    assert "-secret" not in json.dumps(refused)
    for written in (text, convert(text, "t.yaml", to=ConvertTarget.document)):
        assert module_server.request("POST", "/v1/apply", {"text": written})[1]["results"][0]["result"] == "not changed"
    module_server.request("POST", f"/v1/workloads/{job['id']}/stop")


def test_what_it_uses_is_shown(module_server, echo):
    status, answer = module_server.request("GET", "/v1/workloads/echo/top")
    assert status == 200, answer
    assert (answer["id"], answer["name"], answer["part"]) == (echo[0], "echo", 0)
    assert answer["memory_bytes"] > 0
    assert (answer["network_received_bytes"], answer["network_sent_bytes"]) == (None, None)  # the machine's is shared
    assert any("echo.py" in process["command"] for process in answer["processes"])


def test_what_the_machine_does_is_shown(module_server):
    _, nodes = module_server.request("GET", "/v1/nodes")
    _, page = module_server.request("GET", "/v1/nodes/top")
    [node] = page["items"]
    assert node["name"] == nodes["items"][0]["name"]
    assert 0 < node["memory_used_bytes"] < node["memory_bytes"]
    assert len(node["load"]) == 3
    assert node["cpu_percent"] >= 0
    assert module_server.request("GET", "/v1/nodes/top?name=elsewhere")[1]["items"] == []


def test_what_has_ended_has_no_use_but_is_still_known(module_server):
    job = module_server.submit("name: over\nrun: exit 3\n")
    module_server.ended(job["id"])
    status, answer = module_server.request("GET", f"/v1/workloads/{job['id']}/top")
    assert (status, answer["message"]) == (409, f"over ({job['id']}) is not running: failed")
    status, answer = module_server.request("GET", f"/v1/workloads/{job['id']}/inspect")
    assert answer["found"]["units"][0]["exit_code"] == 3


def test_a_part_that_is_not_there_is_named(module_server, echo):
    status, answer = module_server.request("GET", "/v1/workloads/echo/top?part=7")
    refused = talk(module_server, "/v1/workloads/echo/connect?part=7&port=80")
    assert status == refused.status == 422
    for each in (answer, refused.refused):
        assert each["problems"][0]["message"] == "it has one node only and is no array"


# -- connect ------------------------------------------------------------------------------------------------------


def test_a_connection_carries_bytes_both_ways_and_its_end(module_server, echo):
    ref, port = echo
    talking = talk(module_server, f"/v1/workloads/{ref}/connect?port={port}")
    sent = os.urandom(100_000)
    talking.say(0, sent)
    talking.say(255, b"\0")
    result, came, wrong = talking.result()
    assert (result, came, wrong) == ({"exit_code": 0}, sent + b"heard 100000", b"")


def test_who_connected_is_kept_once_for_all_that_are_open_together(module_server):
    ref, port = echoing(module_server, "noted")
    talks = [talk(module_server, f"/v1/workloads/{ref}/connect?port={port}") for _ in range(3)]
    for talking in talks:
        talking.say(255, b"\0")
        assert talking.result()[0] == {"exit_code": 0}
    _, page = module_server.request("GET", "/v1/audit?name=noted")
    entries = [(entry["verb"], entry["id"], entry["detail"]) for entry in page["items"] if entry["verb"] == "exec"]
    assert entries == [("exec", ref, f"port {port}")]


def test_where_nothing_of_the_job_listens_the_answer_is_409(module_server, echo):
    port = module_server.address.rpartition(":")[2]
    refused = talk(module_server, f"/v1/workloads/echo/connect?port={port}")
    assert refused.status == 409
    assert refused.refused["message"] == f"echo ({echo[0]}): Nothing of it listens on port {port} of 127.0.0.1."


def test_a_plain_request_hears_that_it_must_be_a_websocket(module_server, echo):
    status, answer = module_server.request("GET", "/v1/workloads/echo/connect?port=80")
    assert (status, answer["message"]) == (400, "This address speaks WebSocket.")


@pytest.mark.parametrize("port", ["0", "65536", "http", ""])
def test_what_is_no_port_is_refused(module_server, echo, port):
    refused = talk(module_server, f"/v1/workloads/echo/connect?port={port}")
    assert refused.status == 422
    assert refused.refused["problems"][0]["field"] == "port"


def test_to_others_it_is_not_there(module_server, echo):
    ref, port = echo
    stranger = token(module_server, "mallory")
    for route in ("inspect", "top"):
        status, answer = module_server.tcp("GET", f"/v1/workloads/{ref}/{route}", headers=stranger)
        assert (status, answer["message"]) == (404, f"Task {ref} not found")
    refused = talk_tcp(module_server, f"/v1/workloads/{ref}/connect?port={port}", stranger)
    assert (refused.status, refused.refused["message"]) == (404, f"Task {ref} not found")


def test_a_server_that_stops_ends_connections_and_says_so(server):
    ref, port = echoing(server)
    talking = talk(server, f"/v1/workloads/{ref}/connect?port={port}")
    talking.say(0, b"x")
    assert talking.hear() == (1, b"x")
    server.process.terminate()
    result, _, _ = talking.result()
    assert result["error"]["message"] == "The server is stopping, and the connection was ended with it."
    server.process.wait(60)
    again = start_server(server.place)
    try:
        talking = talk(again, f"/v1/workloads/{ref}/connect?port={port}")
        talking.say(0, b"y")
        assert talking.hear() == (1, b"y")
        talking.close()
    finally:
        again.end()


# -- GPUs ---------------------------------------------------------------------------------------------------------


class Busy:
    """What the fake GPUs do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()

    def says(self, *lines: str) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self.path)


@pytest.fixture
def busy(place: Path) -> Busy:
    return Busy(place / "busy")


@pytest.fixture
def with_gpus(place: Path, busy: Busy, compiled_fake: Callable[[str, str], Path]) -> Iterator[RunningServer]:
    library = compiled_fake("nvml.c", "libnvidia-ml.so.1")
    environ = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": "NVIDIA A10,NVIDIA A10"}
    environ["FAKE_NVML_BUSY"] = str(busy.path)
    running = start_server(place, environ=environ, cpus="8", memory="8Gi", gpu_lock_dir=str(place / "locks"))
    yield running
    running.end()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A program that no server of ours started."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def gpus_of(server: RunningServer, path: str = "/v1/nodes", headers: dict[str, str] | None = None) -> list[Any]:
    status, page = server.tcp("GET", path, headers=headers) if headers else server.request("GET", path)
    assert status == 200, page
    [node] = page["items"]
    return list(node["gpus"])


def test_memory_processes_and_use_of_gpus_are_shown(with_gpus, busy, stranger):
    busy.says(f"1 {5 << 30} 87 {stranger.pid}")
    first, second = gpus_of(with_gpus)
    assert (first["memory_used_bytes"], first["processes"], first["taken"]) == (0, [], False)
    assert second["memory_used_bytes"] == 5 << 30
    assert second["processes"] == [{"pid": stranger.pid, "memory_bytes": 5 << 30, "name": "sleep"}]
    assert second["taken"]
    measured = gpus_of(with_gpus, "/v1/nodes/top")
    assert [(gpu["uuid"][-1], gpu["utilization"]) for gpu in measured] == [("0", 0), ("1", 87)]
    _, pools = with_gpus.request("GET", "/v1/gpus")
    [pool] = pools["items"]
    assert (pool["taken"], pool["free"]) == (1, 1)
    assert pool["holders"] == [{"user": None, "what": "not of Penstock", "workload": None, "count": 1}]
    for words in (("get", "gpu", "-o", "wide"), ("describe", "gpu", second["uuid"])):
        command = [str(Path(sys.executable).parent / "pwmcli"), *words]
        shown = subprocess.run(command, env=with_gpus.environ, capture_output=True, text=True).stdout
        assert f"outside Penstock: sleep ({stranger.pid}, 5120 MiB)" in shown


def test_a_refusal_counts_a_gpu_that_others_use_as_taken(with_gpus, busy, stranger):
    busy.says(f"0 {1 << 30} 9 {stranger.pid}")
    status, refused = with_gpus.request("POST", "/v1/workloads", {"text": "resources: {accelerators: A10:3}\nrun: a\n"})
    assert status == 422
    assert refused["problems"][0]["message"].endswith("has 2 × NVIDIA A10 (1 free)")


def test_a_gpu_that_others_use_is_given_to_nobody_until_they_have_gone(with_gpus, busy, stranger):
    busy.says(f"0 {1 << 30} 9 {stranger.pid}")
    both = with_gpus.submit("name: both\nresources: {cpus: 1, accelerators: 'A10:2'}\nrun: sleep 600\n")
    waiting = until(with_gpus, both["id"], lambda found: found["message"] is not None)
    why = f"used by programs that Penstock did not start (sleep, process {stranger.pid})"
    assert waiting["message"] == f"needs 2 A10 GPUs; 1 of 2 are free, 1 {why}"
    with_gpus.request("POST", f"/v1/workloads/{both['id']}/stop")
    one = with_gpus.submit("name: one\nresources: {cpus: 1, accelerators: 'A10:1'}\nrun: sleep 600\n")
    until(with_gpus, one["id"], lambda found: found["state"] == "RUNNING")
    other = with_gpus.submit("name: other\nresources: {cpus: 1, accelerators: 'A10:1'}\nrun: sleep 600\n")
    until(with_gpus, other["id"], lambda found: found["message"] is not None)
    busy.says()
    until(with_gpus, other["id"], lambda found: found["state"] == "RUNNING")
    assert {gpu["workload"] for gpu in gpus_of(with_gpus)} == {one["id"], other["id"]}


def test_of_a_workload_its_own_gpus_are_shown_and_to_others_only_how_many(with_gpus, busy):
    job = with_gpus.submit("name: train\nresources: {cpus: 1, accelerators: 'A10:1'}\nrun: sleep 600\n")
    until(with_gpus, job["id"], lambda found: found["state"] == "RUNNING")
    [held] = [gpu["uuid"] for gpu in gpus_of(with_gpus) if gpu["workload"] == job["id"]]
    _, answer = with_gpus.request("GET", "/v1/workloads/train/top")
    pid = next(process["pid"] for process in answer["processes"] if process["command"] == "sleep 600")
    busy.says(f"{held[-1]} {2 << 30} 44 {pid}")
    _, answer = with_gpus.request("GET", "/v1/workloads/train/top")
    [gpu] = answer["gpus"]
    assert (gpu["uuid"], gpu["product"], gpu["utilization"]) == (held, "NVIDIA A10", 44)
    assert (gpu["memory_used_bytes"], gpu["memory_bytes"]) == (2 << 30, 24 << 30)
    for path in ("/v1/nodes", "/v1/nodes/top"):
        [theirs] = [gpu for gpu in gpus_of(with_gpus, path, token(with_gpus, "bob")) if gpu["uuid"] == held]
        assert theirs["processes"] == [{"pid": pid, "memory_bytes": 2 << 30, "name": ""}]
