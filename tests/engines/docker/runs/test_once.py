"""Nothing is started twice, whatever becomes of a request, of an answer, of a container."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path

import pytest

from penstock.domain.states import Reason, State
from penstock.engines.base import Launch, Report
from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.events import EventMemory, read_memory
from penstock.engines.docker.runs import start, steps
from penstock.settings import Settings
from tests.engines.docker.delayed_start import Arrives, DelayedStart
from tests.engines.docker.engines import document, left_behind, opened, settings_for
from tests.engines.launches import a_launch, a_volume, an_array, ended, log_of, outcome, printed, run_of, the_account
from tests.hosts.host import Host
from tests.hosts.lot import Hosts
from tests.sampling import sample

SHORT = "echo ran >>/data/times; exit 3"
PROGRAMS = {"short": SHORT, "long": "echo ran >>/data/times; sleep 5; exit 3"}


async def started_late(hosts: Hosts, place: Path, arrives: Arrives, program: str) -> tuple[Report, str]:
    """How it ended, and what every run of it has written."""
    between = DelayedStart(hosts.hosts[0].socket, place / "docker.sock", arrives)
    async with between.listening() as address, opened(settings_for(hosts, place), ()) as engine:
        await engine.use_hosts([document(hosts.hosts[0], address)])
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        await looked_at(engine)
        between.arm()
        await engine.start(launch := a_launch(("sh", "-c", program), {"/data": volume}))
        report = await ended(engine, run_of(launch), 90)
        assert between.starts == (2 if arrives is Arrives.after_the_removal else 1)
        await engine.remove(run_of(launch))
        assert not containers_of(launch, hosts.hosts[0])
        _, times = await outcome(engine, a_launch("cat /data/times", {"/data": volume}))
        return report, times


async def looked_at(engine: DockerEngine) -> None:
    """Once the helper is gone that looks which CPUs there are: it is started, too."""
    async with asyncio.timeout(60):
        while not (await engine.nodes())[0].cpu_product:
            await asyncio.sleep(0.05)


def containers_of(launch: Launch, machine: Host) -> list[str]:
    named = ("--format", "{{.Names}}", "--filter", f"label=penstock.dev/workload={launch.workload_id}")
    return sorted(machine.docker("ps", "-a", *named).split())


@pytest.mark.parametrize(
    ("arrives", "program"), sample([pytest.param(*case, id="-".join(case)) for case in product(Arrives, PROGRAMS)], 4)
)
async def test_a_program_whose_start_got_no_answer_runs_once(
    hosts: Hosts, tmp_path: Path, arrives: Arrives, program: str
) -> None:
    report, times = await started_late(hosts, tmp_path, arrives, PROGRAMS[program])
    assert times == "ran\n"
    assert [(unit.state, unit.exit_code) for unit in report.units] == [(State.CRASHED, 3)]


async def test_where_docker_forgot_whether_it_ran_it_is_in_doubt_and_not_started_again(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def of_what_is_there(api: DockerApi) -> EventMemory:
        memory = await read_memory(api)
        return EventMemory(memory.full, {each: past for each, past in memory.past.items() if await api.container(each)})

    monkeypatch.setattr(steps, "read_memory", of_what_is_there)  # as if it had been restarted after the removal
    report, times = await started_late(hosts, tmp_path, Arrives.before_the_removal, SHORT)
    assert times == "ran\n"
    [unit] = report.units
    assert (unit.state, unit.reason) == (State.UNKNOWN, Reason.NODE_LOST)
    assert "the answer was lost, and Docker does not remember whether it ran" in (unit.message or "")


async def test_a_start_without_an_answer_on_a_host_that_is_gone_for_good_is_in_doubt(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "RETRY", 10.0)  # it is gone before it is asked again
    machine = hosts.hosts[0]
    between = DelayedStart(machine.socket, tmp_path / "docker.sock", Arrives.never)
    async with between.listening() as address, opened(settings_for(hosts, tmp_path), ()) as engine:
        await engine.use_hosts([document(machine, address)])
        await looked_at(engine)
        between.arm()
        await engine.start(launch := a_launch("true", hosts=("host-1",)))
        async with asyncio.timeout(60):
            while (await engine.observe(run_of(launch))).state is not State.UNKNOWN:
                await asyncio.sleep(0.05)
        await engine.use_hosts([])
        [unit] = (await ended(engine, run_of(launch), 90)).units
        assert (unit.state, unit.reason) == (State.UNKNOWN, Reason.OUTCOME_UNKNOWN)
        assert unit.message == "Its node host-1 is no longer registered, so nobody knows how it ended."
    machine.docker("rm", "-f", *containers_of(launch, machine))


async def left(launch: Launch, settings: Settings, *machines: Host) -> None:
    """Starts it, and leaves it to the next server once its first two parts have printed."""
    async with left_behind(settings, *machines) as first:
        await first.start(launch)
        for part in (0, 1):
            await printed(first, run_of(launch), "up", part)


async def test_an_index_whose_container_was_removed_while_nobody_looked_is_not_started_again(
    hosts: Hosts, tmp_path: Path
) -> None:
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    launch = an_array("echo up; sleep 2", 4, 2)
    await left(launch, settings, machine)
    machine.docker("rm", "-f", f"penstock-try-{launch.workload_id}.0")
    async with opened(settings, [machine]) as engine:
        engine.remind(launch)
        report = await ended(engine, run_of(launch))
        assert [unit.state for unit in report.units] == [State.UNKNOWN, *[State.EXITED] * 3]
        assert (report.units[0].reason, report.units[0].index) == (Reason.OUTCOME_UNKNOWN, 0)
        said = "Someone removed its container while the server was away, so nobody knows how it ended."
        assert report.units[0].message == said
        assert containers_of(launch, machine) == [f"penstock-try-{launch.workload_id}.{part}" for part in (1, 2, 3)]


async def test_a_node_whose_container_was_removed_while_nobody_looked_ends_the_others(
    hosts: Hosts, tmp_path: Path
) -> None:
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    launch = a_launch("echo up; sleep 600", nodes=2)
    await left(launch, settings, machine)
    machine.docker("rm", "-f", f"penstock-try-{launch.workload_id}.1")
    async with opened(settings, [machine]) as engine:
        engine.remind(launch)
        report = await ended(engine, run_of(launch))
        assert [unit.reason for unit in report.units] == [Reason.ANOTHER_NODE_ENDED, Reason.OUTCOME_UNKNOWN]
        assert [unit.state for unit in report.units] == [State.STOPPED, State.UNKNOWN]
        assert containers_of(launch, machine) == [f"penstock-try-{launch.workload_id}.0"]


async def test_a_node_that_failed_ends_also_one_that_has_no_container(hosts: Hosts, tmp_path: Path) -> None:
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    launch = a_launch("echo up; sleep 600", nodes=2)
    await left(launch, settings, machine)
    machine.docker("kill", f"penstock-try-{launch.workload_id}.0")
    machine.docker("rm", "-f", f"penstock-try-{launch.workload_id}.1")
    async with opened(settings, [machine]) as engine:
        engine.remind(launch)
        report = await ended(engine, run_of(launch))
        assert [unit.state for unit in report.units] == [State.CRASHED, State.STOPPED]
        assert report.units[1].reason is Reason.ANOTHER_NODE_ENDED


@pytest.mark.parametrize(
    ("program", "state", "reason", "code"),
    [
        ("echo up; sleep 600", State.CRASHED, Reason.DELETED_OUTSIDE, None),
        ("echo up; exit 3", State.CRASHED, Reason.PROGRAM_FAILED, 3),
    ],
    ids=["running", "ended"],
)
async def test_one_whose_only_container_was_removed_while_nobody_looked_is_not_started_again(
    hosts: Hosts, tmp_path: Path, program: str, state: State, reason: Reason, code: int | None
) -> None:
    """Nothing of it is there: Docker remembers that it ran, and how it ended."""
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    launch = a_launch(("sh", "-c", program))
    async with left_behind(settings, machine) as first:
        await first.start(launch)
        await printed(first, run_of(launch), "up")
        if code:
            await ended(first, run_of(launch))
    machine.docker("rm", "-f", *containers_of(launch, machine))
    async with opened(settings, [machine]) as engine:
        await engine.start(launch)
        report = await ended(engine, run_of(launch))
        assert [(unit.state, unit.reason, unit.exit_code) for unit in report.units] == [(state, reason, code)]
        assert not containers_of(launch, machine)


async def test_an_array_of_which_nothing_is_left_goes_on_where_it_was(hosts: Hosts, tmp_path: Path) -> None:
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    launch = an_array("echo up; test $JOB_COMPLETION_INDEX -gt 1 || sleep 600", 4, 2)
    await left(launch, settings, machine)
    machine.docker("rm", "-f", *containers_of(launch, machine))
    async with opened(settings, [machine]) as engine:
        engine.remind(launch)
        report = await ended(engine, run_of(launch))
        assert [unit.reason for unit in report.units] == [Reason.DELETED_OUTSIDE] * 2 + [Reason.FINISHED] * 2
        assert containers_of(launch, machine) == [f"penstock-try-{launch.workload_id}.{part}" for part in (2, 3)]


async def test_what_was_taken_back_before_it_ran_is_started(hosts: Hosts, tmp_path: Path) -> None:
    """A container that was made and removed again is no sign that it ran."""
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    launch = a_launch(("echo", "up"))
    labels = {"installation": "penstock", "workload": launch.workload_id, "attempt": "1", "part": "0"}
    given = [each for key, value in labels.items() for each in ("--label", f"penstock.dev/{key}={value}")]
    machine.docker("rm", machine.docker("create", *given, "busybox:1", "true").strip())
    async with opened(settings, [machine]) as engine:
        _, said = await outcome(engine, launch)
        assert said == "up\n"


async def test_an_index_that_failed_is_to_blame_for_itself(engine: DockerEngine) -> None:
    """Of an attempt that runs it alone."""
    report, _ = await outcome(engine, an_array("exit 3", 2, 1, indexes=(1,)))
    assert [(unit.index, unit.reason) for unit in report.units] == [(1, Reason.PROGRAM_FAILED)]


async def test_an_array_waits_for_a_host_that_nobody_has_looked_at_yet(hosts: Hosts, tmp_path: Path) -> None:
    """What runs there is not known: started here, it would run twice."""
    first, second = hosts.hosts
    settings = settings_for(hosts, tmp_path)
    launch = an_array("echo up; sleep 1", 4, 2, hosts=("host-1", "host-2"))
    await left(launch, settings, first, second)
    second.pause()
    try:
        async with opened(settings, [first, second]) as engine:
            assert [node.ready for node in await engine.nodes()] == [True, False]
            assert {seen.part for seen in engine._hosts.parts(run_of(launch)).values()} == {0}
            second.resume()
            engine.remind(launch)
            report = await ended(engine, run_of(launch), 90)
            assert [unit.state for unit in report.units] == [State.EXITED] * 4
            assert [await log_of(engine, run_of(launch), index) for index in range(4)] == [b"up\n"] * 4
            found = containers_of(launch, first) + containers_of(launch, second)
            assert sorted(found) == [f"penstock-try-{launch.workload_id}.{part}" for part in range(4)]
    finally:
        second.resume()
