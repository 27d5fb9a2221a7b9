"""What befalls Docker hosts: removed by hand, restarted, rebooted, hung, cut off.

Each ends in the state and the sentence that a person needs, and nothing is started twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.model import now
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Resources
from penstock.engines.base import HeldUp, Presence, Report, Run
from penstock.engines.docker import host as link
from penstock.engines.docker import state
from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.runs import runs
from penstock.errors import Unavailable
from tests.engines.contract.exec import running, told
from tests.engines.docker.engines import answering, document, left_behind, opened, settings_for
from tests.engines.launches import a_launch, a_volume, ended, log_of, observed, outcome, printed, run_of, the_account
from tests.hosts.host import Host
from tests.hosts.lot import Hosts
from tests.sampling import sample

MEBIBYTE = 1 << 20


async def until(engine: DockerEngine, run: Run, holds: Callable[[Report], Any]) -> Report:
    """The report once that holds, looked at whenever something is said to have changed."""
    changes = engine.changes()
    look = asyncio.ensure_future(anext(changes))
    report = None
    try:
        async with asyncio.timeout(90):
            while not holds(report := await observed(engine, run)):
                await look
                look = asyncio.ensure_future(anext(changes))
    except TimeoutError:
        raise AssertionError(f"it never became what was waited for, but {report!r}") from None
    finally:
        look.cancel()
    return report


def container_of(report_run: Run, hosts: Hosts) -> str:
    found = hosts.hosts[0].docker("ps", "-aq", "--filter", f"label=penstock.dev/workload={report_run.workload_id}")
    return found.strip()


@pytest.fixture
def soon_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ended it: without waiting long for a restart of Docker to be the reason."""
    monkeypatch.setattr(state, "OUTSIDE_PATIENCE", 1.0)


async def test_a_container_removed_by_hand_is_told_as_that(engine: DockerEngine, hosts: Hosts) -> None:
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    hosts.hosts[0].docker("rm", "-f", container_of(run_of(launch), hosts))
    report = await ended(engine, run_of(launch))
    unit = report.units[0]
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.DELETED_OUTSIDE)
    assert unit.message == "Its container was removed on host-1 by someone else."
    await engine.start(launch)
    assert not container_of(run_of(launch), hosts)


