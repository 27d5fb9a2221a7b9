"""GPUs that do nothing: told to their owner, stopped where the group says so, and what they do is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running import RunningServer, start_server
from tests.server.test_attempts import until
from tests.server.test_inspect import Busy, busy
from tests.server.test_notifications import SECRET, Listener, listener

__all__ = ["busy", "listener"]

TASK = "name: {name}\nresources: {{cpus: 1, accelerators: 'A10:1'}}\nrun: sleep 600\n"
IDLE_SOON = TASK + "idle_timeout: 1s\n"

Start = Callable[[], RunningServer]


@pytest.fixture
def start(place: Path, busy: Busy, listener: Listener, compiled_fake: Callable[[str, str], Path]) -> Iterator[Start]:
    """Starts a server on a machine with two GPUs; a second one in the place of the first."""
    library = compiled_fake("nvml.c", "libnvidia-ml.so.1")
    environ = {
        "LD_LIBRARY_PATH": str(library.parent),
        "FAKE_NVML": "NVIDIA A10,NVIDIA A10",
        "FAKE_NVML_BUSY": str(busy.path),
        "PENSTOCK_WEBHOOKS": f"{listener.address}/hooks",
        "PENSTOCK_WEBHOOK_SECRET": SECRET,
    }
    started: list[RunningServer] = []

    def begin() -> RunningServer:
        settings = {"cpus": "8", "memory": "8Gi", "gpu_lock_dir": str(place / "locks"), "gpu_sample": "1s"}
        started.append(start_server(place, environ, **settings))
        return started[-1]

    yield begin
    started[-1].end()


@pytest.fixture
def with_gpus(start: Start) -> RunningServer:
    return start()


def is_idle(workload: dict[str, Any]) -> bool:
    return bool(workload["reason"] == "GPUS_IDLE")


def idle_lines(workload: dict[str, Any]) -> list[str]:
    return [line["message"] for line in workload["history"] if line["reason"] == "GPUS_IDLE"]


def has_gpu(server: RunningServer, ref: str) -> str:
    """The number of the one it has."""
    until(server, ref, lambda found: found["state"] == "RUNNING")
    _, nodes = server.request("GET", "/v1/nodes")
    [held] = [gpu["uuid"] for node in nodes["items"] for gpu in node["gpus"] if gpu["workload"] == ref]
    return str(held[-1])


def used(server: RunningServer) -> dict[str, Any]:
    status, report = server.request("GET", "/v1/usage")
    assert status == 200, report
    [row] = report["items"]
    return dict(row)


def test_the_owner_of_an_idle_gpu_is_told_and_what_works_again_is_not_idle_any_more(with_gpus, busy, listener):
    hook = f"{listener.address}/hooks/mine"
    job = with_gpus.submit(IDLE_SOON.format(name="train") + f"notify: {{'{hook}': [CRASHED]}}\n")
    idle = until(with_gpus, job["id"], is_idle)
    assert idle["state"] == "RUNNING"
    assert idle["message"].startswith("its GPU has done nothing for ")
    assert idle["message"].endswith("(idle_timeout is 1s)")
    assert idle_lines(idle) == [idle["message"]]
    path, _, told = listener.next()
    assert (path, told["id"], told["state"], told["reason"]) == ("/hooks/mine", job["id"], "RUNNING", "GPUS_IDLE")
    assert told["message"] == idle["message"]
    busy.says(f"{has_gpu(with_gpus, job['id'])} {1 << 30} 87")
    again = until(with_gpus, job["id"], lambda found: found["reason"] == "STARTED")
    assert again["history"][-1]["message"] == "its GPUs work again"
    assert listener.heard.empty()


def test_what_is_not_known_is_never_called_idle(with_gpus, busy):
    busy.says(f"0 {1 << 30} ?", f"1 {1 << 30} ?")
    hidden = with_gpus.submit(IDLE_SOON.format(name="hidden"))
    number = has_gpu(with_gpus, hidden["id"])
    busy.says(f"{number} {1 << 30} ?")
    seen = with_gpus.submit(IDLE_SOON.format(name="seen"))
    until(with_gpus, seen["id"], is_idle)
    _, found = with_gpus.request("GET", f"/v1/workloads/{hidden['id']}")
    assert (found["reason"], idle_lines(found)) == ("STARTED", [])


def test_one_that_says_no_timeout_and_whose_group_says_none_may_be_idle(with_gpus):
    first = with_gpus.submit(TASK.format(name="notebook"))
    second = with_gpus.submit(IDLE_SOON.format(name="train"))
    until(with_gpus, second["id"], is_idle)
    _, found = with_gpus.request("GET", f"/v1/workloads/{first['id']}")
    assert (found["state"], idle_lines(found)) == ("RUNNING", [])


def test_an_idle_one_is_reported_once_however_often_the_server_starts(start):
    server = start()
    job = server.submit(IDLE_SOON.format(name="first"))
    until(server, job["id"], is_idle)
    server.kill()
    server = start()
    other = server.submit(IDLE_SOON.format(name="second"))
    until(server, other["id"], is_idle)
    _, found = server.request("GET", f"/v1/workloads/{job['id']}")
    assert (found["state"], len(idle_lines(found))) == ("RUNNING", 1)
    assert found["message"] == idle_lines(found)[0]


def test_a_group_may_have_idle_ones_stopped(with_gpus):
    status, first = with_gpus.request("POST", "/v1/adm/init", {})
    assert status == 201, first
    me = first["user"]
    group = {"name": me, "idle_timeout": 1, "stop_idle": True}
    assert with_gpus.request("PUT", f"/v1/groups/{me}", group)[0] == 200
    job = with_gpus.submit(TASK.format(name="forgotten"))
    ended = with_gpus.ended(job["id"])
    assert (ended["state"], ended["status"], ended["reason"]) == ("STOPPED", "stopped", "GPUS_IDLE")
    assert "done nothing for" in ended["message"]
    assert ended["message"].endswith(f"(idle_timeout is 1s); its group {me} stops such workloads")
    _, audit = with_gpus.request("GET", "/v1/audit?name=forgotten")
    stop = next(entry for entry in audit["items"] if entry["verb"] == "stop")
    assert (stop["user"], stop["kind"], stop["id"]) == ("(penstock)", "Workload", job["id"])
    assert stop["detail"] == ended["message"]


def test_what_gpus_do_is_counted(with_gpus, busy):
    busy.says("0 0 50", "1 0 50")
    job = with_gpus.submit(TASK.format(name="half"))
    has_gpu(with_gpus, job["id"])
    until(with_gpus, job["id"], lambda _: used(with_gpus)["gpu_hours_measured"] > 0)
    row = used(with_gpus)
    assert row["gpu_hours_used"] == pytest.approx(row["gpu_hours_measured"] / 2, abs=0.0002)
    assert row["gpu_hours_measured"] <= row["gpu_hours"]
    with_gpus.request("POST", f"/v1/workloads/{job['id']}/stop")
    with_gpus.ended(job["id"])
    with_gpus.request("DELETE", f"/v1/workloads/{job['id']}")
    kept = used(with_gpus)
    assert kept["workloads"] == 1
    assert kept["gpu_hours"] >= row["gpu_hours"]
    assert kept["peak_memory_bytes"] is None or kept["peak_memory_bytes"] > 0
