"""A namespace for each user or group, made with its rules when it is first needed."""

from __future__ import annotations

import asyncio
import json
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.volumes import Phase
from penstock.domain.workloads import Resources
from penstock.engines.base import HeldUp, Presence, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.names import namespace_of
from penstock.engines.kubernetes.namespaces import _network
from penstock.errors import Conflict, Forbidden
from penstock.settings import Settings
from tests.engines import launches as launching
from tests.engines.kubernetes.deployed import DEPLOY, Deployed, deployed
from tests.engines.kubernetes.making import eventually
from tests.engines.kubernetes.opening import bound, opened
from tests.engines.launches import a_launch, a_volume, ended, outcome, printed, run_of, the_account
from tests.rig.cluster import Rig


@pytest.fixture(scope="module")
def account(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """With the rights of the overlay for namespaces per user."""
    with deployed(rig, tmp_path_factory.mktemp("account"), "namespace-per-user") as made:
        yield made
        mine = [name for name in _namespaces(rig) if name.startswith(f"{made.jobs}-")]
        rig.kubectl("delete", "namespace", "--wait=false", "--ignore-not-found", made.jobs, *mine)


@pytest.fixture
def settings(account: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(launching, "STORAGE_CLASS", "shared")
    return account.settings(
        tmp_path,
        kubernetes_namespaces="user",
        kubernetes_namespace_role=account.role,
        kubernetes_quota={"requests.cpu": "2", "count/jobs.batch": "100"},
        kubernetes_network="namespace",
    )


def _namespaces(rig: Rig) -> list[str]:
    return [line.removeprefix("namespace/") for line in rig.kubectl("get", "namespaces", "-o", "name").split()]


def found(rig: Rig, kind: str, namespace: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(rig.kubectl("get", kind, "-n", namespace, "-o", "json"))["items"]
    return items


def test_names_that_had_to_be_changed_never_meet() -> None:
    assert namespace_of("jobs", "ada") == "jobs-ada"
    assert namespace_of("jobs", "ada-lab-org") == "jobs-ada-lab-org"
    owners = ["ada@lab.org", "ada-lab.org", "ada-lab-org", "Ada", "a" * 62 + "b", "a" * 62 + "c"]
    for prefix in ("jobs", "p" * 40):
        changed = [namespace_of(prefix, owner) for owner in owners]
        looks_changed = changed[3].removeprefix(f"{prefix}-")
        changed.append(namespace_of(prefix, looks_changed))
        assert len(set(changed)) == len(owners) + 1
        assert all(len(name) <= 63 and not name.endswith("-") for name in changed)


async def test_each_user_has_one_with_its_rules(settings: Settings, account: Deployed) -> None:
    rig = account.rig
    people = {name: f"{account.jobs}-{name}" for name in ("ada", "ben")}
    async with opened(settings) as engine:
        launches = {name: a_launch(f"echo {name}", user=name, group=name) for name in people}
        await asyncio.gather(*(engine.start(launch) for launch in launches.values() for _ in range(2)))
        for name, namespace in people.items():
            report = await ended(engine, run_of(launches[name]))
            assert report.units[0].state is State.EXITED
            (job,) = found(rig, "jobs", namespace)
            assert job["metadata"]["labels"]["task-id"] == launches[name].workload_id
            (quota,) = found(rig, "resourcequotas", namespace)
            assert quota["spec"]["hard"] == {"requests.cpu": "2", "count/jobs.batch": "100"}
            (policy,) = found(rig, "networkpolicies", namespace)
            assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
            assert policy["spec"]["ingress"] == [{"from": [{"podSelector": {}}]}]
            here, dns, outside = policy["spec"]["egress"]
            assert here == {"to": [{"podSelector": {}}]}
            assert {port["port"] for port in dns["ports"]} == {53}
            assert outside["to"][0]["ipBlock"] == {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}
            labels = rig.get("namespace", namespace)["metadata"]["labels"]
            assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
            assert labels[names.MANAGED] == "penstock"
        mark = rig.request_mark()
        again = a_launch("true", user="ada", group="ada")
        await engine.start(again)
        assert account.requests(mark) == ["create jobs"]
        await ended(engine, run_of(again))
        for launch in (*launches.values(), again):
            await engine.remove(run_of(launch))


def test_closed_reaches_its_own_and_dns_only() -> None:
    here, dns = _network(closed=True)["egress"]
    assert here == {"to": [{"podSelector": {}}]}
    assert [port["port"] for port in dns["ports"]] == [53, 53]


async def test_volumes_are_where_the_jobs_are(settings: Settings, account: Deployed) -> None:
    async with opened(settings) as engine:
        volume = a_volume("data", user="cora", group="cora")
        await engine.create_volume(volume, the_account())
        await bound(engine, volume)
        assert [each["metadata"]["name"] for each in found(account.rig, "pvc", f"{account.jobs}-cora")] == [
            volume.object_name
        ]
        launch = a_launch("touch /data/x; ls /data", {"/data": volume}, user="cora", group="cora")
        report, log = await outcome(engine, launch)
        assert (report.units[0].state, log) == (State.EXITED, "x\n")
        await engine.remove(run_of(launch))
        assert await engine.existing_claim("nothing", "cora", "cora") is None
        await eventually(lambda: not engine._cluster.pods_of(run_of(launch)))
        await engine.delete_volume(volume)
        assert (await engine.volume_reports([volume]))[volume.id].phase is Phase.Lost


async def test_what_others_write_in_their_own_has_no_say_about_the_jobs_of_someone_else(
    settings: Settings, account: Deployed, tmp_path: Path
) -> None:
    """A pod and a Job that say they are node 0 of someone else's run: no code is sent there, no end is believed."""
    sent = tmp_path / "code.tar.gz"
    with tarfile.open(sent, "w:gz") as tar:
        tar.add(__file__, "secret.py")
    theirs = a_launch("echo up; sleep 600", user="gil", group="gil", workdir=".", workdir_archive=sent)
    run = Run(theirs.workload_id, 1, ("gil", "gil"))
    labels = {names.MANAGED: names.PENSTOCK, names.TASK_ID: run.workload_id, names.ATTEMPT: "1"}
    async with opened(settings) as engine:
        await outcome(engine, a_launch("true", user="hal", group="hal"))
        await engine.start(theirs)
        await printed(engine, run, "up")
        trap = _pod(f"{account.jobs}-hal", labels, "mkdir -p /run/penstock /workdir; sleep 600")
        account.rig.apply(trap, _job(f"{account.jobs}-hal", labels | {names.ATTEMPT: "2"}))
        place = ("trap", f"{account.jobs}-hal")
        await eventually(lambda: (pod := engine._cluster.pods.get(*place)) and pod.status.phase == "Running")
        trapped = engine._cluster.pods.get(*place)
        assert trapped
        assert trapped.uid not in engine._workdirs._tasks
        assert [pod.namespace for pod in engine._cluster.pods_of(run)] == [f"{account.jobs}-gil"]
        account.rig.kubectl("delete", "pod", "-n", place[1], "trap", "--force", "--grace-period=0")
        await eventually(lambda: engine._cluster.pods.get(*place) is None)
        assert (await engine.observe(run)).presence is Presence.running
        await eventually(lambda: engine._cluster.jobs.get("trap", place[1]))
        assert (await engine.observe(Run(run.workload_id, 2, ("gil", "gil")))).presence is Presence.absent
        await engine.stop(run, 1)
        await ended(engine, run)


def _pod(namespace: str, labels: dict[str, str], script: str) -> dict[str, Any]:
    metadata = {"name": "trap", "namespace": namespace, "labels": labels, "annotations": {names.SENDS_WORKDIR: "true"}}
    container = {"name": "task", "image": "penstock-test:1", "command": ["/bin/bash", "-c", script]}
    container["resources"] = {"requests": {"cpu": "50m"}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _job(namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "task", "image": "penstock-test:1"}]}}
    metadata = {"name": "trap", "namespace": namespace, "labels": labels}
    spec = {"suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


async def test_over_the_quota_it_waits_and_says_so(settings: Settings) -> None:
    async with opened(settings) as engine:
        launch = a_launch("true", user="dora", group="dora", resources=Resources(cpus_milli=3000))
        changes = engine.changes()
        await engine.start(launch)
        while (report := await engine.observe(run_of(launch))).reason is not Reason.QUOTA:
            await anext(changes)
        assert report.state is State.DENIED
        await engine.stop(run_of(launch), 1)
        await ended(engine, run_of(launch))


def overlay() -> dict[str, str]:
    """What deploy/ gives a user."""
    text = (DEPLOY / "namespace-per-user" / "config.toml").read_text()
    quota: dict[str, str] = tomllib.loads(text)["kubernetes_quota"]
    return quota


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cpus_milli": 65_000}, "it asks for 65 CPUs, and 64 are allowed in all"),
        ({"memory_bytes": 300 << 30}, "it asks for 300Gi memory, and 256Gi are allowed in all"),
        ({"gpus": 9}, "it asks for 9 GPUs, and 8 are allowed in all"),
    ],
)
async def test_the_quota_of_deploy_counts_what_jobs_ask_for(
    account: Deployed, settings: Settings, asked: dict[str, Any], said: str
) -> None:
    async with opened(replace(settings, kubernetes_quota=overlay())) as engine:
        plain = a_launch("echo no memory said", user="hugo", group="hugo")
        assert (await outcome(engine, plain))[1] == "no memory said\n"
        launch = a_launch("true", user="hugo", group="hugo", resources=Resources(**asked))
        changes = engine.changes()
        await engine.start(launch)
        while (report := await engine.observe(run_of(launch))).reason is not Reason.QUOTA:
            await anext(changes)
        assert (report.state, report.message) == (State.DENIED, f"the quota penstock has no room: {said}")
        await engine.stop(run_of(launch), 1)
        await ended(engine, run_of(launch))


