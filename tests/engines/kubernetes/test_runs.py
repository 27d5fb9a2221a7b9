"""What runs are in the cluster: how many calls they cost, and that every step of their life can be repeated."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Resources, Scratch
from penstock.engines.base import Launch, Presence, Run
from penstock.engines.kubernetes import names, runs
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.objects import Job
from penstock.engines.kubernetes.api.resources import Service
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.engines.kubernetes.spec import build_service
from penstock.engines.kubernetes.state.jobs import is_finished
from penstock.errors import Conflict, Unavailable
from tests.engines.kubernetes.deployed import Deployed
from tests.engines.kubernetes.making import eventually
from tests.engines.kubernetes.opening import opened
from tests.engines.launches import a_launch, an_array, ended, log_of, outcome, printed, run_of

WRITES = ("create", "patch", "update", "delete")


def found(account: Deployed, kind: str, launch: Launch) -> list[dict[str, Any]]:
    selector = f"{names.TASK_ID}={launch.workload_id}"
    answer = account.rig.kubectl("get", kind, "-n", account.jobs, "-l", selector, "-o", "json")
    items: list[dict[str, Any]] = json.loads(answer)["items"]
    return items


def writes(account: Deployed, mark: int) -> list[str]:
    return [asked for asked in account.requests(mark) if asked.split()[0] in WRITES]


# -- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "calls"), [(1, ["create jobs"]), (2, ["create services", "create jobs", "patch services"])]
)
async def test_a_start_costs_few_calls(
    engine: KubernetesEngine, account: Deployed, nodes: int, calls: list[str]
) -> None:
    """Until it runs; what is watched costs nothing more for one run than for a thousand."""
    mark = account.rig.request_mark()
    launch = a_launch("echo up; sleep 600", nodes=nodes)
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    assert [asked for asked in account.requests(mark) if asked != "get pods/log"] == calls
    assert len(account.requests(mark)) <= 4 + nodes
    await engine.stop(run_of(launch), 1)
    await ended(engine, run_of(launch))


# -- again and again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(3))
async def test_a_start_that_is_cut_off_anywhere_is_finished_by_the_next(
    account: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """The server is killed right after one of its calls has reached the cluster."""
    launch = a_launch("echo $NODE_RANK >>/tmp/x; echo ran $MASTER_ADDR", nodes=2)
    left = cut
    create, patch = KubernetesApi.create, KubernetesApi.patch

    class Killed(BaseException):
        pass

    async def cut_off(answer: Any) -> Any:
        nonlocal left
        made = await answer
        if left == 0:
            raise Killed
        left -= 1
        return made

    engine = KubernetesEngine(account.settings(tmp_path / "first"))
    await engine.open()
    with monkeypatch.context() as context:
        context.setattr(KubernetesApi, "create", lambda *given, **more: cut_off(create(*given, **more)))
        context.setattr(KubernetesApi, "patch", lambda *given, **more: cut_off(patch(*given, **more)))
        with pytest.raises(Killed):
            await engine.start(launch)
    await engine.close()
    async with opened(account.settings(tmp_path / "second")) as engine:
        if (await engine.observe(run_of(launch))).presence is Presence.absent:
            await engine.start(launch)
        report = await ended(engine, run_of(launch))
        assert [unit.state for unit in report.units] == [State.EXITED, State.EXITED]
        assert len(found(account, "jobs", launch)) == 1
        assert len(found(account, "services", launch)) == 1
        await engine.remove(run_of(launch))
        await eventually(lambda: not found(account, "jobs,services,pods", launch))


async def test_a_job_of_that_name_that_is_not_ours_is_left_alone(engine: KubernetesEngine, account: Deployed) -> None:
    launch = a_launch("true")
    container = {"name": "main", "image": "busybox:1", "command": ["true"]}
    account.rig.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": f"try-{launch.workload_id}", "namespace": account.jobs},
            "spec": {
                "suspend": True,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            },
        }
    )
    with pytest.raises(Conflict, match="Penstock did not make"):
        await engine.start(launch)
    await engine.remove(run_of(launch))
    account.rig.kubectl("delete", "job", f"try-{launch.workload_id}", "-n", account.jobs)


async def test_it_is_there_as_soon_as_it_was_started(engine: KubernetesEngine) -> None:
    launch = a_launch("true")
    await engine.start(launch)
    assert (await engine.observe(run_of(launch))).presence in (Presence.waiting, Presence.running)
    assert run_of(launch) in await engine.runs()


async def test_another_server_sees_what_the_first_one_started(account: Deployed, tmp_path: Path) -> None:
    launch = a_launch("echo up; sleep 600", record="{}")
    first = KubernetesEngine(account.settings(tmp_path / "first"))
    await first.open()
    await first.start(launch)
    await first.close()
    async with opened(account.settings(tmp_path / "second")) as second:
        assert run_of(launch) in await second.runs()
        await printed(second, run_of(launch), "up")
        await second.start(launch)
        await second.stop(run_of(launch), 1)
        report = await ended(second, run_of(launch))
        assert report.units[0].reason is Reason.STOPPED_BY_USER


# -- stop -------------------------------------------------------------------------------------------------------------


async def test_what_waits_for_a_place_is_stopped_at_once(engine: KubernetesEngine, account: Deployed) -> None:
    launch = a_launch("true", resources=Resources(cpus_milli=900_000))
    await engine.start(launch)
    await engine.stop(run_of(launch), 5)
    mark = account.rig.request_mark()
    await engine.stop(run_of(launch), 5)
    report = await ended(engine, run_of(launch))
    assert (report.units[0].state, report.units[0].reason) == (State.STOPPED, Reason.STOPPED_BY_USER)
    assert writes(account, mark) == []


async def test_what_has_ended_stays_as_it_ended(engine: KubernetesEngine) -> None:
    launch = a_launch("exit 3")
    await outcome(engine, launch)
    await engine.stop(run_of(launch), 5)
    report = await engine.observe(run_of(launch))
    assert (report.units[0].state, report.units[0].exit_code) == (State.CRASHED, 3)


# -- afterwards -------------------------------------------------------------------------------------------------------


async def test_kubernetes_removes_what_has_ended_after_the_time_it_is_kept(
    engine: KubernetesEngine, account: Deployed
) -> None:
    launch = a_launch("echo kept")
    await outcome(engine, launch)
    await eventually(lambda: all(is_finished(job) for job in engine._cluster.jobs_of(run_of(launch))))
    await engine.settle(run_of(launch), 1)
    await engine.settle(run_of(launch), 1)
    await eventually(lambda: not found(account, "jobs,pods", launch))
    assert await log_of(engine, run_of(launch)) == b"kept\n"


async def test_kept_for_no_time_it_goes_at_once(engine: KubernetesEngine, account: Deployed) -> None:
    launch = a_launch("echo kept", nodes=2)
    await outcome(engine, launch)
    await engine.settle(run_of(launch), 0)
    await eventually(lambda: not found(account, "jobs,pods,services", launch))
    assert await log_of(engine, run_of(launch), 1) == b"kept\n"


async def test_what_was_stopped_goes_too(
    engine: KubernetesEngine, account: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes removes only what has ended, and what was suspended has not."""
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    await engine.stop(run_of(launch), 1)
    await ended(engine, run_of(launch))
    await engine.settle(run_of(launch), 1)
    await eventually(lambda: names.SETTLED in found(account, "jobs", launch)[0]["metadata"]["annotations"])
    monkeypatch.setattr(runs, "SWEEP_SECONDS", 0.1)
    await engine._runs._tasks.close()
    engine._runs.open()
    await eventually(lambda: not found(account, "jobs", launch))


