"""A Docker host that is reached by ssh, whose connections end while nobody uses them: nobody notices."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.docker.test_jobs import NODE, applied, items, leave_nothing, penstock, until
from tests.engines.docker.engines import by_ssh
from tests.hosts.lot import Hosts
from tests.running import RunningServer, start_server

STUBBORN = """name: stubborn
resources: {image_id: "busybox:1", cpus: "0.1"}
run: [sh, -c, "trap 'echo told' TERM; echo up; while :; do sleep 0.2; done"]
"""
QUICK = """name: quick
resources: {image_id: "busybox:1", cpus: "0.1"}
run: [sh, -c, "echo ran"]
"""


@pytest.fixture
def server(place: Path, hosts: Hosts) -> Iterator[RunningServer]:
    machine = hosts.hosts[0]
    server = start_server(place, engine="docker", docker_ssh_config=str(hosts.keys.config), stop_grace="3s")
    applied(server, NODE.format(name="lab-1", address=machine.ssh))
    until(lambda: any(node["ready"] for node in items(server, "/v1/nodes")))
    yield server
    leave_nothing(server, machine)
    machine.clean()


def connections(server: RunningServer) -> list[int]:
    """Oldest first: the second is where the server hears what happens."""
    return by_ssh(server.process.pid)


def lose(server: RunningServer, lost: Sequence[int]) -> None:
    for pid in lost:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not {*lost} & {*connections(server)})


def running(server: RunningServer) -> tuple[dict[str, Any], Callable[[], None]]:
    """A job, and what ends the connections that nobody uses now, as a firewall does that has seen nothing pass."""
    _, listening, *_ = connections(server)
    made = server.submit(STUBBORN)
    until(lambda: server.request("GET", f"/v1/workloads/{made['id']}")[1]["state"] == "RUNNING")
    return made, lambda: lose(server, [pid for pid in connections(server) if pid != listening])


def said(server: RunningServer, made: dict[str, Any]) -> str:
    return str(server.request("GET", f"/v1/workloads/{made['id']}/logs")[1])


def no_defect(server: RunningServer) -> None:
    log = (server.place / "server.log").read_text()
    assert "a defect" not in log, log
    assert "Traceback" not in log, log


def test_what_is_told_to_stop_is_killed_when_its_time_is_up(server: RunningServer) -> None:
    made, lose_idle = running(server)
    lose_idle()
    server.request("POST", f"/v1/workloads/{made['id']}/stop")
    until(lambda: "told" in said(server, made))
    lose_idle()
    assert server.ended(made["id"])["state"] == "STOPPED"
    no_defect(server)


def test_the_next_job_is_started_and_looked_at_and_entered(server: RunningServer) -> None:
    made, lose_idle = running(server)
    lose_idle()
    inspected = penstock(server, "inspect", "wk", made["id"])
    assert (inspected.returncode, made["id"] in inspected.stdout) == (0, True), inspected
    lose_idle()
    entered = penstock(server, "exec", made["id"], "--", "echo", "hi")
    assert (entered.returncode, entered.stdout, entered.stderr) == (0, "hi\n", "")
    lose_idle()
    assert server.ended(server.submit(QUICK)["id"])["state"] == "EXITED"
    no_defect(server)


def test_all_of_them_are_made_anew_when_all_were_lost(server: RunningServer) -> None:
    made, _ = running(server)
    lose(server, connections(server))
    assert server.ended(server.submit(QUICK)["id"])["state"] == "EXITED"
    server.request("POST", f"/v1/workloads/{made['id']}/stop")
    assert server.ended(made["id"])["state"] == "STOPPED"
    no_defect(server)
