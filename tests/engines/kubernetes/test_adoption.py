"""A server whose store and disk were lost finds everything again in the cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.domain.model import now
from penstock.domain.states import Reason, State
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Array, Workload
from penstock.engines.base import Launch, Presence
from penstock.engines.kubernetes import adoption, names
from penstock.engines.kubernetes.api.objects import Job
from penstock.engines.kubernetes.api.resources import PersistentVolumeClaim
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.engines.kubernetes.namespaces import Namespaces
from penstock.engines.shared.records import volume_record
from penstock.settings import Settings
from tests.engines.kubernetes.deployed import Deployed
from tests.engines.kubernetes.making import eventually
from tests.engines.kubernetes.opening import opened
from tests.engines.launches import a_launch, a_volume, ended, log_of, outcome, printed, run_of, the_account
from tests.rig.cluster import Rig


def with_record(launch: Launch, **fields: Any) -> Launch:
    """As the server launches it: with the workload as its store has it."""
    workload = Workload(
        id=launch.workload_id,
        name=launch.name,
        group=launch.group,
        user=launch.user,
        account=launch.account,
        spec=launch.spec,
        attempt=launch.attempt,
        created_at=now(),
        updated_at=now(),
        **fields,
    )
    return launch.model_copy(update={"record": workload.model_dump_json()})


@asynccontextmanager
async def gone(settings: Settings) -> AsyncIterator[KubernetesEngine]:
    """One that leaves everything to the next."""
    engine = KubernetesEngine(settings)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


async def test_an_empty_server_has_every_workload_and_volume_again(account: Deployed, tmp_path: Path) -> None:
    made = a_volume("data", storage_class="shared")
    running = with_record(a_launch("echo up; sleep 600", {"/data": made}, user="zoe@example.org", group="team-7"))
    done = with_record(a_launch("echo done; exit 3"))
    sweep = with_record(a_launch("echo $JOB_COMPLETION_INDEX", array=Array(count=2)))
    async with gone(account.settings(tmp_path / "first")) as first:
        await first.create_volume(made, the_account())
        for launch in (running, done, sweep):
            await first.start(launch)
        await printed(first, run_of(running), "up")
        await ended(first, run_of(done))
        await ended(first, run_of(sweep))
    async with opened(account.settings(tmp_path / "second")) as second:
        found = await second.found(())
        workloads = {workload.id: workload for workload in found.workloads}
        assert {running.workload_id, done.workload_id, sweep.workload_id} <= set(workloads)
        assert workloads[running.workload_id].user == "zoe@example.org"
        assert workloads[running.workload_id].spec == running.spec
        assert [volume.id for volume, _ in found.volumes] == [made.id]
        assert [(account, volume.object_name) for volume, account in found.volumes] == [
            (the_account(), made.object_name)
        ]
        assert (await second.observe(run_of(running))).presence is Presence.running
        report = await ended(second, run_of(done))
        assert (report.units[0].reason, report.units[0].exit_code) == (Reason.PROGRAM_FAILED, 3)
        assert {unit.state for unit in (await ended(second, run_of(sweep))).units} == {State.EXITED}
        assert await log_of(second, run_of(done)) == b"done\n"
        assert await log_of(second, run_of(sweep), 1) == b"1\n"
        assert run_of(running) in await second.runs()


async def test_of_several_attempts_the_newest_is_found(account: Deployed, tmp_path: Path) -> None:
    first = with_record(a_launch("exit 1"))
    again = with_record(a_launch("sleep 600", workload_id=first.workload_id, attempt=2), retried=1)
    async with opened(account.settings(tmp_path)) as engine:
        await outcome(engine, first)  # no other begins before
        await engine.start(again)
        await eventually_found(engine, first.workload_id, 2)


async def eventually_found(engine: KubernetesEngine, workload_id: str, attempt: int) -> None:
    def there() -> bool:
        found = adoption.find_records(engine._cluster, engine._namespaces).workloads
        return [each.attempt for each in found if each.id == workload_id] == [attempt]

    await eventually(there)


async def test_what_others_wrote_into_our_namespace_is_not_believed(
    rig: Rig, account: Deployed, tmp_path: Path
) -> None:
    theirs = with_record(a_launch("true", user="eve", group="eve"))
    stolen = a_volume("secret")
    async with opened(account.settings(tmp_path)) as engine:
        namespace = engine._namespaces.of("ada", "ada")
        labels = {names.MANAGED: names.PENSTOCK, names.TASK_ID: "abcd2345", names.ATTEMPT: "1"}
        _make_job(rig, namespace, "forged", labels, {names.OWNER: "ann/ann", names.RECORD: theirs.record})
        _make_job(rig, namespace, "garbage", labels | {names.TASK_ID: "efgh2345"}, {names.RECORD: "{not json"})
        _make_job(rig, namespace, "plain", {}, {names.RECORD: theirs.record})
        _make_claim(rig, namespace, stolen)
        await eventually(lambda: engine._cluster.jobs.get("garbage", namespace))
        await eventually(lambda: engine._cluster.claims.get("forged", namespace))
        found = await engine.found(())
        assert theirs.workload_id not in {workload.id for workload in found.workloads}
        assert stolen.id not in {volume.id for volume, _ in found.volumes}
        assert {
            f"the Job {namespace}/forged: it has the record of something else",
            f"the Job {namespace}/garbage: its record cannot be read",
            f"the claim {namespace}/forged: it has the record of something else",
        } <= set(found.unreadable)
    for kind, name in (("job", "forged"), ("job", "garbage"), ("job", "plain"), ("pvc", "forged")):
        rig.kubectl("delete", kind, name, "-n", namespace, "--ignore-not-found", "--wait=false")


def _make_job(rig: Rig, namespace: str, name: str, labels: dict[str, str], annotations: dict[str, str]) -> None:
    container = {"name": "task", "image": "busybox:1", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    spec = {"suspend": True, "template": template}
    rig.apply({"apiVersion": Job.kind.api_version, "kind": "Job", "metadata": metadata, "spec": spec})


def _make_claim(rig: Rig, namespace: str, volume: Volume) -> None:
    """Labelled as ours, with the record of a volume that another claim is."""
    labels = {names.MANAGED: names.PENSTOCK, names.VOLUME_ID: volume.id}
    annotations = {names.OWNER: "eve/eve", names.RECORD: volume_record(volume, the_account())}
    metadata = {"name": "forged", "namespace": namespace, "labels": labels, "annotations": annotations}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    rig.apply(
        {
            "apiVersion": PersistentVolumeClaim.kind.api_version,
            "kind": PersistentVolumeClaim.kind.name,
            "metadata": metadata,
            "spec": spec,
        }
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"user": "bob"}, "what belongs to ada/bob is not in this namespace"),
        ({"user": "../../etc"}, "its record cannot be read"),
        ({"name": "a\x1b[31m"}, "its record cannot be read"),
        ({"attempt": 10**30}, "its record cannot be read"),
        ({"created_at": "0001-01-01T00:00:00+14:00"}, "it says that it was made in another age"),
        ({"created_at": "2026-01-01T00:00:00"}, "its record cannot be read"),
        ({"completions": 2**31 - 1}, "it has the record of something else"),
    ],
)
def test_a_record_is_believed_only_where_it_can_be_true(change: dict[str, Any], said: str | None) -> None:
    """Whoever may write into their own namespace has no say about another's, and keeps no server from its start."""
    completions = change.pop("completions", 1)
    record = json.loads(with_record(a_launch("true")).record) | change
    labels = {names.MANAGED: names.PENSTOCK, names.TASK_ID: record["id"], names.ATTEMPT: str(record["attempt"])}
    annotations = {names.OWNER: f"{record['group']}/{record['user']}", names.RECORD: json.dumps(record)}
    metadata = {"name": "a", "namespace": "jobs-ada", "labels": labels, "annotations": annotations}
    job = msgspec.convert({"metadata": metadata, "spec": {"completions": completions}, "status": {}}, Job)
    settings = Settings(kubernetes_namespace="jobs", kubernetes_namespaces="user")
    cluster: Any = SimpleNamespace(jobs=SimpleNamespace(all=lambda: [job]), claims=SimpleNamespace(all=list))
    found = adoption.find_records(cluster, Namespaces(SimpleNamespace(namespace="jobs"), settings))  # type: ignore[arg-type]
    assert [each.id for each in found.workloads] == ([] if said else [record["id"]])
    assert found.unreadable == ((f"the Job jobs-ada/a: {said}",) if said else ())
