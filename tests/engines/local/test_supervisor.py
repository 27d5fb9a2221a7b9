"""Supervisors outlive their server; nothing outlives a supervisor."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.domain.states import Reason, State
from penstock.engines.base import Presence, Run
from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings
from tests.engines.contract.nodes import opened, processes_with
from tests.engines.kills import kill_supervisors
from tests.engines.launches import a_launch, ended, log_of, outcome, printed, run_of, the_account
from tests.sampling import KILLS

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PIDFD_GETFD = 438


def supervisor_of(settings: Settings, run: Run) -> int:
    began = settings.data_dir / "runs" / f"{run.workload_id}-{run.attempt}" / "began"
    return int(json.loads(began.read_text())["pid"])


async def test_a_killed_supervisor_takes_everything_along_and_the_outcome_is_unknown(
    engine: LocalEngine, settings: Settings
) -> None:
    launch = a_launch("(trap '' TERM; setsid sleep 600) & sleep 600 & echo up; wait", nodes=2)
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    following = asyncio.create_task(log_of(engine, run_of(launch), follow=True))
    os.kill(supervisor_of(settings, run_of(launch)), signal.SIGKILL)
    report = await ended(engine, run_of(launch))
    assert report.presence is Presence.lost
    assert report.message == "Its supervisor was killed, and the program with it; the outcome is not known."
    assert processes_with(launch.workload_id) == []
    assert await asyncio.wait_for(following, 10) == b"up\n"
    await engine.start(launch)
    assert (await engine.observe(run_of(launch))).presence is Presence.lost


async def test_who_follows_a_killed_supervisors_log_is_let_go_by_whoever_sees_it_first(
    engine: LocalEngine, settings: Settings
) -> None:
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    following = asyncio.create_task(log_of(engine, run_of(launch), follow=True))
    await asyncio.sleep(0)
    os.kill(supervisor_of(settings, run_of(launch)), signal.SIGKILL)
    while (await engine.observe(run_of(launch))).presence is Presence.running:
        pass  # without giving the loop a turn: the engine's own watch must not be needed
    assert await asyncio.wait_for(following, 30) == b"up\n"


async def test_what_a_killed_supervisor_left_waiting_is_ended_and_does_not_read_as_running(
    engine: LocalEngine, settings: Settings
) -> None:
    """As bubblewrap's child may be, once in thousands: alive for ever, holding the lock of the tree."""
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    supervisor = supervisor_of(settings, run_of(launch))
    tree = int(Path(f"/proc/{supervisor}/cmdline").read_text().split("\0")[8])
    held = ctypes.CDLL(None).syscall(PIDFD_GETFD, os.pidfd_open(supervisor), tree, 0)
    waiting = subprocess.Popen(["sleep", "600"], pass_fds=[held])
    os.close(held)
    os.kill(supervisor, signal.SIGKILL)
    assert (await ended(engine, run_of(launch))).presence is Presence.lost
    assert waiting.wait(10) == -signal.SIGKILL
    assert processes_with(launch.workload_id) == []


async def test_a_supervisor_killed_while_it_waits_for_a_stop_takes_everything_along(
    engine: LocalEngine, settings: Settings
) -> None:
    launch = a_launch("trap 'echo not yet' TERM; echo up; while :; do sleep 0.05; done")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    await engine.stop(run_of(launch), 600)
    await printed(engine, run_of(launch), "not yet")
    os.kill(supervisor_of(settings, run_of(launch)), signal.SIGKILL)
    assert (await ended(engine, run_of(launch))).presence is Presence.lost
    assert processes_with(launch.workload_id) == []


@needs_root
async def test_a_killed_supervisors_groups_and_directories_are_removed(engine: LocalEngine, settings: Settings) -> None:
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    run_dir = settings.data_dir / "runs" / f"{launch.workload_id}-1"
    groups = [Path(path) for path in json.loads((run_dir / "began").read_text())["cgroups"]]
    assert all(path.is_dir() for path in groups)
    os.kill(supervisor_of(settings, run_of(launch)), signal.SIGKILL)
    await ended(engine, run_of(launch))
    await engine.settle(run_of(launch), 0)
    assert not any(path.exists() for path in groups)
    assert not list(run_dir.glob("rank-*"))