async def test_the_quota_of_deploy_counts_what_volumes_ask_for(settings: Settings) -> None:
    async with opened(replace(settings, kubernetes_quota=overlay())) as engine:
        volume = a_volume("large", user="ida", group="ida").model_copy(update={"size": "2Ti"})
        with pytest.raises(Forbidden) as refused:
            await engine.create_volume(volume, the_account())
        said = "The quota penstock has no room: it asks for 2Ti storage, and 1Ti are allowed in all."
        assert (refused.value.message, "volumes list" in (refused.value.hint or "")) == (said, True)


async def test_beyond_the_number_of_jobs_it_waits_until_one_has_gone(settings: Settings) -> None:
    few = {"count/jobs.batch": "1", "requests.cpu": "2"}
    async with opened(replace(settings, kubernetes_quota=few)) as engine:
        first, second = (a_launch("true", user="jo", group="jo") for _ in range(2))
        await outcome(engine, first)
        with pytest.raises(HeldUp) as held:
            await engine.start(second)
        said = "the quota penstock has no room: 1 of 1 Jobs are used, and it asks for 1"
        assert (held.value.reason, held.value.message) == (Reason.QUOTA, said)
        await engine.remove(run_of(first))
        while True:
            try:
                await engine.start(second)
                break
            except HeldUp:
                continue
        await ended(engine, run_of(second))


