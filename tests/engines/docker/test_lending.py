"""The second job of a group takes a place in the network that was made ready; what becomes of that place."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.states import State
from penstock.engines.base import Launch
from penstock.engines.docker import lending
from penstock.engines.docker.api import Api
from penstock.engines.docker.engine import DockerEngine
from tests.engines.docker.opening import document, left_behind, opened, settings_for
from tests.engines.executing import running, told
from tests.engines.launching import a_launch, ended, log_of, outcome, printed, run_of
from tests.engines.looking import ECHO, echoed
from tests.hosts.host import Host
from tests.hosts.lot import Hosts

LENDERS = ("ps", "-aq", "--no-trunc", "--filter", "label=penstock.dev/lends-network")
WITHIN = 30


def lenders(host: Host) -> list[str]:
    return host.docker(*LENDERS).split()


async def until(host: Host, count: int) -> list[str]:
    """Those that are there, once they are as many."""
    async with asyncio.timeout(WITHIN):
        while len(found := await asyncio.to_thread(lenders, host)) != count:
            await asyncio.sleep(0.05)
    return found


@asynccontextmanager
async def lent(
    engine: DockerEngine, host: Host, run: str = "echo up; sleep 600", **fields: Any
) -> AsyncIterator[Launch]:
    """A job that runs in a network that was made ready for it."""
    lender = await ready(engine, host, group=fields.get("group", "ada"))
    async with running(engine, run, **fields) as launch:
        assert network_of(host, launch) == f"container:{lender}"
        yield launch


async def ready(engine: DockerEngine, host: Host, **fields: Any) -> str:
    """What waits for the next job, once a first one was started."""
    await outcome(engine, a_launch("true", hosts=(host.name,), **fields))
    async with asyncio.timeout(WITHIN):
        while not (spares := engine._lending._spares):
            await asyncio.sleep(0.05)
    [spare] = spares.values()
    return spare.id


def network_of(host: Host, launch: Launch) -> str:
    return host.docker("inspect", "-f", "{{.HostConfig.NetworkMode}}", container_of(host, launch)).strip()


def container_of(host: Host, launch: Launch) -> str:
    return host.docker("ps", "-aq", "--filter", f"label=penstock.dev/workload={launch.workload_id}").strip()


async def test_the_next_job_is_in_the_network_of_its_group_and_of_no_other(engine: DockerEngine, hosts: Hosts) -> None:
    host = hosts.hosts[0]
    async with lent(engine, host) as first, running(engine, group="ada") as same, running(engine, group="bob") as other:
        _, address, _ = await told(engine, run_of(first), "hostname -i")
        reach = f"timeout 3 bash -c ': </dev/tcp/{address.strip()}/1'"
        assert "refused" in (await told(engine, run_of(same), reach))[2]
        assert "refused" not in (await told(engine, run_of(other), reach))[2]


async def test_what_it_moves_is_seen_and_its_ports_are_reached(engine: DockerEngine, hosts: Hosts) -> None:
    async with lent(engine, hosts.hosts[0], ECHO) as launch:
        said = re.search(rb"port (\d+)", await log_of(engine, run_of(launch)))
        assert said
        assert await echoed(engine, run_of(launch), int(said[1]), b"hello") == b"hello"
        measure = await engine.top(run_of(launch), 0)
        assert (measure.network_received_bytes or 0) > 0


async def test_what_lends_has_no_rights_and_goes_with_its_job(engine: DockerEngine, hosts: Hosts) -> None:
    host = hosts.hosts[0]
    async with lent(engine, host) as launch:
        lender = network_of(host, launch).removeprefix("container:")
        [found] = json.loads(host.docker("inspect", lender))
        given = found["HostConfig"]
        assert (given["CapDrop"], given["CapAdd"], given["Privileged"]) == (["ALL"], None, False)
        assert (given["ReadonlyRootfs"], given["SecurityOpt"]) == (True, ["no-new-privileges"])
        assert (found["Config"]["User"], found["Mounts"]) == ("65534:65534", [])
        both = await until(host, 2)  # the next one waits
        assert lender in both
    [left] = await until(host, 1)
    assert left != lender


async def test_nothing_waits_on_a_host_when_the_server_ends_or_the_host_is_not_its_own_any_more(
    hosts: Hosts, tmp_path: Path
) -> None:
    first, second = hosts.hosts
    async with opened(settings_for(hosts, tmp_path), hosts.hosts) as engine:
        for host in hosts.hosts:
            await outcome(engine, a_launch("true", hosts=(host.name,)))
        for host in hosts.hosts:
            await until(host, 1)
        await engine.use_hosts([document(second)])
        assert lenders(first) == []
    assert lenders(second) == []


async def test_one_that_nobody_wants_goes(engine: DockerEngine, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "LOOK_SECONDS", 0.1)
    await ready(engine, hosts.hosts[0])
    monkeypatch.setattr(lending, "WANTED", 0.0)
    await until(hosts.hosts[0], 0)


async def test_none_waits_in_maintenance(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "LOOK_SECONDS", 0.1)
    host = hosts.hosts[0]
    async with opened(settings_for(hosts, tmp_path), [host]) as engine:
        await ready(engine, host)
        await engine.use_hosts([document(host, maintenance=True)])
        await until(host, 0)


async def test_none_waits_where_the_admin_does_not_want_it(hosts: Hosts, tmp_path: Path) -> None:
    async with opened(settings_for(hosts, tmp_path, docker_ready_network="off"), hosts.hosts[:1]) as engine:
        await outcome(engine, a_launch("true"))
        await asyncio.sleep(lending.QUIET * 3)  # it would come after this long
        assert lenders(hosts.hosts[0]) == []


@pytest.mark.parametrize("how", [("kill",), ("rm", "-f")])
async def test_one_that_someone_ended_is_in_nobodys_way(
    engine: DockerEngine, hosts: Hosts, how: tuple[str, ...]
) -> None:
    host = hosts.hosts[0]
    lender = await ready(engine, host)
    host.docker(*how, lender)
    report, log = await outcome(engine, a_launch("echo ran"))
    assert ([unit.state for unit in report.units], log) == ([State.EXITED], "ran\n")


@pytest.mark.parametrize("how", [("kill",), ("rm", "-f")])
async def test_one_that_ends_just_before_the_job_starts_is_done_without(
    engine: DockerEngine, hosts: Hosts, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]
) -> None:
    host, start = hosts.hosts[0], Api.start
    lender = await ready(engine, host)

    async def late(self: Api, ref: str) -> None:
        monkeypatch.setattr(Api, "start", start)
        host.docker(*how, lender)
        await start(self, ref)

    monkeypatch.setattr(Api, "start", late)
    launch = a_launch("echo ran")
    report, log = await outcome(engine, launch)
    assert ([unit.state for unit in report.units], log) == ([State.EXITED], "ran\n")
    assert network_of(host, launch) != f"container:{lender}"


async def test_a_server_that_comes_back_keeps_what_a_job_has_and_removes_it_after(hosts: Hosts, tmp_path: Path) -> None:
    host, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    launch = a_launch("echo up; while [ ! -e /tmp/end ]; do sleep 0.1; done; hostname -i")
    async with left_behind(settings, host) as engine:
        lender = await ready(engine, host)
        await engine.start(launch)
        await printed(engine, run_of(launch), "up")
    async with opened(settings, [host]) as engine:
        assert (network_of(host, launch), lenders(host)) == (f"container:{lender}", [lender])
        await engine.observe(run_of(launch))
        await told(engine, run_of(launch), "touch /tmp/end")
        report = await ended(engine, run_of(launch))
        assert [unit.state for unit in report.units] == [State.EXITED]
        await until(host, 0)


async def test_one_that_a_killed_server_left_goes_after_a_while(
    engine: DockerEngine, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "LOOK_SECONDS", 0.1)
    host = hosts.hosts[0]
    labels = ("penstock.dev/installation=penstock", "penstock.dev/lends-network=ada")
    host.docker("run", "-d", *(word for label in labels for word in ("--label", label)), "busybox:1", "sleep", "600")
    await ready(engine, host, group="bob")
    monkeypatch.setattr(lending, "FORGOTTEN", 0.0)
    await until(host, 1)


def test_a_job_whose_own_container_was_removed_is_not_one_whose_lender_is_gone() -> None:
    lender, job = "a" * 64, "b" * 64
    assert lending.is_about_lender(f"No such container: {lender}", lender)
    assert not lending.is_about_lender(f"No such container: {job}", lender)
    assert not lending.is_about_lender("OCI runtime create failed: /ns/net", "")
