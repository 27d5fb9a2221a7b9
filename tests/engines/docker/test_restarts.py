"""Docker is killed and restarted: what it says afterwards of what began or ended meanwhile is not always true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import Launch
from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.engine import DockerEngine
from tests.engines.docker.engines import answering, left_behind, opened, settings_for
from tests.engines.launches import a_launch, a_volume, an_array, ended, outcome, printed, run_of, the_account
from tests.hosts.host import Host
from tests.hosts.lot import Hosts
from tests.rig.processes import wait_for

NOT_KNOWN = "Docker on host-1 was restarted and does not know how it ended."
ENDED_BY = "Docker on host-1 was restarted, which ended it."
FORGOTTEN = "Docker on host-1 was asked to start it, the answer was lost, and Docker does not remember whether it ran."


def killed(machine: Host) -> None:
    machine.kill()
    machine.start()


# -- what it calls created -------------------------------------------------------------------------------------------


async def made(launch: Launch, number: int, machine: Host, engine: DockerEngine) -> None:
    """Its containers are there, and not started."""
    await engine.start(launch)
    asked = ("ps", "-aq", "--filter", f"label=penstock.dev/workload={launch.workload_id}")
    async with asyncio.timeout(60):
        while len((await asyncio.to_thread(machine.docker, *asked)).split()) < number:
            await asyncio.sleep(0.1)


PROGRAM = ("sh", "-c", "echo ran >>/data/times")


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        ({}, [State.UNKNOWN]),
        ({"nodes": 2}, [State.UNKNOWN, State.UNKNOWN]),
        ({"array": 3}, [State.UNKNOWN, State.UNKNOWN, State.EXITED]),
    ],
    ids=["one", "nodes", "array"],
)
async def test_what_is_created_for_a_docker_that_was_killed_since_is_not_started_by_the_next_server(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, int], states: list[State]
) -> None:
    """It may have run: killed in the middle of a start, Docker does not know of it."""
    machine, settings, volume = hosts.hosts[0], settings_for(hosts, tmp_path), a_volume()
    mounts = {"/data": volume}
    array = kind.get("array", 0)
    launch = an_array("echo ran >>/data/times", array, 2, mounts) if array else a_launch(PROGRAM, mounts, **kind)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    async with left_behind(settings, machine) as first:
        await first.create_volume(volume, the_account())
        with monkeypatch.context() as patched:
            patched.setattr(DockerApi, "start", never)
            await made(launch, min(len(states), 2), machine, first)
    await asyncio.to_thread(killed, machine)
    async with opened(settings, [machine]) as engine:
        await engine.start(launch)
        report = await ended(engine, run_of(launch))
        assert [unit.state for unit in report.units] == states
        doubted = [unit for unit in report.units if unit.state is State.UNKNOWN]
        assert {(unit.reason, unit.message) for unit in doubted} == {(Reason.NODE_LOST, FORGOTTEN)}
        await engine.remove(run_of(launch))
        _, times = await outcome(engine, a_launch("cat /data/times; true", mounts))
        assert times.count("ran") == states.count(State.EXITED)


# -- what it says of an end that it did not see ----------------------------------------------------------------------


WAITS = "touch /data/up; until [ -e /data/go ]; do sleep 0.05; done; touch /data/over; exit {code}"


async def begun(engine: DockerEngine, launch: Launch) -> None:
    """Return once Docker has told that it began: what it was killed over before that is in doubt."""
    async with asyncio.timeout(60):
        while not any(unit.started_at for unit in (await engine.observe(run_of(launch))).units):
            await asyncio.sleep(0.05)


async def ends_while_docker_is_dead(machine: Host, engine: DockerEngine, launches: dict[str, Launch]) -> None:
    places = {}
    for name, launch in launches.items():
        await engine.create_volume(launch.mounts[0].volume, the_account())
        await engine.start(launch)
        named = f"penstock-{launch.mounts[0].volume.object_name}"
        places[name] = Path(machine.docker("volume", "inspect", "--format", "{{.Mountpoint}}", named).strip())
    for name, place in places.items():
        await asyncio.to_thread(wait_for, f"{name} to begin", (place / "up").exists, 60)
    for launch in launches.values():
        await begun(engine, launch)
    machine.kill()
    for name, place in places.items():
        (place / "go").touch()
        await asyncio.to_thread(wait_for, f"{name} to end", (place / "over").exists, 60)


def waiting(run: Callable[[str], Any], code: int) -> Launch:
    return a_launch(run(WAITS.format(code=code)), {"/data": a_volume()})


def program(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "nobody-there"])
async def test_with_live_restore_a_code_is_not_believed_that_docker_did_not_see(
    own_hosts: Any, tmp_path: Path, watched: bool
) -> None:
    """But what the minder wrote down is, and what this server saw before."""
    lot = own_hosts(number=1, config={"live-restore": True})
    machine, settings = lot.hosts[0], settings_for(lot, tmp_path)
    launches = {
        "well": waiting(program, 0),
        "failed": waiting(program, 3),
        "noted": waiting(str, 3),
        "noted-well": waiting(str, 0),
    }
    over = a_launch(program("exit 4"))

    async def units(engine: DockerEngine) -> dict[str, Unit]:
        return {name: (await ended(engine, run_of(launch))).units[0] for name, launch in launches.items()}

    if watched:
        async with opened(settings, [machine]) as engine:
            await outcome(engine, over)
            await ends_while_docker_is_dead(machine, engine, launches)
            await asyncio.to_thread(machine.start)
            found = await units(engine)
            before = (await ended(engine, run_of(over))).units[0]
    else:
        async with left_behind(settings, machine) as first:
            await outcome(first, over)
            await ends_while_docker_is_dead(machine, first, launches)
        await asyncio.to_thread(machine.start)
        async with opened(settings, [machine]) as engine:
            found = await units(engine)
            before = (await ended(engine, run_of(over))).units[0]
    for name in ("well", "failed"):
        assert (found[name].state, found[name].reason) == (State.CRASHED, Reason.NODE_LOST), found[name]
        assert (found[name].message, found[name].exit_code) == (NOT_KNOWN, None)
    assert (found["noted"].reason, found["noted"].exit_code) == (Reason.PROGRAM_FAILED, 3)
    assert (found["noted-well"].state, found["noted-well"].exit_code) == (State.EXITED, 0)
    seen = (Reason.PROGRAM_FAILED, 4) if watched else (Reason.NODE_LOST, None)
    assert (before.reason, before.exit_code) == seen


async def test_one_that_was_to_be_stopped_was_stopped_if_nobody_knows_how_it_ended(
    hosts: Hosts, tmp_path: Path
) -> None:
    machine, settings, launch = hosts.hosts[0], settings_for(hosts, tmp_path), a_launch(program("exit 0"))
    async with left_behind(settings, machine) as first:
        await outcome(first, launch)
    await asyncio.to_thread(killed, machine)
    async with opened(settings, [machine]) as engine:
        await engine.stop(run_of(launch), 5)
        [unit] = (await ended(engine, run_of(launch))).units
        assert (unit.state, unit.reason, unit.exit_code) == (State.STOPPED, Reason.STOPPED_BY_USER, None)


# -- an orderly restart ------------------------------------------------------------------------------------------------


async def test_nodes_that_have_ended_and_wait_for_each_other_have_ended_when_docker_restarts(
    engine: DockerEngine, hosts: Hosts
) -> None:
    launch = a_launch("echo done", nodes=2)
    await engine.start(launch)
    for rank in (0, 1):
        await printed(engine, run_of(launch), "done", rank)
    await asyncio.to_thread(hosts.hosts[0].restart)
    report = await ended(engine, run_of(launch))
    assert [(unit.state, unit.exit_code) for unit in report.units] == [(State.EXITED, 0)] * 2
    await answering(engine)


async def test_what_ends_well_because_docker_tells_it_to_was_ended_by_docker(
    engine: DockerEngine, hosts: Hosts
) -> None:
    launch = a_launch("trap 'exit 0' TERM; echo up; sleep 600 & wait")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    await asyncio.to_thread(hosts.hosts[0].restart)
    [unit] = (await ended(engine, run_of(launch))).units
    await answering(engine)
    assert (unit.state, unit.reason, unit.message) == (State.CRASHED, Reason.NODE_LOST, ENDED_BY)