async def test_after_a_restart_of_the_machine_the_message_says_so(engine: LocalEngine, settings: Settings) -> None:
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    os.kill(supervisor_of(settings, run_of(launch)), signal.SIGKILL)
    await ended(engine, run_of(launch))
    began = settings.data_dir / "runs" / f"{launch.workload_id}-1" / "began"
    began.write_text(json.dumps(json.loads(began.read_text()) | {"boot_id": "another"}))
    report = await engine.observe(run_of(launch))
    assert report.message == "The machine restarted while it ran; the outcome is not known."


async def test_the_next_server_adopts_what_runs(settings: Settings) -> None:
    launch = a_launch("echo up; while [ ! -e ~/x ]; do sleep 0.02; [ -e /tmp/stop ] && break; done; exit 4")
    first = LocalEngine(settings)
    await first.open()
    await first.start(launch)
    await printed(first, run_of(launch), "up")
    await first.close()
    async with opened(settings) as second:
        assert (await second.observe(run_of(launch))).presence is Presence.running
        assert (await second.observe(run_of(launch))).units[0].state is State.RUNNING
        await second.stop(run_of(launch), 5)
        report = await ended(second, run_of(launch))
        assert report.units[0].reason is Reason.STOPPED_BY_USER
        assert await log_of(second, run_of(launch)) == b"up\n"


async def test_a_server_killed_while_it_starts_something_leaves_one_run_or_none(place: Path) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks")
    for _ in range(10):
        launch = a_launch("echo ran >> ~/times; cat ~/times")
        text = launch.model_dump_json()
        starter = subprocess.Popen([sys.executable, "-m", "tests.engines.starts", str(place), text], stdout=-1)
        assert starter.stdout
        starter.stdout.readline()
        await asyncio.sleep(random.uniform(0, 0.04))
        starter.kill()
        starter.wait()
        starter.stdout.close()
        async with opened(settings) as engine:
            report, log = await outcome(engine, launch)
            assert report.presence is Presence.ended
            assert log == "ran\n"


async def test_a_supervisor_killed_at_any_moment_leaves_no_process(settings: Settings) -> None:
    lost = await kill_supervisors(settings, the_account())
    assert 0 < lost <= KILLS


@needs_root
@pytest.mark.parametrize("task", ["facts", "kill"])
def test_the_same_holds_for_an_ordinary_users_server(place: Path, task: str) -> None:
    home = place / "user"
    home.mkdir(mode=0o711)
    os.chown(home, 54322, 54322)
    command = [sys.executable, "-m", "tests.engines.as_user", task, "54322", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100 + KILLS)
    assert done.returncode == 0, done.stderr
    if task == "facts":
        facts = json.loads(done.stdout)
        assert facts == {
            "uid": "54322",
            "capabilities": ["0000000000000000"],
            "enforced": False,
            "read_only": "Read-only file system",
            "state": "EXITED",
            "hidden": True,
        }


@needs_root
async def test_over_its_memory_limit_it_is_out_of_memory(engine: LocalEngine) -> None:
    if not (await engine.nodes())[0].limits_enforced:
        pytest.skip("control groups cannot be written here")
    script = "/usr/bin/python3 -c 'x = bytearray(300 << 20)'"
    report, _ = await outcome(engine, a_launch(script, resources={"memory_bytes": 64 << 20}))
    unit = report.units[0]
    assert (unit.state, unit.reason, unit.exit_code) == (State.CRASHED, Reason.OUT_OF_MEMORY, 137)
    assert unit.message is not None
    assert unit.message.startswith("It went over its memory limit of 64Mi; it used up to ")
    assert unit.peak_memory_bytes
    assert unit.peak_memory_bytes <= 64 << 20


@needs_root
async def test_cpu_limits_are_set(engine: LocalEngine) -> None:
    if not (await engine.nodes())[0].limits_enforced:
        pytest.skip("control groups cannot be written here")
    program = "from time import *; end = time() + 1\nwhile time() < end: pass\nprint(process_time())"
    _, log = await outcome(engine, a_launch(f'/usr/bin/python3 -c "{program}"', resources={"cpus_milli": 300}))
    assert float(log) < 0.6


async def test_a_supervisor_whose_directory_is_taken_away_does_not_stay_for_ever(
    engine: LocalEngine, settings: Settings
) -> None:
    launch = a_launch("echo up; sleep 0.3")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    supervisor = os.pidfd_open(supervisor_of(settings, run_of(launch)))
    shutil.rmtree(settings.data_dir / "runs" / f"{launch.workload_id}-1")
    assert await asyncio.to_thread(select.select, [supervisor], [], [], 20) == ([supervisor], [], [])
    os.close(supervisor)
