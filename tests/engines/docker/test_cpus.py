"""CPUs that a container has to itself: nobody else on the host runs on them, before it, beside it or after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.domain.states import State
from penstock.domain.workloads import Resources
from penstock.engines.base import Launch
from penstock.engines.docker.engine import DockerEngine
from tests.engines.docker.engines import left_behind, opened, settings_for
from tests.engines.launches import a_launch, ended, printed, run_of
from tests.hosts.host import Host
from tests.hosts.lot import Hosts

PROGRAM = ("sh", "-c", "echo up; sleep 600")


def sharing() -> Launch:
    return a_launch(PROGRAM, resources=Resources(cpus_milli=100))


def alone(*cpus: int) -> Launch:
    return a_launch(PROGRAM, resources=Resources(cpus_milli=1000 * len(cpus), exclusive_cpus=True), cpusets=(cpus,))


async def up(engine: DockerEngine, launch: Launch) -> Launch:
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    return launch


def allowed(machine: Host, launch: Launch) -> str:
    name = f"penstock-try-{launch.workload_id}.0"
    return machine.docker("exec", name, "sed", "-n", "s/^Cpus_allowed_list:\t//p", "/proc/1/status").strip()


async def becomes(machine: Host, launch: Launch, cpus: str) -> None:
    async with asyncio.timeout(60):
        while allowed(machine, launch) != cpus:
            await asyncio.sleep(0.1)


def everyone(machine: Host, first: int = 0) -> str:
    last = int(machine.docker("info", "--format", "{{.NCPU}}")) - 1
    return f"{first}-{last}" if first < last else f"{last}"


async def test_those_that_share_keep_off_the_cpus_of_one_that_has_its_own(engine: DockerEngine, hosts: Hosts) -> None:
    machine = hosts.hosts[0]
    before = await up(engine, sharing())
    assert allowed(machine, before) == everyone(machine)
    own = await up(engine, alone(0))
    beside = await up(engine, sharing())
    rest = everyone(machine, first=1)
    assert [allowed(machine, launch) for launch in (own, before, beside)] == ["0", rest, rest]
    await engine.stop(run_of(own), 0)
    assert (await ended(engine, run_of(own))).units[0].state is State.STOPPED
    for launch in (before, beside):
        await becomes(machine, launch, everyone(machine))


async def test_a_server_that_comes_back_gives_the_cpus_of_one_that_has_ended_to_all(
    hosts: Hosts, tmp_path: Path
) -> None:
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    async with left_behind(settings, machine) as first:
        own, other = await up(first, alone(0)), await up(first, sharing())
    machine.docker("kill", f"penstock-try-{own.workload_id}.0")
    async with opened(settings, [machine]):
        await becomes(machine, other, everyone(machine))