async def test_one_that_is_only_missing_in_a_list_is_still_there(
    engine: DockerEngine, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As happened right after Docker had been killed, on a machine with much to do."""
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")

    async def none(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(DockerApi, "containers", none)
    host = engine._hosts.link("host-1")
    await host._look_at_all()
    assert (await engine.observe(run_of(launch))).presence is Presence.running
    hosts.hosts[0].docker("rm", "-f", next(iter(host.of(run_of(launch)))).id)
    assert (await ended(engine, run_of(launch))).units[0].reason is Reason.DELETED_OUTSIDE


@pytest.mark.usefixtures("soon_said")
async def test_one_stopped_by_hand_is_told_as_that(engine: DockerEngine, hosts: Hosts) -> None:
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    hosts.hosts[0].docker("stop", container_of(run_of(launch), hosts))
    unit = (await ended(engine, run_of(launch))).units[0]
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.DELETED_OUTSIDE)
    assert unit.message == "Someone else stopped it on host-1, or Docker there was shut down."


@pytest.mark.usefixtures("soon_said")
async def test_one_killed_by_hand_is_told_as_that(engine: DockerEngine, hosts: Hosts) -> None:
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    hosts.hosts[0].docker("kill", container_of(run_of(launch), hosts))
    unit = (await ended(engine, run_of(launch))).units[0]
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.NODE_LOST)
    assert "or someone killed it" in (unit.message or "")


async def test_over_its_memory_it_ends_with_that_reason(engine: DockerEngine) -> None:
    asked = Resources(memory_bytes=48 * MEBIBYTE)
    report, _ = await outcome(engine, a_launch("python3 -c 'x = bytearray(200 << 20)'; exit $?", resources=asked))
    unit = report.units[0]
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.OUT_OF_MEMORY)
    assert "memory limit of 48Mi" in (unit.message or "")


def befall(machine: Host, way: str) -> None:
    if way == "kill":
        machine.kill()
        machine.start()
    elif way == "restart":
        machine.restart()
    else:
        machine.reboot()


WAYS = ["restart", "kill", "reboot"]
PROGRAMS = {"script": "echo up; sleep 600", "program": ("sh", "-c", "echo up; sleep 600")}


@pytest.mark.parametrize("way", WAYS)
async def test_when_docker_restarts_what_ran_there_is_lost_with_its_node(
    engine: DockerEngine, hosts: Hosts, way: str
) -> None:
    machine = hosts.hosts[0]
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    await asyncio.to_thread(befall, machine, way)
    unit = (await ended(engine, run_of(launch))).units[0]
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.NODE_LOST)
    assert unit.message == "Docker on host-1 was restarted, which ended it."
    await answering(engine)
    assert await log_of(engine, run_of(launch)) == b"up\n"
    report, log = await outcome(engine, a_launch("echo again"))
    assert (report.units[0].state, log) == (State.EXITED, "again\n")


@pytest.mark.parametrize("way", sample(WAYS, 1))
async def test_the_same_is_said_if_it_happened_while_the_server_was_away(
    hosts: Hosts, tmp_path: Path, way: str
) -> None:
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    launches = {name: a_launch(program, name=name) for name, program in PROGRAMS.items()}
    async with left_behind(settings, machine) as first:
        for launch in launches.values():
            await first.start(launch)
            await printed(first, run_of(launch), "up")
    await asyncio.to_thread(befall, machine, way)
    async with opened(settings, [machine]) as engine:
        for launch in launches.values():
            unit = (await ended(engine, run_of(launch))).units[0]
            assert (unit.state, unit.reason) == (State.CRASHED, Reason.NODE_LOST)
            assert unit.message == "Docker on host-1 was restarted, which ended it."


@pytest.mark.usefixtures("soon_said")
async def test_what_was_ended_by_hand_while_the_server_was_away_is_not_blamed_on_docker(
    hosts: Hosts, tmp_path: Path
) -> None:
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    launch = a_launch(("sh", "-c", "echo up; sleep 600"))
    async with left_behind(settings, machine) as first:
        await first.start(launch)
        await printed(first, run_of(launch), "up")
    machine.docker("kill", container_of(run_of(launch), hosts))
    async with opened(settings, [machine]) as engine:
        unit = (await ended(engine, run_of(launch))).units[0]
        assert (unit.state, unit.reason, unit.exit_code) == (State.CRASHED, Reason.PROGRAM_FAILED, 137)


async def test_with_live_restore_it_goes_on_while_docker_restarts(own_hosts: Any, tmp_path: Path) -> None:
    lot = own_hosts(number=1, config={"live-restore": True})
    machine = lot.hosts[0]
    async with opened(settings_for(lot, tmp_path), [machine]) as engine:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        launch = a_launch("echo up; until [ -e /data/go ]; do sleep 0.1; done; echo done", {"/data": volume})
        await engine.start(launch)
        await printed(engine, run_of(launch), "up")
        await asyncio.to_thread(machine.restart)
        await until(engine, run_of(launch), lambda report: report.presence is Presence.running and not report.message)
        await outcome(engine, a_launch("touch /data/go", {"/data": volume}))
        report = await ended(engine, run_of(launch))
        assert [unit.state for unit in report.units] == [State.EXITED]


async def test_of_a_host_that_hangs_it_is_said_that_nothing_is_known(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the other goes on as if nothing were."""
    monkeypatch.setattr(link, "PING_SECONDS", 0.5)
    monkeypatch.setattr(link, "PING_PATIENCE", 3.0)
    first, second = hosts.hosts
    async with opened(settings_for(hosts, tmp_path), [first, second]) as engine:
        launch = a_launch("echo up; sleep 600", hosts=("host-1",))
        await engine.start(launch)
        await printed(engine, run_of(launch), "up")
        first.pause()
        try:
            report = await until(engine, run_of(launch), lambda report: report.state is State.UNKNOWN)
            assert report.presence is Presence.running
            assert "Docker on host-1" in (report.message or "")
            assert "it may still be running, and its node is asked again" in (report.message or "")
            assert [node.ready for node in await engine.nodes()] == [False, True]
            with pytest.raises(Unavailable):
                await engine.stop(run_of(launch), 0)
            with pytest.raises(Unavailable):
                await engine.observe(Run("unheardo", hosts=("host-1",)))
            report, log = await outcome(engine, a_launch("echo here", hosts=("host-2",)))
            assert (report.units[0].state, log) == (State.EXITED, "here\n")
        finally:
            first.resume()
        await until(engine, run_of(launch), lambda report: report.state is None and report.presence is Presence.running)
        await engine.stop(run_of(launch), 0)
        assert (await ended(engine, run_of(launch))).units[0].state is State.STOPPED


async def test_a_start_on_a_host_that_is_off_happens_once_it_is_back(own_hosts: Any, tmp_path: Path) -> None:
    lot = own_hosts(number=1)
    machine = lot.hosts[0]
    async with opened(settings_for(lot, tmp_path), [machine]) as engine:
        await asyncio.to_thread(machine.turn_off)
        launch = a_launch("echo ran", hosts=("host-1",))
        await engine.start(launch)
        report = await until(engine, run_of(launch), lambda report: "trying again" in (report.message or ""))
        assert (report.presence, report.reason) == (Presence.waiting, Reason.NODE_LOST)
        await asyncio.to_thread(machine.turn_on)
        report = await ended(engine, run_of(launch), 90)
        assert [unit.state for unit in report.units] == [State.EXITED]
        assert await log_of(engine, run_of(launch)) == b"ran\n"


@pytest.mark.parametrize("way", sample(("tcp", "ssh"), 1))
async def test_a_follower_misses_nothing_and_gets_nothing_twice_when_the_cable_is_cut(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(link, "PING_SECONDS", 0.5)
    monkeypatch.setattr(link, "PING_PATIENCE", 2.0)
    machine = hosts.hosts[0]
    settings = settings_for(hosts, tmp_path)
    async with opened(settings, ()) as engine:
        await engine.use_hosts([document(machine, getattr(machine, way))])
        launch = a_launch("for i in $(seq 1 100); do echo $i; sleep 0.1; done", hosts=("host-1",))
        await engine.start(launch)
        following = asyncio.create_task(log_of(engine, run_of(launch), follow=True))
        await printed(engine, run_of(launch), "20\n")
        async with engine_cut(engine, run_of(launch), machine):
            pass
        expected = "".join(f"{number}\n" for number in range(1, 101))
        assert (await asyncio.wait_for(following, 100)).decode() == expected
        report = await ended(engine, run_of(launch))
        assert report.units[0].state is State.EXITED


class engine_cut:
    """The cable is cut until the engine has noticed."""

    def __init__(self, engine: DockerEngine, run: Run, machine: Any) -> None:
        self._engine, self._run, self._machine = engine, run, machine

    async def __aenter__(self) -> None:
        self._machine.cut()
        try:
            await until(self._engine, self._run, lambda report: report.state is State.UNKNOWN)
        finally:
            self._machine.mend()

    async def __aexit__(self, *_: object) -> None:
        await until(self._engine, self._run, lambda report: report.state is None)


async def test_a_new_server_finds_what_runs_and_can_stop_it(hosts: Hosts, tmp_path: Path) -> None:
    settings = settings_for(hosts, tmp_path)
    launch = a_launch(("sh", "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done"), stop_grace=30)
    first = DockerEngine(settings)
    await first.open()
    await first.use_hosts([document(hosts.hosts[0])])
    await first.start(launch)
    await printed(first, run_of(launch), "up")
    await first.close()
    async with opened(settings, hosts.hosts[:1]) as engine:
        assert (await engine.observe(run_of(launch))).presence is Presence.running
        assert await told(engine, run_of(launch), "exit 5") == (5, "", "")
        await engine.stop(run_of(launch), 30)
        unit = (await ended(engine, run_of(launch))).units[0]
        assert (unit.state, unit.reason, unit.exit_code) == (State.STOPPED, Reason.STOPPED_BY_USER, 3)


async def test_a_name_that_someone_else_took_is_left_alone(engine: DockerEngine, hosts: Hosts) -> None:
    launch = a_launch("echo ran")
    name = f"penstock-try-{launch.workload_id}.0"
    hosts.hosts[0].docker("create", "--name", name, "busybox:1", "true")
    report, _ = await outcome(engine, launch)
    unit = report.units[0]
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.LAUNCH_FAILED)
    said = f"There is a container {name} on host-1 that Penstock did not make. docker rm {name}"
    assert unit.message == said
    assert name in hosts.hosts[0].docker("ps", "-a", "--format", "{{.Names}}")
    hosts.hosts[0].docker("rm", name)


async def test_one_that_someone_pauses_still_runs(engine: DockerEngine, hosts: Hosts) -> None:
    async with running(engine) as launch:
        hosts.hosts[0].docker("pause", container_of(run_of(launch), hosts))
        assert (await engine.observe(run_of(launch))).presence is Presence.running
        hosts.hosts[0].docker("unpause", container_of(run_of(launch), hosts))


async def test_one_that_is_started_again_by_hand_does_nothing(engine: DockerEngine, hosts: Hosts) -> None:
    launch = a_launch("echo ran; exit 3")
    await outcome(engine, launch)
    hosts.hosts[0].docker("start", container_of(run_of(launch), hosts))
    hosts.hosts[0].docker("wait", container_of(run_of(launch), hosts))
    unit = (await ended(engine, run_of(launch))).units[0]
    assert (unit.state, unit.exit_code) == (State.CRASHED, 3)
    assert await log_of(engine, run_of(launch)) == b"ran\n"


async def test_when_the_container_of_one_node_is_removed_the_others_end(engine: DockerEngine, hosts: Hosts) -> None:
    launch = a_launch("echo up; sleep 600", nodes=2)
    await engine.start(launch)
    for rank in (0, 1):
        await printed(engine, run_of(launch), "up", rank)
    hosts.hosts[0].docker("rm", "-f", f"penstock-try-{launch.workload_id}.1")
    report = await ended(engine, run_of(launch))
    assert [unit.reason for unit in report.units] == [Reason.ANOTHER_NODE_ENDED, Reason.DELETED_OUTSIDE]
    assert report.units[0].message == "The container of node 1 was removed."


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_clock_that_is_wrong_ends_nothing(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The server's: it is the difference that counts."""
    for module in (link, runs):
        monkeypatch.setattr(module, "now", lambda: now() + timedelta(hours=hours))
    async with opened(settings_for(hosts, tmp_path), hosts.hosts[:1]) as engine:
        report, _ = await outcome(engine, a_launch(("sleep", "2"), max_duration=600))
        assert report.units[0].state is State.EXITED
        report, _ = await outcome(engine, a_launch(("sleep", "600"), max_duration=1, stop_grace=1))
        assert (report.units[0].state, report.units[0].reason) == (State.CRASHED, Reason.TIME_LIMIT)


async def test_a_full_disk_is_said_and_once_there_is_room_things_start(own_hosts: Any, tmp_path: Path) -> None:
    lot = own_hosts(number=1, disk_mb=600)
    machine = lot.hosts[0]
    async with opened(settings_for(lot, tmp_path), [machine]) as engine:
        await asyncio.to_thread(machine.fill)
        with pytest.raises(HeldUp, match="host-1 has a full disk") as held:
            await outcome(engine, a_launch("echo ran"))
        assert held.value.reason is Reason.NO_AVAILABLE_RESOURCES
        assert not machine.jobs("--all")
        [node] = await engine.nodes()
        assert (node.full or "").startswith("has a full disk (0B")
        await asyncio.to_thread(machine.empty)
        report, log = await outcome(engine, a_launch("echo ran"))
        assert (report.units[0].state, log) == (State.EXITED, "ran\n")
