"""Arrays on this machine: places, long arrays, supervisors that die in the middle, and disks that fill up."""

from __future__ import annotations

import asyncio
import errno
import json
import marshal
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from penstock.domain.states import Reason, State
from penstock.engines.base import Presence, Run
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.state.snapshot import RunReader
from penstock.engines.local.supervisor import array as array_module
from penstock.engines.local.supervisor.array import TRIES, IndexQueue
from penstock.settings import Settings
from tests.engines.contract.nodes import opened, processes_with
from tests.engines.launches import a_volume, an_array, ended, log_of, printed, run_of, the_account

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


def directory_of(settings: Settings, run: Run) -> Path:
    return settings.data_dir / "runs" / f"{run.workload_id}-{run.attempt}"


def supervisor_of(settings: Settings, run: Run) -> int:
    return int(json.loads((directory_of(settings, run) / "began").read_text())["pid"])


async def test_an_index_has_the_gpus_of_its_place_for_itself(engine: LocalEngine) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    mine = "/data/$CUDA_VISIBLE_DEVICES"
    launch = an_array(
        f"mkdir {mine} && sleep 0.2 && rmdir {mine} && echo $CUDA_VISIBLE_DEVICES",
        6,
        2,
        {"/data": volume},
        gpus=(("GPU-a",), ("GPU-b",)),
    )
    await engine.start(launch)
    await ended(engine, run_of(launch))
    assert {await log_of(engine, run_of(launch), index) for index in range(6)} == {b"GPU-a\n", b"GPU-b\n"}


async def test_max_duration_counts_for_each_index(engine: LocalEngine) -> None:
    launch = an_array("[ $JOB_COMPLETION_INDEX = 1 ] && sleep 600; sleep 1.5", 3, 1, max_duration=2)
    await engine.start(launch)
    found = await ended(engine, run_of(launch))
    assert [unit.reason for unit in found.units] == [Reason.FINISHED, Reason.TIME_LIMIT, Reason.FINISHED]
    assert found.units[1].message == "It ran longer than max_duration (2s)."


async def test_without_a_sandbox_each_index_has_a_home_of_its_own(place: Path) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", sandbox="none")
    async with opened(settings) as engine:
        launch = an_array("ls ~; touch ~/mine; echo $JOB_COMPLETION_INDEX; (setsid sleep 600 &)", 3, 1)
        await engine.start(launch)
        found = await ended(engine, run_of(launch))
        assert {unit.state for unit in found.units} == {State.EXITED}
        assert [await log_of(engine, run_of(launch), index) for index in range(3)] == [b"0\n", b"1\n", b"2\n"]
        await _none_left(launch.workload_id)


async def test_stopped_before_it_began_no_index_ever_starts(engine: LocalEngine) -> None:
    launch = an_array("echo ran", 3, 2)
    await engine.stop(run_of(launch), 5)
    await engine.start(launch)
    found = await ended(engine, run_of(launch))
    assert [(unit.index, unit.state, unit.message) for unit in found.units] == [
        (index, State.STOPPED, "never started") for index in range(3)
    ]


async def test_a_long_array_holds_no_more_than_what_runs(engine: LocalEngine, settings: Settings) -> None:
    launch = an_array("echo $JOB_COMPLETION_INDEX", 10_000, 4, indexes=tuple(range(9_800, 10_000)))
    run_dir = directory_of(settings, run_of(launch))
    await engine.start(launch)
    plan = marshal.loads((run_dir / "plan").read_bytes())
    assert len(plan["ranks"]) == 4
    folders, handles = [], []
    changes = engine.changes()
    while (found := await engine.observe(run_of(launch))).presence is Presence.running:
        folders.append(len(list(run_dir.glob("rank-*"))))
        handles.append(len(list(Path(f"/proc/{supervisor_of(settings, run_of(launch))}/fd").iterdir())))
        async with asyncio.timeout(60):
            await anext(changes)
    assert max(folders) <= 4
    assert max(handles) < 100
    assert [unit.index for unit in found.units] == list(range(9_800, 10_000))
    assert {unit.state for unit in found.units} == {State.EXITED}
    assert await log_of(engine, run_of(launch), 9_999) == b"9999\n"
    assert not list(run_dir.glob("rank-*"))


async def test_what_did_not_change_is_not_read_again(engine: LocalEngine, settings: Settings) -> None:
    launch = an_array("echo up; [ $JOB_COMPLETION_INDEX = 0 ] || sleep 600", 3, 1)
    await engine.start(launch)
    await printed(engine, run_of(launch), "up", 1)
    reader = RunReader(directory_of(settings, run_of(launch)), 1)
    first, second = reader.read().units, reader.read().units
    assert [(unit.index, unit.state) for unit in first] == [(0, State.EXITED), (1, State.RUNNING)]
    assert all(one is other for one, other in zip(first, second, strict=True))


