"""A job fills the disk of a Docker host: what is said, what still works, and how it is cleared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.docker.test_jobs import items, leave_nothing, penstock, until
from tests.e2e.docker.test_states import begun
from tests.hosts.host import Host
from tests.hosts.lot import Hosts
from tests.running import RunningServer

FILLS = """name: fills
resources: {image_id: "busybox:1", cpus: "0.1"}
run: [sh, -c, "dd if=/dev/zero of=/data/big bs=64k; echo it ended with $?; exit 3"]
volumes: {/data: kept}
"""
RUNS = """name: {name}
resources: {{image_id: "busybox:1", cpus: "0.1"}}
run: [sh, -c, "trap 'exit 0' TERM; sleep {seconds} & wait"]
"""


@pytest.fixture
def machine(own_hosts: Callable[..., Hosts]) -> Host:
    """Its disk is small."""
    return own_hosts(number=1, disk_mb=300).hosts[0]


@pytest.fixture
def server(place: Path, machine: Host) -> Iterator[RunningServer]:
    server = begun(place, machine.unix, launch_attempts="2", launch_pause="1s")
    yield server
    machine.empty()
    leave_nothing(server, machine)


def submitted(server: RunningServer, name: str, seconds: int = 0) -> str:
    return str(server.submit(RUNS.format(name=name, seconds=seconds))["id"])


def seen(server: RunningServer, id_: str) -> dict[str, Any]:
    return dict(server.request("GET", f"/v1/workloads/{id_}")[1])


def test_what_a_job_filled_is_told_and_cleared_with_the_usual_commands(server: RunningServer) -> None:
    runs = submitted(server, "runs", 600)
    until(lambda: seen(server, runs)["state"] == "RUNNING")
    fills = server.submit(FILLS)["id"]
    done = server.ended(fills)
    assert (done["state"], done["reason"], done["exit_code"]) == ("CRASHED", "PROGRAM_FAILED", 3)

    until(lambda: "has a full disk" in (items(server, "/v1/nodes")[0]["message"] or ""))
    waits = submitted(server, "waits")
    until(lambda: "lab-1 has a full disk (" in (seen(server, waits)["message"] or ""))
    found = seen(server, waits)
    assert (found["state"], found["reason"]) == ("QUEUED", "NO_AVAILABLE_RESOURCES")
    assert "free): nothing new starts there until room is made (penstock volumes df; " in found["message"]
    doctor = penstock(server, "doctor")
    assert doctor.returncode == 1
    assert "lab-1 has a full disk" in doctor.stdout
    [volume] = items(server, "/v1/volumes?usage=true")
    assert volume["used_bytes"] > 100 << 20
    assert volume["free_bytes"] < 15 << 20
    shown = penstock(server, "volumes", "df")
    assert "Disk free" in shown.stdout
    assert shown.returncode == 0, shown.stderr

    assert penstock(server, "jobs", "stop", runs).returncode == 0
    assert server.ended(runs)["state"] == "STOPPED"
    for job in (runs, fills):
        deleted = penstock(server, "jobs", "delete", job, "--force")
        assert deleted.returncode == 0, deleted.stderr
    deleted = penstock(server, "volumes", "delete", "kept", "--force")
    assert deleted.returncode == 0, deleted.stderr
    assert server.ended(waits)["state"] == "EXITED"
    assert items(server, "/v1/nodes")[0]["message"] is None


def test_a_job_that_finds_no_room_gives_its_place_back_and_starts_when_there_is_some(
    server: RunningServer, machine: Host
) -> None:
    machine.fill()
    waits = submitted(server, "waits")
    until(lambda: "lab-1 has a full disk" in (seen(server, waits)["message"] or ""))
    assert seen(server, waits)["hosts"] == []
    assert seen(server, waits)["state"] == "QUEUED"
    [volume] = items(server, "/v1/volumes?usage=true")
    assert (volume["used_bytes"], volume["free_bytes"]) == (0, 0)
    machine.empty()
    assert server.ended(waits)["state"] == "EXITED"
