"""kill -9 of the server between any two steps of a launch: after a restart one container, that ran once."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.domain.states import State
from penstock.domain.volumes import Volume
from penstock.engines.base import Launch, Presence
from penstock.engines.docker.engine import DockerEngine
from tests.engines.docker.engines import document, opened, settings_for
from tests.engines.launches import a_launch, a_volume, an_array, ended, log_of, outcome, printed, run_of, the_account
from tests.hosts.host import Host
from tests.hosts.lot import Hosts
from tests.sampling import WHOLE, sample

SAMPLE = 3
"""So many of the steps in a run that is not to be long."""
PROGRAM = "echo ran; echo $NODE_RANK $JOB_COMPLETION_INDEX >>/data/times"


async def killed(launch: Launch, machine: Host, place: Path, number: int, when: str) -> bool:
    """Whether it came that far."""
    program = [sys.executable, "-m", "tests.engines.docker.killed_server"]
    process = await asyncio.create_subprocess_exec(
        *program, str(place), machine.unix, launch.model_dump_json(), str(number), when
    )
    code = await asyncio.wait_for(process.wait(), 60)
    assert code in (0, -signal.SIGKILL)
    return code != 0


def one(mounts: dict[str, Volume]) -> Launch:
    return a_launch(PROGRAM, mounts)


def two_nodes(mounts: dict[str, Volume]) -> Launch:
    return a_launch(PROGRAM, mounts, nodes=2)


def three_indexes(mounts: dict[str, Volume]) -> Launch:
    return an_array(PROGRAM, 3, 2, mounts)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("launching", "when", "steps"),
    [
        (one, "before", range(1, 14)),
        (one, "after", range(1, 14, 3)),
        (two_nodes, "after", range(1, 20, 3)),
        (three_indexes, "after", range(1, 23, 3)),
    ],
    ids=["one-before", "one-after", "two_nodes-after", "three_indexes-after"],
)
async def test_killed_at_any_step_each_part_runs_once(
    hosts: Hosts, tmp_path: Path, launching: Callable[[dict[str, Volume]], Launch], when: str, steps: range
) -> None:
    """A step is a call that changes something; the last one is beyond what a launch takes."""
    machine, settings = hosts.hosts[0], settings_for(hosts, tmp_path)
    for number in sample(steps, SAMPLE):
        volume = a_volume()
        async with opened(settings, [machine]) as engine:
            await engine.create_volume(volume, the_account())
        launch = launching({"/data": volume})
        died = await killed(launch, machine, tmp_path, number, when)
        async with opened(settings, [machine]) as engine:
            await _goes_on(engine, launch, machine)
            _, times = await outcome(engine, a_launch("wc -l </data/times", {"/data": volume}))
            assert times == f"{launch.spec.parts}\n"
        if not died:
            return
    assert not WHOLE, f"a launch takes more than {steps[-1]} calls"


async def _goes_on(engine: DockerEngine, launch: Launch, machine: Host) -> None:
    """As the server does that comes after: it looks, and starts what nobody has begun."""
    run, parts = run_of(launch), launch.spec.parts
    engine.remind(launch)
    if (await engine.observe(run)).presence is Presence.absent:
        await engine.start(launch)
    report = await ended(engine, run, 90)
    assert [unit.state for unit in report.units] == [State.EXITED] * parts, report
    assert [await log_of(engine, run, part) for part in range(parts)] == [b"ran\n"] * parts
    found = machine.docker("ps", "-aq", "--filter", f"label=penstock.dev/workload={launch.workload_id}")
    assert len(found.split()) == parts
    await engine.remove(run)


async def test_a_new_server_goes_on_with_an_array_where_the_old_one_was(hosts: Hosts, tmp_path: Path) -> None:
    settings = settings_for(hosts, tmp_path)
    launch = an_array("echo up; sleep 2; echo $JOB_COMPLETION_INDEX", 3, 1)
    first = DockerEngine(settings)
    await first.open()
    await first.use_hosts([document(hosts.hosts[0])])
    await first.start(launch)
    await printed(first, run_of(launch), "up")
    await first.close()
    async with opened(settings, hosts.hosts[:1]) as engine:
        engine.remind(launch)
        report = await ended(engine, run_of(launch))
        assert [(unit.index, unit.state) for unit in report.units] == [(index, State.EXITED) for index in range(3)]
        assert [await log_of(engine, run_of(launch), index) for index in range(3)] == [
            b"up\n0\n",
            b"up\n1\n",
            b"up\n2\n",
        ]
