"""Stop, while the Docker host of a workload does not answer: what is true is said, and it is stopped when it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.docker.test_jobs import leave_nothing, penstock, until
from tests.e2e.docker.test_states import begun, cut_off, submitted
from tests.hosts.lot import Hosts
from tests.running import RunningServer

LATER = "it is told to stop as soon as its node answers"


@pytest.fixture
def server(place: Path, hosts: Hosts) -> Iterator[RunningServer]:
    """Its host is reached over the network, which can be cut."""
    machine = hosts.hosts[0]
    server = begun(place, machine.tcp, docker_tls_dir=str(hosts.keys.client), stop_grace="4s")
    yield server
    leave_nothing(server, machine)
    machine.clean()


def test_what_cannot_be_told_now_says_so_and_is_told_later(server: RunningServer, hosts: Hosts) -> None:
    look = submitted(server, then="trap 'echo told' TERM; while :; do sleep 0.2; done")
    until(lambda: look()["state"] == "RUNNING")
    with cut_off(hosts.hosts[0]):
        until(lambda: look()["state"] == "UNKNOWN")
        [row] = penstock(server, "get", "wk", "states").stdout.splitlines()[2:]
        assert row.split()[6:10:3] == ["lab-1", "UNKNOWN"]
        assert row.split()[8] == "true"
        server.request("POST", f"/v1/workloads/{look()['id']}/stop")
        until(lambda: LATER in (look()["message"] or ""))
        assert (look()["state"], look()["reason"]) == ("REQUESTED_CANCEL", "STOPPED_BY_USER")
        assert look()["message"].startswith("Docker on lab-1 ")
        refused = penstock(server, "delete", "wk", "states", "--force")
        assert refused.returncode == 6
        assert "was asked to stop (Docker on lab-1 " in refused.stderr
        assert f"{LATER}) and has not ended yet." in refused.stderr
    until(lambda: LATER not in (look()["message"] or ""))
    done = server.ended(look()["id"])
    assert (done["state"], done["reason"], done["message"]) == ("STOPPED", "STOPPED_BY_USER", None)
    stops = [line["message"] for line in done["history"] if line["state"] == "REQUESTED_CANCEL"]
    assert stops == [f"by {done['user']}"]


def test_what_is_being_stopped_is_said_to_be_when_someone_deletes_it(server: RunningServer) -> None:
    look = submitted(server, then="trap 'echo told' TERM; while :; do sleep 0.2; done")
    until(lambda: look()["state"] == "RUNNING")
    server.request("POST", f"/v1/workloads/{look()['id']}/stop")
    status, refused = server.request("DELETE", f"/v1/workloads/{look()['id']}")
    assert (status, refused["hint"]) == (409, f"penstock jobs wait {look()['id']}")
    assert f"was asked to stop (by {look()['user']}) and has not ended yet." in refused["detail"]
