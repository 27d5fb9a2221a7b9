"""What the engine knows of a cluster: kept up to date, said to be old when it is, and only its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Array
from penstock.engines.base import Event, Presence, Run
from penstock.engines.kubernetes.api import cluster as clusters
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.events import list_run_events
from penstock.errors import Unavailable
from tests.engines.kubernetes.making import eventually
from tests.engines.kubernetes.observed import observed
from tests.engines.kubernetes.proxy import Proxy
from tests.engines.launches import a_launch
from tests.rig.cluster import Rig


async def test_while_the_cluster_does_not_answer_that_is_said_and_what_runs_goes_on(
    rig: Rig, namespace: str, proxy: Proxy, tmp_path: Path
) -> None:
    kubeconfig = proxy.kubeconfig(tmp_path / "kubeconfig")
    async with observed(rig, namespace, tmp_path / "data", kubeconfig=kubeconfig) as seen:
        runs = await seen.start(a_launch("echo up; until [ -e /tmp/go ]; do sleep 0.05; done; echo on"))
        waits = await seen.start(a_launch("true", resources={"cpus_milli": 50_000}))
        await seen.printed(runs, b"up\n")
        await seen.waits(waits, "no node has 50 CPUs")
        await proxy.down()
        report = await seen.until(waits, lambda report: report.reason is Reason.CLUSTER_UNREACHABLE)
        assert report.state is State.QUEUED
        assert (report.message or "").startswith("the cluster's API has not answered since ")
        assert seen.snapshots.report(runs).presence is Presence.running
        rig.kubectl("exec", "-n", namespace, seen.pod(runs).name, "--", "touch", "/tmp/go")
        await proxy.up()
        await seen.waits(waits, "no node has 50 CPUs")
        assert (await seen.ended(runs)).units[0].state is State.EXITED
        assert await seen.log(runs) == b"up\non\n"


async def test_a_server_that_starts_without_a_cluster_says_so_and_goes_on_when_it_is_there(
    rig: Rig, namespace: str, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "OPEN_PATIENCE", 0.5)
    kubeconfig = proxy.kubeconfig(tmp_path / "kubeconfig")
    await proxy.down()
    async with observed(rig, namespace, tmp_path / "data", kubeconfig=kubeconfig) as seen:
        with pytest.raises(Unavailable, match="cannot be reached"):
            seen.snapshots.report(Run("abcd2345"))
        await proxy.up()
        await eventually(lambda: seen.cluster.read)
        run = await seen.start(a_launch("echo here"))
        await seen.ended(run)
        assert await seen.log(run) == b"here\n"


async def test_a_right_that_is_missing_is_said_when_it_opens(rig: Rig, namespace: str, tmp_path: Path) -> None:
    rig.kubectl("create", "serviceaccount", "nobody", "-n", namespace)
    api = KubernetesApi.open(rig.kubeconfig_for("nobody", namespace, tmp_path / "kubeconfig"))
    cluster = await Cluster.of_rights(api, namespace)
    with pytest.raises(Unavailable, match="cannot list resource") as caught:
        await cluster.open()
    assert caught.value.hint
    await api.close()


async def test_what_another_penstock_of_the_cluster_has_is_not_ours(rig: Rig, namespace: str, tmp_path: Path) -> None:
    other = f"{namespace}-other"
    rig.make_namespace(other)
    try:
        async with (
            observed(rig, other, tmp_path / "other") as theirs,
            observed(rig, namespace, tmp_path / "ours") as ours,
        ):
            run = await theirs.start(a_launch("sleep 600", stop_grace=1))
            await theirs.running(run)
            await eventually(lambda: ours.cluster.pods.get(theirs.pod(run).name, other))
            assert ours.snapshots.report(run).presence is Presence.absent
            assert run not in ours.cluster.runs()
            assert not (tmp_path / "ours" / "kubernetes" / "runs" / f"{run.workload_id}-1").exists()
    finally:
        rig.delete_namespace(other)


async def test_events_are_told_in_order_and_about_whom(rig: Rig, namespace: str, tmp_path: Path) -> None:
    async with observed(rig, namespace, tmp_path) as seen:
        one = await seen.start(a_launch("true"))
        sweep = await seen.start(a_launch("exit $JOB_COMPLETION_INDEX", array=Array(count=2)))
        several = await seen.start(a_launch("true", nodes=2))
        for run in (one, sweep, several):
            await seen.ended(run)
            await eventually(lambda run=run: "Started" in told(list_run_events(seen.cluster, run)))
        assert in_order(told(list_run_events(seen.cluster, one)), "Scheduled", "Created", "Started")
        assert "SuccessfulCreate" in told(list_run_events(seen.cluster, one))
        assert {event.about for event in list_run_events(seen.cluster, one)} == {"job"}
        assert {"job", "index 0", "index 1"} == {event.about for event in list_run_events(seen.cluster, sweep)}
        assert {"job", "node 0", "node 1"} == {event.about for event in list_run_events(seen.cluster, several)}


def told(events: list[Event]) -> list[str]:
    return [event.reason for event in events]


def in_order(found: list[str], *wanted: str) -> bool:
    places = [found.index(reason) for reason in wanted]
    return places == sorted(places)