async def test_a_supervisor_killed_in_the_middle_leaves_what_was_known(engine: LocalEngine, settings: Settings) -> None:
    launch = an_array("echo up; [ $JOB_COMPLETION_INDEX -lt 2 ] || sleep 600", 6, 2)
    await engine.start(launch)
    for index in (2, 3):
        await printed(engine, run_of(launch), "up", index)
    following = asyncio.create_task(log_of(engine, run_of(launch), 5, follow=True))
    await asyncio.sleep(0)
    os.kill(supervisor_of(settings, run_of(launch)), signal.SIGKILL)
    found = await ended(engine, run_of(launch))
    assert found.presence is Presence.lost
    assert [(unit.index, unit.state) for unit in found.units] == [
        (0, State.EXITED),
        (1, State.EXITED),
        (2, State.RUNNING),
        (3, State.RUNNING),
    ]
    assert await asyncio.wait_for(following, 10) == b""
    assert processes_with(launch.workload_id) == []
    await engine.start(launch)
    assert (await engine.observe(run_of(launch))).presence is Presence.lost
    await engine.settle(run_of(launch), 0)
    assert not list(directory_of(settings, run_of(launch)).glob("rank-*"))


async def test_a_supervisor_killed_at_any_moment_of_an_array_leaves_no_process(
    engine: LocalEngine, settings: Settings
) -> None:
    for _ in range(10):
        launch = an_array("true", 500, 3)
        await engine.start(launch)
        await asyncio.sleep(random.uniform(0, 0.3))
        os.kill(supervisor_of(settings, run_of(launch)), signal.SIGKILL)
        assert (await ended(engine, run_of(launch))).presence is Presence.lost
        await _none_left(launch.workload_id)
        await engine.remove(run_of(launch))


async def test_the_next_server_adopts_an_array(settings: Settings) -> None:
    launch = an_array("echo up; [ $JOB_COMPLETION_INDEX != 1 ] || sleep 600", 4, 1)
    first = LocalEngine(settings)
    await first.open()
    await first.start(launch)
    await printed(first, run_of(launch), "up", 1)
    await first.close()
    async with opened(settings) as second:
        found = await second.observe(run_of(launch))
        assert [(unit.index, unit.state) for unit in found.units] == [(0, State.EXITED), (1, State.RUNNING)]
        await second.stop(run_of(launch), 0)
        found = await ended(second, run_of(launch))
        assert [unit.state for unit in found.units] == [State.EXITED, *[State.STOPPED] * 3]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_an_index_that_cannot_start_is_tried_again(engine: LocalEngine, settings: Settings) -> None:
    launch = an_array("echo up; until [ -e /tmp/go ]; do sleep 0.02; done; [ $JOB_COMPLETION_INDEX = 0 ]", 2, 1)
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    run_dir = directory_of(settings, run_of(launch))
    obstacle = run_dir / "rank-0" / "workdir" / "mounted"
    obstacle.mkdir()
    if os.system(f"mount -t tmpfs tmpfs {obstacle}") != 0:
        pytest.skip("nothing can be mounted here")
    try:
        (run_dir / "rank-0" / "tmp" / "go").touch()
        async with asyncio.timeout(30):
            while (run_dir / "supervisor.log").read_text().count("busy") < 2:
                await asyncio.sleep(0.02)
    finally:
        os.system(f"umount -l {obstacle}")  # whoever tries to remove it may be in it
    await printed(engine, run_of(launch), "up", 1)
    (run_dir / "rank-0" / "tmp" / "go").touch()
    found = await ended(engine, run_of(launch))
    assert [unit.exit_code for unit in found.units] == [0, 1]


def test_what_an_earlier_version_wrote_is_understood(place: Path) -> None:
    began = {"boot_id": "x", "pid": 1, "nodes": 2, "gpus": [], "at": 1.0, "cgroups": [], "log_limit": "256Mi"}
    (place / "began").write_text(json.dumps(began))
    end = {"state": "CRASHED", "reason": "PROGRAM_FAILED", "message": "run ended with code 3.", "exit_code": 3}
    end |= {"rank": 1, "started_at": 2.0, "ended_at": 3.0, "peak_memory_bytes": None}
    lines = [{"rank": 0, "event": "go", "at": 2.0}, {"rank": 1, "event": "go", "at": 2.0}, end | {"event": "ended"}]
    (place / "events").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"rank": 0, "ev')
    found = RunReader(place, 1).read()
    assert found.presence is Presence.lost
    assert [(unit.index, unit.rank, unit.state) for unit in found.units] == [
        (0, 0, State.RUNNING),
        (0, 1, State.CRASHED),
    ]
    (place / "result.json").write_text(json.dumps({"units": [end | {"rank": 0}, end]}))
    assert [(unit.index, unit.rank) for unit in RunReader(place, 1).read().units] == [(0, 0), (0, 1)]


def test_that_the_disk_is_full_is_no_failed_try_to_start_an_index(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_module, "PAUSE", 0.01)
    node = {"folder": str(place / "rank-0"), "cgroups": [], "kept": False}
    array = IndexQueue({"ranks": [node], "array": [0, 1]}, -1)
    full, other = OSError(errno.ENOSPC, "full"), OSError(errno.EAGAIN, "no process")
    tries = 0
    for error in [full] * 2 * TRIES + [other] * (TRIES - 1):
        assert array.put_back(0, 1, tries, error)
        _settle(array)
        _, _, tries = array.take() or pytest.fail("it is not to be started again")
    assert not array.put_back(0, 1, tries, other)
    _settle(array)


def _settle(array: IndexQueue) -> None:
    while array.handles:
        time.sleep(0.01)
        array.cleaned()


async def _none_left(mark: str) -> None:
    """Return once no process is left: a supervisor is there for an instant after it wrote how its run ended."""
    async with asyncio.timeout(10):
        while processes_with(mark):
            await asyncio.sleep(0.01)
