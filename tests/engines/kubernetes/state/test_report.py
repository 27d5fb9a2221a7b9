"""How runs end, as the engine reports them: each end is a real one on a real cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Array, Resources, Scratch, Unit
from penstock.engines.base import Presence, Report, Run
from penstock.engines.kubernetes.api.objects import Job, Pod
from tests.engines.kubernetes.observed import Observed, observed
from tests.engines.launches import a_launch
from tests.rig.cluster import Rig


@pytest.fixture
async def seen(rig: Rig, namespace: str, tmp_path: Path) -> AsyncIterator[Observed]:
    async with observed(rig, namespace, tmp_path) as seen:
        yield seen


def small(memory: str = "64Mi") -> Resources:
    return Resources(memory_bytes=int(memory.removesuffix("Mi")) << 20)


async def the_unit(seen: Observed, run: Run) -> Unit:
    return (await seen.ended(run)).units[0]


# by itself


async def test_a_run_nobody_started_is_absent(seen: Observed) -> None:
    assert seen.snapshots.report(Run("nosuchid")).presence is Presence.absent


async def test_one_that_ends_with_0_has_exited(seen: Observed) -> None:
    run = await seen.start(a_launch("echo hello; echo again"))
    unit = await the_unit(seen, run)
    assert (unit.state, unit.reason, unit.exit_code) == (State.EXITED, Reason.FINISHED, 0)
    assert unit.started_at
    assert unit.ended_at
    assert unit.started_at <= unit.ended_at
    assert unit.peak_memory_bytes
    assert await seen.log(run) == b"hello\nagain\n"


@pytest.mark.parametrize(
    ("script", "setup", "reason", "code", "said"),
    [
        ("exit 7", None, Reason.PROGRAM_FAILED, 7, "run ended with code 7."),
        ("kill -SEGV $$", None, Reason.PROGRAM_FAILED, 139, "run ended with code 139 (signal SEGV)."),
        ("echo ran", "exit 3", Reason.SETUP_FAILED, 3, "setup ended with code 3; run did not start."),
    ],
)
async def test_one_that_fails_says_how(
    seen: Observed, script: str, setup: str | None, reason: Reason, code: int, said: str
) -> None:
    unit = await the_unit(seen, await seen.start(a_launch(script, setup=setup)))
    assert (unit.state, unit.reason, unit.exit_code, unit.message) == (State.CRASHED, reason, code, said)


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("/no/such/program", 127, "The program /no/such/program was not found in the image."),
        ("no-such-program", 127, "The program no-such-program was not found in the image."),
        ("/etc/passwd", 126, "The program /etc/passwd cannot be executed: permission denied."),
    ],
)
async def test_a_program_that_cannot_be_started_says_so(seen: Observed, program: str, code: int, said: str) -> None:
    unit = await the_unit(seen, await seen.start(a_launch((program,))))
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.LAUNCH_FAILED)
    assert (unit.exit_code, unit.message) == (code, said)
    assert unit.started_at is None


# over a limit


async def test_out_of_memory_says_the_limit_and_the_peak(seen: Observed) -> None:
    eats = "python3 -c 'bytearray(300 << 20)'"
    unit = await the_unit(seen, await seen.start(a_launch(eats, resources=small("64Mi"))))
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.OUT_OF_MEMORY)
    assert unit.message == "It went over its memory limit of 64Mi; it used up to 64Mi."
    assert unit.peak_memory_bytes
    assert unit.exit_code == 137


async def test_a_full_scratch_disk_is_named_by_its_path(seen: Observed) -> None:
    fills = "head -c 60M /dev/zero > /scratch/big; sleep 600"
    launch = a_launch(fills, scratch=(Scratch(path="/scratch", size_bytes=20 << 20),))
    unit = await the_unit(seen, await seen.start(launch))
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.DISK_LIMIT)
    assert unit.message == "/scratch holds more than its size 20Mi."
    assert unit.started_at


async def test_more_than_its_disk_size_says_so(seen: Observed) -> None:
    launch = a_launch("head -c 60M /dev/zero > /big; sleep 600", resources=Resources(disk_bytes=20 << 20))
    unit = await the_unit(seen, await seen.start(launch))
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.DISK_LIMIT)
    assert unit.message == "It holds more outside its volumes than its disk_size 20Mi."
    assert unit.started_at


@pytest.mark.parametrize("program", ["sleep 600", ("sleep", "600")])
async def test_over_its_max_duration_it_ends_with_that_reason(seen: Observed, program: Any) -> None:
    unit = await the_unit(seen, await seen.start(a_launch(program, max_duration=1, stop_grace=1)))
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.TIME_LIMIT)
    assert unit.message == "It ran longer than max_duration (1s)."
    assert unit.exit_code


# several


async def test_a_node_that_fails_is_the_reason_for_the_others(seen: Observed) -> None:
    run = await seen.start(a_launch("[ $NODE_RANK = 1 ] && exit 5; sleep 600", nodes=3))
    report = await seen.ended(run)
    assert [unit.rank for unit in report.units] == [0, 1, 2]
    assert [unit.state for unit in report.units] == [State.STOPPED, State.CRASHED, State.STOPPED]
    assert (report.units[1].reason, report.units[1].exit_code) == (Reason.PROGRAM_FAILED, 5)
    assert report.units[0].reason is Reason.ANOTHER_NODE_ENDED
    assert report.units[0].message == "Node 1 ended with code 5; the others were stopped."


async def test_the_time_of_several_nodes_is_over_for_all(seen: Observed) -> None:
    report = await seen.ended(await seen.start(a_launch("sleep 600", nodes=2, max_duration=1, stop_grace=1)))
    assert {unit.reason for unit in report.units} == {Reason.TIME_LIMIT}


async def test_each_index_of_an_array_ends_for_itself(seen: Observed) -> None:
    launch = a_launch("echo $JOB_COMPLETION_INDEX; exit $JOB_COMPLETION_INDEX", array=Array(count=3))
    run = await seen.start(launch)
    report = await seen.ended(run)
    assert [(unit.index, unit.rank, unit.exit_code) for unit in report.units] == [(0, 0, 0), (1, 0, 1), (2, 0, 2)]
    assert [await seen.log(run, part) for part in range(3)] == [b"0\n", b"1\n", b"2\n"]


async def test_indexes_that_run_again_keep_their_numbers(seen: Observed) -> None:
    launch = a_launch("echo $JOB_COMPLETION_INDEX", array=Array(count=5), indexes=(1, 4), attempt=2)
    run = await seen.start(launch)
    report = await seen.ended(run)
    assert [(unit.attempt, unit.index, unit.state) for unit in report.units] == [
        (2, 1, State.EXITED),
        (2, 4, State.EXITED),
    ]
    assert [await seen.log(run, part) for part in (1, 4)] == [b"1\n", b"4\n"]


# ended by others


async def test_what_is_stopped_is_stopped_by_its_user(seen: Observed) -> None:
    run = await seen.start(a_launch("trap 'echo bye; exit 0' TERM; echo up; sleep 600 & wait"))
    await seen.printed(run, b"up\n")
    await seen.stop(run)
    unit = await the_unit(seen, run)
    assert (unit.state, unit.reason, unit.exit_code) == (State.STOPPED, Reason.STOPPED_BY_USER, 0)
    assert await seen.log(run) == b"up\nbye\n"


async def test_of_a_stopped_array_what_had_not_begun_never_starts(seen: Observed) -> None:
    run = await seen.start(a_launch("echo up; sleep 600", array=Array(count=3, parallelism=1), stop_grace=1))
    await seen.printed(run, b"up\n")
    running = seen.snapshots.report(run)
    assert [(unit.index, unit.state) for unit in running.units] == [(0, State.RUNNING)]
    await seen.stop(run)
    report = await seen.ended(run)
    assert {(unit.state, unit.reason) for unit in report.units} == {(State.STOPPED, Reason.STOPPED_BY_USER)}
    assert [unit.message for unit in report.units] == [None, "never started", "never started"]


async def test_what_ended_before_the_stop_keeps_its_own_end(seen: Observed) -> None:
    run = await seen.start(a_launch("[ $JOB_COMPLETION_INDEX = 0 ] || sleep 600", array=Array(count=2), stop_grace=1))
    await seen.until(run, lambda report: any(unit.state is State.EXITED for unit in report.units))
    await seen.stop(run)
    report = await seen.ended(run)
    assert [unit.state for unit in report.units] == [State.EXITED, State.STOPPED]


@pytest.mark.parametrize("how", [(), ("--grace-period=0", "--force")])
async def test_a_pod_deleted_with_kubectl_is_said(seen: Observed, how: tuple[str, ...]) -> None:
    run = await seen.start(a_launch("echo up; sleep 600", nodes=2, stop_grace=1))
    await seen.printed(run, b"up\n", 1)
    seen.kubectl("delete", "pod", seen.pod(run, 1).name, "--wait=false", *how)
    report = await seen.ended(run)
    assert (report.units[1].state, report.units[1].reason) == (State.CRASHED, Reason.DELETED_OUTSIDE)
    assert report.units[1].message == "Its pod was deleted in the cluster."
    assert report.units[0].reason is Reason.ANOTHER_NODE_ENDED
    assert report.units[0].message == "The pod of node 1 was deleted in the cluster; the others were stopped."


async def test_a_job_deleted_with_kubectl_is_said(seen: Observed) -> None:
    run = await seen.start(a_launch("echo up; sleep 600", stop_grace=1))
    await seen.printed(run, b"up\n")
    seen.kubectl("delete", "job", seen.cluster.jobs_of(run)[0].name, "--wait=false")
    unit = await the_unit(seen, run)
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.DELETED_OUTSIDE)
    assert unit.message == "Its Job was deleted in the cluster."
    assert (await seen.log(run)).startswith(b"up\n")


async def test_one_that_must_leave_its_node_was_evicted(seen: Observed) -> None:
    run = await seen.start(a_launch("echo up; sleep 600", stop_grace=1))
    await seen.printed(run, b"up\n")
    pod = seen.pod(run)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
    }
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
    seen.rig.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction))
    unit = await the_unit(seen, run)
    assert (unit.state, unit.reason) == (State.CRASHED, Reason.EVICTED)
    assert unit.message == f"It had to leave {pod.spec.node_name}, which is being emptied."


async def test_one_whose_place_a_higher_priority_takes_was_evicted(seen: Observed, rig: Rig) -> None:
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "test-high"},
        "value": 9,
    }
    rig.apply(high)
    run = await seen.start(a_launch("echo up; sleep 600", stop_grace=1), change=_asks(seen, "example.com/seat"))
    try:
        _seats(rig, "1")
        await seen.printed(run, b"up\n")
        node = seen.pod(run).spec.node_name
        other = await seen.start(
            a_launch("true"), change=_asks(seen, "example.com/seat", priorityClassName="test-high")
        )
        unit = await the_unit(seen, run)
        assert (unit.state, unit.reason) == (State.CRASHED, Reason.EVICTED)
        assert unit.message == f"Something of higher priority took its place on {node}."
        await seen.ended(other)
    finally:
        _seats(rig, None)


def _asks(seen: Observed, resource: str, **more: Any) -> Any:
    def change(body: dict[str, Any]) -> None:
        spec = body["spec"]["template"]["spec"]
        spec["containers"][0]["resources"]["limits"][resource] = "1"
        spec |= more

    return change


def _seats(rig: Rig, count: str | None) -> None:
    """Something to ask for that only node-1 has."""
    amount = {"example.com/seat": count}
    patch = json.dumps({"status": {"capacity": amount, "allocatable": amount}})
    rig.kubectl("patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", patch)


# seen by the next server


async def test_the_next_server_reports_what_ended_while_none_ran(rig: Rig, namespace: str, tmp_path: Path) -> None:
    async with observed(rig, namespace, tmp_path) as seen:
        run = await seen.start(a_launch("echo up; until [ -e /tmp/go ]; do sleep 0.05; done; echo done; exit 6"))
        await seen.printed(run, b"up\n")
        pod = seen.pod(run).name
    rig.kubectl("exec", "-n", namespace, pod, "--", "touch", "/tmp/go")
    rig.kubectl("wait", "-n", namespace, f"pod/{pod}", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s")
    async with observed(rig, namespace, tmp_path) as seen:
        unit = await the_unit(seen, run)
        assert (unit.reason, unit.exit_code) == (Reason.PROGRAM_FAILED, 6)
        assert await seen.log(run) == b"up\ndone\n"


async def test_the_next_server_still_knows_how_a_pod_ended_that_is_gone(
    rig: Rig, namespace: str, tmp_path: Path
) -> None:
    async with observed(rig, namespace, tmp_path) as seen:
        run = await seen.start(a_launch("echo up; exit 4"))
        first = await seen.ended(run)
        name = seen.cluster.jobs_of(run)[0].name
    rig.kubectl("delete", "job", "-n", namespace, name)
    async with observed(rig, namespace, tmp_path) as seen:
        again = seen.snapshots.report(run)
        assert _ends(again) == _ends(first) == [(State.CRASHED, Reason.PROGRAM_FAILED, 4)]
        assert await seen.log(run) == b"up\n"


async def test_without_any_notes_what_kubernetes_counted_is_reported(rig: Rig, namespace: str, tmp_path: Path) -> None:
    async with observed(rig, namespace, tmp_path / "first") as seen:
        run = await seen.start(a_launch("exit $JOB_COMPLETION_INDEX", array=Array(count=2)))
        await seen.ended(run)
        for part in (0, 1):
            await seen.api.delete(Pod, seen.pod(run, part).name, namespace)
        await seen.until(run, lambda _: not seen.cluster.pods_of(run))
    async with observed(rig, namespace, tmp_path / "second") as seen:
        report = seen.snapshots.report(run)
        assert report.presence is Presence.ended
        assert [unit.state for unit in report.units] == [State.EXITED, State.CRASHED]
        assert report.units[1].message == "It failed; its pod was gone before it could be seen how."


async def test_a_removed_run_is_absent_and_nothing_of_it_is_kept(seen: Observed) -> None:
    run = await seen.start(a_launch("echo up"))
    await seen.ended(run)
    job = seen.cluster.jobs_of(run)[0]
    await seen.api.delete(Job, job.name, job.namespace, propagation="Foreground")
    await seen.until(run, lambda _: not seen.cluster.jobs_of(run) and not seen.cluster.pods_of(run))
    await seen.remove(run)
    await seen.remove(run)
    assert seen.snapshots.report(run).presence is Presence.absent
    kept = seen.settings.data_dir / "kubernetes" / "runs"
    assert [path for path in kept.iterdir() if run.workload_id in path.name] == []


def _ends(report: Report) -> list[tuple[State, Reason | None, int | None]]:
    return [(unit.state, unit.reason, unit.exit_code) for unit in report.units]
