"""A registry that does not answer a Docker host: what its jobs say meanwhile, and who has the CPUs they would have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.names import new_id
from tests.e2e.docker.test_jobs import NODE, applied, items, leave_nothing, until
from tests.hosts.host import Host
from tests.hosts.lot import Hosts
from tests.running import RunningServer, start_server

TASK = "name: {name}\nresources: {{image_id: '{image}', cpus: {cpus}}}\nrun: [echo, ran]\n"


@pytest.fixture
def server(place: Path, hosts: Hosts) -> Iterator[RunningServer]:
    first = hosts.hosts[0]
    server = begun(place, first, pull_patience="10m")
    yield server
    leave_nothing(server, first)
    first.clean()


def begun(place: Path, machine: Host, **settings: str) -> RunningServer:
    server = start_server(place, engine="docker", **settings)
    applied(server, NODE.format(name="lab-1", address=machine.unix))
    until(lambda: any(node["ready"] for node in items(server, "/v1/nodes")))
    return server


@contextmanager
def dropping(machine: Host, registry: str) -> Iterator[None]:
    """Whatever the host sends to the registry is lost on the way."""
    address, port = registry.split(":")
    rule = ("OUTPUT", "--destination", address, "--protocol", "tcp", "--dport", port, "--jump", "DROP")
    machine.processes.run("iptables", "--insert", *rule)
    try:
        yield
    finally:
        machine.processes.run("iptables", "--delete", *rule, check=False)


def submitted(server: RunningServer, name: str, image: str, cpus: str) -> str:
    return str(server.submit(TASK.format(name=name, image=image, cpus=cpus))["id"])


def seen(server: RunningServer, id_: str) -> dict[str, Any]:
    return dict(server.request("GET", f"/v1/workloads/{id_}")[1])


def waits_for_its_registry(server: RunningServer, id_: str) -> bool:
    found = seen(server, id_)
    assert not found["ended_at"], found
    return (found["state"], found["reason"]) == ("QUEUED", "PULLING_IMAGE")


def test_while_a_registry_does_not_answer_the_job_says_so_and_another_has_its_cpus(
    server: RunningServer, hosts: Hosts
) -> None:
    machine, registry = hosts.hosts[0], hosts.registry.address
    image = hosts.push("busybox:1", f"team/{new_id()}:1")
    [node] = items(server, "/v1/nodes")
    with dropping(machine, registry):
        waits = submitted(server, "waits", image, node["cpus"])
        until(lambda: waits_for_its_registry(server, waits))
        found = seen(server, waits)
        said = f"The image {image} cannot be pulled: the registry {registry} does not answer lab-1"
        assert found["message"].startswith(said)
        assert "asked again every few seconds for 10m" in found["message"]
        assert "other jobs can have its place" in found["message"]
        assert f"docker pull {image}" in found["message"]
        assert found["hosts"] == []
        lines = [(line["state"], line["message"]) for line in found["history"]]
        assert ("PULLING", f"lab-1 asks {registry} for {image}") in lines
        assert not any("Docker on lab-1 does not answer" in (text or "") for _, text in lines)
        other = submitted(server, "other", "busybox:1", node["cpus"])
        assert server.ended(other)["state"] == "EXITED"
        assert not seen(server, waits)["ended_at"]
    done = server.ended(waits)
    assert (done["state"], done["attempt"]) == ("EXITED", 1)
    machine.docker("rmi", "-f", image)


def test_a_job_that_waits_for_its_registry_can_be_stopped_and_waits_on_with_another_server(
    place: Path, server: RunningServer, hosts: Hosts
) -> None:
    machine, registry = hosts.hosts[0], hosts.registry.address
    with dropping(machine, registry):
        waits = submitted(server, "waits", f"{registry}/team/{new_id()}:1", "0.1")
        until(lambda: waits_for_its_registry(server, waits))
        server.kill()
        again = start_server(place, server.environ)
        server.process, server.socket = again.process, again.socket
        until(lambda: len([line for line in seen(server, waits)["history"] if line["state"] == "PULLING"]) > 1)
        until(lambda: waits_for_its_registry(server, waits))
        assert server.request("POST", f"/v1/workloads/{waits}/stop")[0] in (200, 202)
        assert server.ended(waits)["state"] == "STOPPED"
        assert server.request("DELETE", f"/v1/workloads/{waits}")[0] in (200, 202, 204)


def test_a_registry_that_never_answers_ends_the_job_after_pull_patience(place: Path, hosts: Hosts) -> None:
    machine, registry = hosts.hosts[0], hosts.registry.address
    server = begun(place, machine, pull_patience="1s")
    with dropping(machine, registry):
        done = server.ended(submitted(server, "fails", f"{registry}/team/none:1", "0.1"))
    assert (done["state"], done["reason"]) == ("CRASHED", "PULL_FAILED")
    assert f"the registry {registry} does not answer lab-1" in done["message"]
    leave_nothing(server, machine)
