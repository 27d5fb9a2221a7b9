"""What every engine must do with arrays. An engine's tests inherit this class and give it an `engine`."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Scratch
from penstock.engines.base import Engine, Launch, Presence, Report
from tests.engines.launches import a_volume, an_array, ended, log_of, printed, run_of, the_account


class ArrayContract:
    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    async def test_each_index_is_told_which_it_is_and_has_a_log_and_a_state(self, engine: Engine) -> None:
        run = "echo $JOB_COMPLETION_INDEX of $NUM_NODES, rank $NODE_RANK, attempt $PENSTOCK_ATTEMPT"
        launch = an_array(run, 3, 2, envs={"JOB_COMPLETION_INDEX": "99"})
        report = await _run(engine, launch)
        assert report.presence is Presence.ended
        assert [(unit.attempt, unit.index, unit.rank) for unit in report.units] == [(1, 0, 0), (1, 1, 0), (1, 2, 0)]
        for unit in report.units:
            assert (unit.state, unit.reason, unit.exit_code) == (State.EXITED, Reason.FINISHED, 0)
            assert unit.started_at is not None
            assert unit.ended_at is not None
            assert unit.started_at <= unit.ended_at
            log = await log_of(engine, run_of(launch), unit.index)
            assert log.decode() == f"{unit.index} of 1, rank 0, attempt 1\n"

    async def test_an_index_that_fails_leaves_the_others_alone(self, engine: Engine) -> None:
        report = await _run(engine, an_array("[ $JOB_COMPLETION_INDEX != 1 ] || exit 3; sleep 0.5", 4, 2))
        assert [unit.state for unit in report.units] == [State.EXITED, State.CRASHED, State.EXITED, State.EXITED]
        failed = report.units[1]
        assert (failed.reason, failed.exit_code) == (Reason.PROGRAM_FAILED, 3)
        assert failed.message == "run ended with code 3."

    async def test_no_more_run_at_once_than_was_asked_for(self, engine: Engine) -> None:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        mine = "/data/runs.$JOB_COMPLETION_INDEX"
        launch = an_array(f"touch {mine}; ls /data | grep -c runs; sleep 0.3; rm {mine}", 6, 2, {"/data": volume})
        await _run(engine, launch)
        counts = [int(await log_of(engine, run_of(launch), index)) for index in range(6)]
        assert max(counts) <= 2

    async def test_each_index_has_scratch_and_home_of_its_own(self, engine: Engine) -> None:
        run = "ls /scratch /tmp | grep mine; touch /scratch/mine /tmp/mine; echo done"
        launch = an_array(run, 3, 1, scratch=(Scratch(path="/scratch"),))
        await _run(engine, launch)
        assert [await log_of(engine, run_of(launch), index) for index in range(3)] == [b"done\n"] * 3

    async def test_while_it_runs_there_is_a_unit_for_each_index_that_began(self, engine: Engine) -> None:
        launch = an_array("echo up; sleep 600", 3, 1)
        await engine.start(launch)
        await printed(engine, run_of(launch), "up")
        report = await engine.observe(run_of(launch))
        assert report.presence is Presence.running
        assert [(unit.index, unit.state) for unit in report.units] == [(0, State.RUNNING)]
        await engine.stop(run_of(launch), 0)
        await ended(engine, run_of(launch))

    async def test_a_stop_ends_those_that_run_and_the_others_never_start(self, engine: Engine) -> None:
        launch = an_array("echo up; sleep 600", 5, 2)
        await engine.start(launch)
        for index in (0, 1):
            await printed(engine, run_of(launch), "up", index)
        await engine.stop(run_of(launch), 600)
        report = await ended(engine, run_of(launch))
        assert report.presence is Presence.ended
        assert [unit.index for unit in report.units] == [0, 1, 2, 3, 4]
        assert {(unit.state, unit.reason) for unit in report.units} == {(State.STOPPED, Reason.STOPPED_BY_USER)}
        assert [unit.message for unit in report.units[2:]] == ["never started"] * 3
        assert [unit.started_at is not None for unit in report.units] == [True, True, False, False, False]
        assert [await log_of(engine, run_of(launch), index) for index in (0, 4)] == [b"up\n", b""]

    async def test_another_attempt_runs_only_the_indexes_it_is_told(self, engine: Engine) -> None:
        launch = an_array("echo $JOB_COMPLETION_INDEX $PENSTOCK_ATTEMPT", 5, 2, indexes=(1, 4), attempt=2)
        report = await _run(engine, launch)
        found = [(unit.attempt, unit.index, unit.state) for unit in report.units]
        assert found == [(2, 1, State.EXITED), (2, 4, State.EXITED)]
        assert [await log_of(engine, run_of(launch), index) for index in (1, 4)] == [b"1 2\n", b"4 2\n"]

    async def test_a_follower_waits_for_the_turn_of_its_index(self, engine: Engine) -> None:
        launch = an_array("echo $JOB_COMPLETION_INDEX; sleep 0.3", 3, 1)
        following = asyncio.create_task(log_of(engine, run_of(launch), 2, follow=True))
        await asyncio.sleep(0)
        await engine.start(launch)
        await ended(engine, run_of(launch))
        assert await asyncio.wait_for(following, 60) == b"2\n"

    async def test_started_twice_each_index_runs_once(self, engine: Engine) -> None:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        launch = an_array("echo $JOB_COMPLETION_INDEX >>/data/ran; cat /data/ran", 3, 1, {"/data": volume})
        await asyncio.gather(*(engine.start(launch) for _ in range(3)))
        await ended(engine, run_of(launch))
        await engine.start(launch)
        assert await log_of(engine, run_of(launch), 2) == b"0\n1\n2\n"


async def _run(engine: Engine, launch: Launch) -> Report:
    await engine.start(launch)
    return await ended(engine, run_of(launch))