async def test_a_removed_run_leaves_nothing_in_the_cluster_even_if_it_ran(
    engine: KubernetesEngine, account: Deployed
) -> None:
    launch = a_launch("echo up; sleep 600", nodes=2)
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    await engine.remove(run_of(launch))
    assert run_of(launch) not in await engine.runs()
    assert (await engine.observe(run_of(launch))).presence is Presence.absent
    await eventually(lambda: not found(account, "jobs,pods,services", launch))


async def test_an_array_that_repeats_some_indexes_can_be_cut_off_too(
    engine: KubernetesEngine, account: Deployed, api: KubernetesApi
) -> None:
    launch = an_array("echo again $JOB_COMPLETION_INDEX", 9, 2, indexes=(2, 5, 7), attempt=2)
    only = launch.model_copy(update={"indexes": (5,)})
    await engine.start(only)
    await ended(engine, run_of(launch))
    await engine.start(launch)
    report = await ended(engine, run_of(launch))
    assert [(unit.index, unit.state) for unit in report.units] == [(i, State.EXITED) for i in (2, 5, 7)]
    assert len(await api.list(Job, account.jobs, labels=names.selector(run_of(launch)))) == 3


async def test_services_without_a_job_are_removed_with_the_run(
    engine: KubernetesEngine, account: Deployed, api: KubernetesApi
) -> None:
    """A server was killed between the two and the workload was deleted before it was back."""
    launch = a_launch("true", nodes=2)
    service = build_service(launch)
    assert service
    await api.create(Service, service, account.jobs)
    await eventually(lambda: engine._cluster.services.by("run", f"{launch.workload_id}/1"))
    await engine.remove(run_of(launch))
    await eventually(lambda: not found(account, "services", launch))


