"""What every engine must do. An engine's tests inherit this class and give it an `engine`."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.volumes import AccessMode, Phase
from penstock.engines.base import Engine, Presence, Run
from tests.engines.launches import a_launch, a_volume, ended, log_of, outcome, run_of, the_account


class EngineContract:
    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    # -- what there is -------------------------------------------------------------------------------------------

    async def test_it_has_a_node_with_cpus_and_memory(self, engine: Engine) -> None:
        nodes = await engine.nodes()
        assert nodes
        assert all(node.cpus_milli > 0 and node.memory_bytes > 0 for node in nodes)

    async def test_one_storage_class_is_the_default(self, engine: Engine) -> None:
        assert [known.default for known in await engine.storage_classes()].count(True) == 1

    # -- volumes -------------------------------------------------------------------------------------------------

    async def test_a_volume_is_bound_once_made_and_lost_when_it_is_not_there(self, engine: Engine) -> None:
        made, never = a_volume(), a_volume()
        await engine.create_volume(made, the_account())
        await engine.create_volume(made, the_account())
        reports = await engine.volume_reports([made, never])
        assert reports[made.id].phase is Phase.Bound
        assert reports[never.id].phase is Phase.Lost
        assert reports[never.id].message

    async def test_what_one_run_writes_to_a_volume_the_next_one_reads(self, engine: Engine) -> None:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        await outcome(engine, a_launch("echo kept > /data/file", {"/data": volume}))
        _, log = await outcome(engine, a_launch("cat /elsewhere/file", {"/elsewhere": volume}))
        assert log == "kept\n"
        assert await engine.volume_usage(volume) > 0

    async def test_a_read_only_volume_cannot_be_written(self, engine: Engine) -> None:
        volume = a_volume(access_modes=(AccessMode.ReadOnlyMany,))
        await engine.create_volume(volume, the_account())
        report, log = await outcome(engine, a_launch("touch /data/file", {"/data": volume}))
        assert report.units[0].exit_code == 1
        assert "Read-only file system" in log

    async def test_a_deleted_volume_is_gone_and_deleting_it_again_is_fine(self, engine: Engine) -> None:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        await engine.delete_volume(volume)
        await engine.delete_volume(volume)
        assert (await engine.volume_reports([volume]))[volume.id].phase is Phase.Lost

    # -- runs ----------------------------------------------------------------------------------------------------

    async def test_a_run_nobody_started_is_absent(self, engine: Engine) -> None:
        assert (await engine.observe(Run("nosuchid"))).presence is Presence.absent

    async def test_a_run_that_ends_with_0_has_exited(self, engine: Engine) -> None:
        report, log = await outcome(engine, a_launch("echo hello; echo again >&2"))
        unit = report.units[0]
        assert (report.presence, unit.state, unit.reason) == (Presence.ended, State.EXITED, Reason.FINISHED)
        assert unit.exit_code == 0
        assert unit.started_at is not None
        assert unit.ended_at is not None
        assert unit.started_at <= unit.ended_at
        assert sorted(log.splitlines()) == ["again", "hello"]  # two streams: a cluster keeps no order between them

    async def test_a_run_that_ends_with_another_code_has_crashed_with_it(self, engine: Engine) -> None:
        report, _ = await outcome(engine, a_launch("exit 7"))
        unit = report.units[0]
        assert (unit.state, unit.reason, unit.exit_code) == (State.CRASHED, Reason.PROGRAM_FAILED, 7)
        assert unit.message == "run ended with code 7."

    async def test_a_run_killed_by_a_signal_says_which(self, engine: Engine) -> None:
        report, _ = await outcome(engine, a_launch("kill -SEGV $$"))
        assert report.units[0].exit_code == 139
        assert "signal SEGV" in (report.units[0].message or "")

    async def test_a_failing_command_in_run_does_not_end_it(self, engine: Engine) -> None:
        report, log = await outcome(engine, a_launch("false\necho on we go"))
        assert (report.units[0].exit_code, log) == (0, "on we go\n")

    async def test_a_failing_command_in_setup_ends_it_before_run(self, engine: Engine) -> None:
        report, log = await outcome(engine, a_launch("echo ran", setup="echo setting up\n(exit 3)\necho not this"))
        unit = report.units[0]
        assert (unit.state, unit.reason, unit.exit_code) == (State.CRASHED, Reason.SETUP_FAILED, 3)
        assert unit.message == "setup ended with code 3; run did not start."
        assert log == "setting up\n"

    async def test_a_setup_that_exits_with_0_is_not_a_success(self, engine: Engine) -> None:
        report, _ = await outcome(engine, a_launch("echo ran", setup="exit 0"))
        assert report.units[0].reason is Reason.SETUP_FAILED
        assert report.units[0].exit_code != 0

    async def test_what_setup_exports_and_enters_holds_in_run(self, engine: Engine) -> None:
        setup = "export COLOUR=blue; mkdir here; cd here; greet() { echo hi; }"
        _, log = await outcome(engine, a_launch("echo $COLOUR; basename $PWD; greet; false; echo still", setup=setup))
        assert log == "blue\nhere\nhi\nstill\n"

    async def test_the_environment_reaches_every_node_with_ours_winning(self, engine: Engine) -> None:
        envs = {"TEXT": 'it\'s "quoted" $HOME\nand two lines', "NODE_RANK": "99"}
        names = "TEXT NODE_RANK NUM_NODES MASTER_PORT PENSTOCK_TASK_ID SKYPILOT_NODE_RANK SKYPILOT_NUM_NODES"
        launch = a_launch(f'for name in {names}; do echo "${{!name}}"; done', envs=envs, nodes=2)
        await engine.start(launch)
        await ended(engine, run_of(launch))
        for rank in (0, 1):
            log = (await log_of(engine, run_of(launch), rank)).decode()
            assert log == f"{envs['TEXT']}\n{rank}\n2\n29500\n{launch.workload_id}\n{rank}\n2\n"

    async def test_started_twice_it_runs_once(self, engine: Engine) -> None:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        launch = a_launch("echo ran >> /data/times; cat /data/times", {"/data": volume})
        await asyncio.gather(*(engine.start(launch) for _ in range(4)))
        await ended(engine, run_of(launch))
        await engine.start(launch)
        assert await log_of(engine, run_of(launch)) == b"ran\n"

    async def test_a_node_that_fails_ends_the_others_and_is_the_reason(self, engine: Engine) -> None:
        launch = a_launch("[ $NODE_RANK = 1 ] && exit 5; sleep 600", nodes=3)
        report, _ = await outcome(engine, launch)
        assert [unit.reason for unit in report.units] == [
            Reason.ANOTHER_NODE_ENDED,
            Reason.PROGRAM_FAILED,
            Reason.ANOTHER_NODE_ENDED,
        ]
        assert report.units[1].exit_code == 5
        assert report.units[0].state is State.STOPPED
        assert "Node 1 ended with code 5" in (report.units[0].message or "")

    async def test_a_node_that_succeeds_leaves_the_others_alone(self, engine: Engine) -> None:
        report, _ = await outcome(engine, a_launch("[ $NODE_RANK = 0 ] || sleep 0.3", nodes=2))
        assert [unit.state for unit in report.units] == [State.EXITED, State.EXITED]

    async def test_over_its_max_duration_it_ends_with_that_reason(self, engine: Engine) -> None:
        report, _ = await outcome(engine, a_launch("sleep 600", max_duration=1))
        unit = report.units[0]
        assert (unit.state, unit.reason) == (State.CRASHED, Reason.TIME_LIMIT)
        assert unit.message == "It ran longer than max_duration (1s)."
        assert unit.exit_code

    # -- stopped before, and removed ------------------------------------------------------------------------------

    async def test_stopped_before_it_started_it_never_runs(self, engine: Engine) -> None:
        launch = a_launch("echo ran")
        await engine.stop(run_of(launch), 5)
        report, log = await outcome(engine, launch)
        assert (report.units[0].state, report.units[0].reason) == (State.STOPPED, Reason.STOPPED_BY_USER)
        assert log == ""

    async def test_a_removed_run_is_absent_and_removing_it_again_is_fine(self, engine: Engine) -> None:
        launch = a_launch("true")
        await outcome(engine, launch)
        assert run_of(launch) in await engine.runs()
        await engine.remove(run_of(launch))
        await engine.remove(run_of(launch))
        assert run_of(launch) not in await engine.runs()
        assert (await engine.observe(run_of(launch))).presence is Presence.absent

    # -- logs ----------------------------------------------------------------------------------------------------

    async def test_bytes_that_are_not_text_come_back_as_they_were(self, engine: Engine) -> None:
        launch = a_launch("printf '\\xff\\x00\\xfe no newline'")
        await outcome(engine, launch)
        assert await log_of(engine, run_of(launch)) == b"\xff\x00\xfe no newline"

    async def test_the_tail_is_the_last_lines(self, engine: Engine) -> None:
        launch = a_launch("seq 1 20000; printf unfinished")
        await outcome(engine, launch)
        assert await log_of(engine, run_of(launch), tail=2) == b"20000\nunfinished"
        assert await log_of(engine, run_of(launch), tail=0) == b""
        assert (await log_of(engine, run_of(launch), tail=15001)).startswith(b"5001\n")
        assert (await log_of(engine, run_of(launch), tail=50000)).startswith(b"1\n2\n")

    async def test_since_leaves_out_what_was_printed_before(self, engine: Engine) -> None:
        launch = a_launch("echo early; sleep 2.2; echo late")
        report, _ = await outcome(engine, launch)
        assert report.units[0].ended_at
        half = report.units[0].ended_at - timedelta(seconds=1)
        assert await log_of(engine, run_of(launch), since=half) == b"late\n"
        assert await log_of(engine, run_of(launch), since=half - timedelta(hours=1)) == b"early\nlate\n"
        assert await log_of(engine, run_of(launch), since=half + timedelta(hours=1)) == b""

    async def test_a_follower_waits_for_the_start_and_ends_with_the_node(self, engine: Engine) -> None:
        launch = a_launch("echo one; sleep 0.2; echo two")
        following = asyncio.create_task(log_of(engine, run_of(launch), follow=True))
        await asyncio.sleep(0)
        await engine.start(launch)
        assert await asyncio.wait_for(following, 30) == b"one\ntwo\n"