async def test_a_namespace_that_is_not_ours_is_not_used(settings: Settings, account: Deployed) -> None:
    name = f"{account.jobs}-eve"
    account.rig.make_namespace(name)
    async with opened(settings) as engine:
        with pytest.raises(Conflict, match="was not made by Penstock") as error:
            await engine.start(a_launch("true", user="eve", group="eve"))
        assert error.value.hint
        account.rig.kubectl("label", "namespace", name, f"{names.MANAGED}=penstock")
        await outcome(engine, a_launch("true", user="eve", group="eve"))


async def test_one_that_was_deleted_behind_our_back_is_made_anew(settings: Settings, account: Deployed) -> None:
    name = f"{account.jobs}-finn"
    async with opened(settings) as engine:
        await outcome(engine, a_launch("true", user="finn", group="finn"))
        account.rig.kubectl("delete", "namespace", name)
        launch = a_launch("echo back", user="finn", group="finn")
        with pytest.raises(Exception, match="is not there, or is being deleted"):
            await engine.start(launch)
        _, log = await outcome(engine, launch)
        assert log == "back\n"


async def test_one_for_each_group(settings: Settings, account: Deployed, tmp_path: Path) -> None:
    of_groups = account.settings(
        tmp_path,
        kubernetes_namespaces="group",
        kubernetes_namespace_role=account.role,
        kubernetes_pod_security="restricted",
    )
    async with opened(of_groups) as engine:
        launch = a_launch("id -u", user="ada", group="lab")
        await engine.start(launch)
        assert found(account.rig, "jobs", f"{account.jobs}-lab")
        labels = account.rig.get("namespace", f"{account.jobs}-lab")["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        await engine.remove(run_of(launch))
