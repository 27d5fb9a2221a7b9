"""What a Docker host does as a whole, as far as a container without any of the host's namespaces sees it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.nodes import NO_NETWORK, read_activity
from tests.engines.contract.exec import running, told
from tests.engines.contract.inspect import BUSY
from tests.engines.docker.engines import IMAGE, answering, opened, settings_for
from tests.engines.docker.stopped_helper import HELPER, held
from tests.engines.launches import run_of
from tests.hosts.lot import Hosts

SECONDS = 90


async def test_cpu_load_memory_and_disk_of_a_host_are_shown_and_why_its_network_is_not(engine: DockerEngine) -> None:
    async with running(engine, BUSY), asyncio.timeout(SECONDS):
        while not (node := (await engine.activity(["host-1"]))[0]).cpu_percent:
            pass
    assert node.load
    assert 0 < (node.memory_used_bytes or 0) < node.memory_bytes
    assert node.disk_read_per_second is not None
    assert node.disk_written_per_second is not None
    assert (node.received_per_second, node.sent_per_second) == (None, None)
    assert node.message == NO_NETWORK


async def test_an_image_with_other_tools_will_do(hosts: Hosts, tmp_path: Path) -> None:
    settings = settings_for(hosts, tmp_path, docker_helper_image=IMAGE)
    async with opened(settings, hosts.hosts[:1]) as engine:
        await answering(engine)
        [node] = await engine.activity(["host-1"])
    assert (node.message, node.cpu_percent is None, node.load is None) == (NO_NETWORK, False, False)


LOOK = """\
cpu  1 2 3 4 5 6 7 8 9 9
{at}.00 9.00
 254       0 vda 1 0 {read} 0 1 0 0 0 0 0 0
"""


def test_what_is_shown_is_of_the_seconds_that_passed() -> None:
    before, after = LOOK.format(at=7, read=1), LOOK.format(at=9, read=3)
    found = read_activity(f"0.1 0.2 0.3 1/2 3\nMemTotal: 9 kB\nMemAvailable: 4 kB\n{before}{after}", 2000)
    assert (found["load"], found["memory_used_bytes"]) == ((0.1, 0.2, 0.3), 5120)
    assert (found["received_per_second"], found["disk_read_per_second"]) == (None, 512)


async def test_the_container_that_looks_sees_nothing_of_the_host_that_a_job_does_not(
    engine: DockerEngine, hosts: Hosts
) -> None:
    host = hosts.hosts[0]
    async with held(host, lambda: engine.activity([host.name])) as (found, _):
        [about] = json.loads(host.docker("inspect", found))
    config = about["HostConfig"]
    assert (config["PidMode"], config["UsernsMode"], config["IpcMode"]) == ("", "", "private")
    assert (config["NetworkMode"], config["Privileged"], about["Mounts"]) == ("none", False, [])
    assert host.docker("ps", "--all", "--quiet", "--filter", HELPER) == ""


async def test_a_job_sees_nothing_of_the_host(engine: DockerEngine, hosts: Hosts) -> None:
    host = hosts.hosts[0]
    async with running(engine) as launch:
        [about] = json.loads(host.docker("inspect", *host.docker("ps", "--quiet").split()))
        _, seen, _ = await told(engine, run_of(launch), "cat /proc/[0-9]*/comm")
    config = about["HostConfig"]
    assert (config["PidMode"], config["UsernsMode"], config["IpcMode"]) == ("", "", "private")
    assert config["NetworkMode"] != "host"
    assert "sleep" in seen.split()
    assert "dockerd" not in seen