# -- no cluster -------------------------------------------------------------------------------------------------------


async def test_without_a_cluster_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: Deployed) -> None:
    monkeypatch.setattr("penstock.engines.kubernetes.api.cluster.OPEN_PATIENCE", 0.5)
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(account.kubeconfig.read_text().replace(":6443", ":1"))
    engine = KubernetesEngine(account.settings(tmp_path, kubernetes_config=str(nowhere)))
    await asyncio.wait_for(engine.open(), 60)
    try:
        for call in (engine.nodes(), engine.start(a_launch("true")), engine.observe(Run("nosuchid")), engine.runs()):
            with pytest.raises(Unavailable):
                await call
        assert [(check.name, check.ok) for check in await engine.checks()] == [("cluster", False)]
    finally:
        await engine.close()


# -- without root -----------------------------------------------------------------------------------------------------


async def test_without_root_everything_works_too(account: Deployed, tmp_path: Path) -> None:
    """Pod Security `restricted`: as an account the image does not know, with volumes of a group."""
    settings = account.settings(
        tmp_path,
        kubernetes_pod_security="restricted",
        kubernetes_run_as="1234:1234",
        kubernetes_fs_group="1234",
    )
    sent = tmp_path / "code.tar.gz"
    with tarfile.open(sent, "w:gz") as tar:
        tar.add(__file__, "code.py")
    async with opened(settings) as engine:
        ways = "id -u; grep CapEff /proc/self/status | cut -f2; ls; touch /scratch/x /dev/shm/x made"
        run = f"{ways}; sleep 600 & wait"
        scratch = (Scratch(path="/scratch"),)
        launch = a_launch(f"trap 'echo bye; exit 0' TERM; {run}", workdir=".", workdir_archive=sent, scratch=scratch)
        await engine.start(launch)
        await printed(engine, run_of(launch), "code.py\n")
        session = await engine.exec(run_of(launch), 0, ["id", "-u"], None)
        assert [data async for _, data in session.output()] == [b"1234\n"]
        await session.close()
        await engine.stop(run_of(launch), 60)
        await ended(engine, run_of(launch))
        assert await log_of(engine, run_of(launch)) == b"1234\n0000000000000000\ncode.py\nbye\n"
