"""What a workload goes through on a Docker host, as a person sees it: pulled, in doubt and back, given up."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.names import new_id
from tests.e2e.docker.test_jobs import NODE, PATIENCE, applied, items, leave_nothing, penstock, until
from tests.hosts.host import Host
from tests.hosts.lot import Hosts
from tests.running import RunningServer, start_server

TASK = """name: states
resources: {{image_id: "{image}", cpus: "0.1"}}
run: [sh, -c, "echo ran >>/data/times; cat /data/times; {then}"]
volumes: {{/data: kept}}
"""
SWEEP = """name: sweep
resources: {image_id: "busybox:1", cpus: "0.1"}
array: {count: 2, parallelism: 2}
requeue: 1
run: [sh, -c, "echo ran >>/data/times; test $(wc -l </data/times) = 3 || sleep ${JOB_COMPLETION_INDEX}01"]
volumes: {/data: kept}
"""
"""Its second index is still at it when its first has completed, and completes when it runs again."""


@pytest.fixture
def server(place: Path, hosts: Hosts) -> Iterator[RunningServer]:
    """Its first host is reached over the network, which can be cut."""
    machine = hosts.hosts[0]
    server = begun(place, machine.tcp, docker_tls_dir=str(hosts.keys.client))
    yield server
    if server.process.poll() is None:
        leave_nothing(server, machine)
    machine.clean()


def begun(place: Path, address: str, **settings: str) -> RunningServer:
    server = start_server(place, engine="docker", **settings)
    applied(server, NODE.format(name="lab-1", address=address))
    until(lambda: any(node["ready"] for node in items(server, "/v1/nodes")))
    assert server.request("POST", "/v1/volumes", {"name": "kept", "size": "1Gi"})[0] == 201
    return server


def submitted(server: RunningServer, image: str = "busybox:1", then: str = "true") -> Callable[[], dict[str, Any]]:
    """How to look at it."""
    made = server.submit(TASK.format(image=image, then=then))
    return lambda: dict(server.request("GET", f"/v1/workloads/{made['id']}")[1])


def states(workload: dict[str, Any]) -> list[str]:
    return [line["state"] for line in workload["history"] if line["state"] != "QUEUED"]


@contextmanager
def cut_off(machine: Host) -> Iterator[None]:
    machine.cut()
    try:
        yield
    finally:
        machine.mend()


def started(machine: Host, workload: dict[str, Any]) -> list[str]:
    """When each of its containers was."""
    found = machine.docker("ps", "-aq", "--filter", f"label=penstock.dev/workload={workload['id']}").split()
    return machine.docker("inspect", "-f", "{{.State.StartedAt}}", *found).split() if found else []


@contextmanager
def showing(server: RunningServer, output: Path) -> Iterator[Callable[..., None]]:
    """Returns once `get wk -w` has printed lines with these states, in this order."""
    command = [sys.executable, "-m", "penstock.cli", "get", "wk", "-w"]
    with output.open("wb") as file:
        process = subprocess.Popen(command, env=server.environ, stdout=file)

    def shown(*states: str) -> None:
        until(lambda: re.search(".*".join(f" {state} " for state in states), output.read_text(), re.DOTALL))

    try:
        yield shown
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)


def test_every_step_of_one_whose_image_must_be_pulled_is_in_its_history(server: RunningServer, hosts: Hosts) -> None:
    image = hosts.push("busybox:1", f"team/{new_id()}:1")
    look = submitted(server, image)
    done = server.ended(look()["id"])
    assert states(look()) == [
        "INSERTED",
        "ASSIGNED",
        "PULLING",
        "REQUESTED_PULLING",
        "LAUNCHING",
        "REQUESTED_LAUNCH",
        "LAUNCHED",
        "RUNNING",
        "EXITED",
    ]
    assert done["exit_code"] == 0
    pulling = next(line for line in look()["history"] if line["state"] == "PULLING")
    assert pulling["message"] == f"lab-1 asks {hosts.registry.address} for {image}"
    again = submitted(server, image)
    server.ended(again()["id"])
    assert states(again())[1:5] == ["ASSIGNED", "LAUNCHING", "REQUESTED_LAUNCH", "LAUNCHED"]
    leave_nothing(server, hosts.hosts[0])
    hosts.hosts[0].docker("rmi", "-f", image)


def test_while_its_host_is_cut_off_it_is_in_doubt_and_afterwards_it_runs_as_before(
    place: Path, server: RunningServer, hosts: Hosts
) -> None:
    machine = hosts.hosts[0]
    look = submitted(server, then="sleep 600")
    until(lambda: look()["state"] == "RUNNING")
    before = started(machine, look())
    with showing(server, place / "shown") as shown, cut_off(machine):
        until(lambda: look()["state"] == "UNKNOWN")
        found = look()
        assert (found["status"], found["reason"], found["ended_at"]) == ("unknown", "NODE_LOST", None)
        assert "Docker on lab-1" in found["message"]
        assert "asked again" in found["message"]
        shown("RUNNING", "UNKNOWN")
        assert server.request("DELETE", f"/v1/workloads/{found['id']}")[0] == 409
        waited = penstock(server, "jobs", "wait", "states", "--timeout", "1s")
        assert (waited.returncode, "is still unknown after 1s" in waited.stderr) == (1, True)
        server.kill()
        again = start_server(place, server.environ)
        server.process, server.socket = again.process, again.socket
        until(lambda: look()["state"] == "UNKNOWN" and "asked again" in look()["message"])
        assert states(look()).count("UNKNOWN") == 1
        machine.mend()
        shown("RUNNING", "UNKNOWN", "RUNNING")
    assert states(look())[-3:] == ["RUNNING", "UNKNOWN", "RUNNING"]
    assert look()["history"][-1]["message"] == "its node answers again"
    assert started(machine, look()) == before
    assert server.request("GET", f"/v1/workloads/{look()['id']}/logs?follow=false")[1] == "ran\n"


def test_one_that_cannot_be_launched_is_stuck_after_the_attempts_of_the_settings(
    place: Path, own_hosts: Callable[..., Hosts]
) -> None:
    """Docker's own network takes all addresses there are."""
    pools = [{"base": "10.77.0.0/24", "size": 24}]
    machine = own_hosts(number=1, config={"default-address-pools": pools}).hosts[0]
    server = begun(place, machine.unix, launch_attempts="2", launch_pause="1s")
    look = submitted(server)
    done = server.ended(look()["id"])
    assert (done["state"], done["status"], done["reason"]) == ("STUCK", "failed", "LAUNCH_FAILED")
    assert done["message"].startswith("It could not be launched in 2 attempts. Docker on lab-1: could not find")
    tries = [line["message"] for line in look()["history"] if line["reason"] == "LAUNCH_FAILED"]
    assert any("Attempt 2 follows." in said for said in tries)
    leave_nothing(server, machine)


