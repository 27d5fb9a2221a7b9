"""What every engine must do when work is stopped. An engine's tests inherit this class and give it an `engine`."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.domain.states import Reason, State
from penstock.engines.base import Engine, Launch
from tests.engines.launches import a_launch, a_volume, ended, log_of, outcome, printed, run_of, the_account

SAVE = """
import os, signal, sys, time
def save(*_):
    os.write(1, b"saving\\n")  # print() may be interrupted by the signal, and cannot be entered twice
    time.sleep(0.4)
    os.write(1, b"saved\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
os.write(1, b"up\\n")
while True:
    time.sleep(0.05)  # signal.pause() would miss one that comes just before it
"""
"""A program that takes its time to save its work when it is told to end."""
PROGRAM = 'python3 -c "$SAVE"'
WAYS = {
    "alone": PROGRAM,
    "in place of the shell": f"exec {PROGRAM}",
    "in the background": f"{PROGRAM} & wait",
    "in a pipeline": f"{PROGRAM} | tee -a $HOME/output",
    "before other lines": f"{PROGRAM}\necho not this",
    "in a script": f"bash -c '{PROGRAM}; echo not this'; echo nor this",
    "in a subshell": f"({PROGRAM}; echo not this) && echo nor this || echo nor that",
    "beside a shell that exits": f"trap 'exit 0' TERM; {PROGRAM} & wait",
}


class StoppingContract:
    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_stop_lets_the_program_save_its_work(self, engine: Engine, way: str) -> None:
        launch = _saving(WAYS[way])
        await _stop_once_up(engine, launch)
        report = await ended(engine, run_of(launch))
        assert (report.units[0].state, report.units[0].reason) == (State.STOPPED, Reason.STOPPED_BY_USER)
        assert await log_of(engine, run_of(launch)) == b"up\nsaving\nsaved\n"

    async def test_a_stop_in_setup_lets_it_save_and_nothing_else_runs(self, engine: Engine) -> None:
        launch = _saving("echo not this", setup=f"{PROGRAM}\necho nor this")
        await _stop_once_up(engine, launch)
        report = await ended(engine, run_of(launch))
        assert (report.units[0].state, report.units[0].reason) == (State.STOPPED, Reason.STOPPED_BY_USER)
        assert await log_of(engine, run_of(launch)) == b"up\nsaving\nsaved\n"

    async def test_a_trap_in_run_is_heard(self, engine: Engine) -> None:
        launch = a_launch("trap 'echo bye; exit 0' TERM; echo up; sleep 600 & wait")
        await _stop_once_up(engine, launch)
        report = await ended(engine, run_of(launch))
        assert (report.units[0].state, report.units[0].exit_code) == (State.STOPPED, 0)
        assert await log_of(engine, run_of(launch)) == b"up\nbye\n"

    async def test_at_the_end_of_its_time_it_saves_its_work_too(self, engine: Engine) -> None:
        report, log = await outcome(engine, _saving(PROGRAM, max_duration=2, stop_grace=600))
        assert (report.units[0].state, report.units[0].reason) == (State.CRASHED, Reason.TIME_LIMIT)
        assert report.units[0].exit_code
        assert log == "up\nsaving\nsaved\n"

    async def test_when_another_node_fails_it_saves_its_work_too(self, engine: Engine) -> None:
        volume = a_volume("data")
        await engine.create_volume(volume, the_account())
        folder = "${PENSTOCK_VOLUME_DATA:-/data}"
        fails = f"until grep -q up {folder}/said; do sleep 0.02; done 2>/dev/null; exit 3"
        run = f"[ $NODE_RANK = 0 ] || {{ {fails}; }}; {PROGRAM} | tee {folder}/said"
        report, log = await outcome(engine, _saving(run, mounts={"/data": volume}, nodes=2, stop_grace=600))
        assert [unit.reason for unit in report.units] == [Reason.ANOTHER_NODE_ENDED, Reason.PROGRAM_FAILED]
        assert log == "up\nsaving\nsaved\n"

    async def test_it_has_all_of_its_grace_and_is_killed_after_it(self, engine: Engine) -> None:
        launch = a_launch("trap 'echo not yet' TERM; (trap '' TERM; sleep 600) & echo up; while :; do sleep 0.05; done")
        await _stop_once_up(engine, launch)
        await printed(engine, run_of(launch), "not yet")
        await engine.stop(run_of(launch), 0)
        report = await ended(engine, run_of(launch))
        assert (report.units[0].state, report.units[0].exit_code) == (State.STOPPED, 137)

    async def test_what_has_no_handler_ends_at_once(self, engine: Engine) -> None:
        launch = a_launch("sleep 600 | cat & (sleep 600; echo not this) & echo up; sleep 600 < <(sleep 600)")
        await _stop_once_up(engine, launch)
        report = await ended(engine, run_of(launch))
        assert report.units[0].state is State.STOPPED
        assert report.units[0].exit_code != 137
        assert await log_of(engine, run_of(launch)) == b"up\n"


def _saving(run: str, **fields: Any) -> Launch:
    return a_launch(run, envs={"SAVE": SAVE}, **fields)


async def _stop_once_up(engine: Engine, launch: Launch) -> None:
    """With a grace longer than any test waits."""
    await engine.start(launch)
    await printed(engine, run_of(launch), "up\n")
    await engine.stop(run_of(launch), 600)