def test_an_index_that_completed_stays_so_when_docker_and_the_server_were_killed(
    place: Path, own_hosts: Callable[..., Hosts]
) -> None:
    """Its program has left no note, and Docker has forgotten how it ended: it is in the records."""
    machine = own_hosts(number=1).hosts[0]
    server = begun(place, machine.unix)
    made = server.submit(SWEEP)

    def shown() -> list[tuple[int, str]]:
        found = server.request("GET", f"/v1/workloads/{made['id']}")[1]
        return [(unit["attempt"], unit["state"]) for unit in found["units"]]

    until(lambda: shown() == [(1, "EXITED"), (1, "RUNNING")])
    server.kill()
    machine.kill()
    machine.start()
    server = start_server(place, engine="docker")
    assert server.ended(made["id"])["state"] == "EXITED"
    assert shown() == [(1, "EXITED"), (2, "EXITED")]
    leave_nothing(server, machine)


def test_the_servers_number_of_requeues_is_for_what_says_none(place: Path, own_hosts: Callable[..., Hosts]) -> None:
    machine = own_hosts(number=1).hosts[0]
    server = begun(place, machine.unix, default_requeue="1")
    plain = TASK.format(image="busybox:1", then="[ $PENSTOCK_ATTEMPT = 2 ] || sleep 600")
    given, own = server.submit(plain), server.submit(plain.replace("states", "once") + "requeue: 0\n")
    for made in (given, own):
        until(lambda made=made: server.request("GET", f"/v1/workloads/{made['id']}")[1]["state"] == "RUNNING")
    assert "Requeue:" in penstock(server, "jobs", "status", "states").stdout
    machine.kill()
    machine.start()
    done, failed = server.ended(given["id"]), server.ended(own["id"])
    assert (done["status"], done["attempt"]) == ("completed", 2)
    assert "attempt 2 of 2: " in next(line["message"] for line in done["history"] if line["reason"] == "REQUEUED")
    assert (failed["status"], failed["reason"], failed["attempt"]) == ("failed", "NODE_LOST", 1)
    leave_nothing(server, machine)
