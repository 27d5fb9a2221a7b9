"""Jobs in a queue of Kueue's, the real one: it lets them start, takes their places back, and is told when they stop."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Resources
from penstock.engines.base import Launch, Presence, Report, Run
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.engine import KubernetesEngine
from tests.engines.kubernetes.deployed import Deployed
from tests.engines.kubernetes.observed import becomes
from tests.engines.launches import a_launch, ended, log_of, outcome, printed, run_of
from tests.rig.cluster import Rig
from tests.rig.kueue import GROUP
from tests.rig.processes import wait_for
from tests.running import RunningServer, start_server

pytestmark = pytest.mark.timeout(900)  # the first one builds Kueue where nobody has before

VERSION = f"{GROUP}/v1beta2"
SLEEPS = "trap 'exit 0' TERM; echo runs; sleep 600 & wait"


@pytest.fixture(scope="module")
def rig(own_rig: Rig) -> Rig:
    """One of our own: Kueue is asked about every Job there is, and stays."""
    own_rig.kueue()
    flavor = {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "any"}}
    high = {"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100}
    own_rig.apply(flavor, high)
    return own_rig


@pytest.fixture
def queue(rig: Rig, account: Deployed) -> Iterator[Queue]:
    """Room for one of the default size."""
    made = Queue(rig, account.jobs)
    made.has_room_for("50m")
    yield made
    made.remove()


class Queue:
    name = "team"

    def __init__(self, rig: Rig, namespace: str) -> None:
        self.rig, self.namespace = rig, namespace
        self.cluster_queue = f"{namespace}-{secrets.token_hex(3)}"
        """Its own: one that is being deleted would take the next of its name along."""
        target = {"apiVersion": VERSION, "kind": "LocalQueue", "metadata": {"name": self.name, "namespace": namespace}}
        self.local = target | {"spec": {"clusterQueue": self.cluster_queue}}

    def has_room_for(self, cpus: str, *, open_: bool = True) -> None:
        """Made, or changed to that."""
        room = {"cpu": cpus, "memory": "100Gi", "ephemeral-storage": "100Gi"}
        quotas = [{"name": name, "nominalQuota": amount} for name, amount in room.items()]
        groups = [{"coveredResources": list(room), "flavors": [{"name": "any", "resources": quotas}]}]
        spec = {
            "namespaceSelector": {},
            "resourceGroups": groups,
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "stopPolicy": "None" if open_ else "Hold",
        }
        cluster = {
            "apiVersion": VERSION,
            "kind": "ClusterQueue",
            "metadata": {"name": self.cluster_queue},
            "spec": spec,
        }
        self.rig.apply(cluster, self.local)

    def remove(self) -> None:
        self.rig.kubectl("delete", f"localqueues.{GROUP}", self.name, "-n", self.namespace, "--ignore-not-found")
        self.rig.kubectl("delete", f"clusterqueues.{GROUP}", self.cluster_queue, "--wait=false")

    def job(self, launch: Launch) -> dict[str, Any]:
        return self.rig.get("job", f"try-{launch.workload_id}", self.namespace)

    def workload(self, launch: Launch) -> dict[str, Any]:
        of = f"{GROUP}/job-uid={self.job(launch)['metadata']['uid']}"
        found = self.rig.kubectl("get", f"workloads.{GROUP}", "-n", self.namespace, "-l", of, "-o", "json")
        (workload,) = json.loads(found)["items"]
        return dict(workload)

    def activate(self, workload: str, *, active: bool) -> None:
        """As an admin does with kubectl."""
        change = json.dumps({"spec": {"active": active}})
        kind = f"workloads.{GROUP}"
        self.rig.kubectl("patch", kind, workload, "-n", self.namespace, "--type=merge", "-p", change)

    def pods_made(self, launch: Launch) -> int:
        """Ever, by its Job."""
        about = f"involvedObject.kind=Job,involvedObject.name=try-{launch.workload_id},reason=SuccessfulCreate"
        found = self.rig.kubectl("get", "events", "-n", self.namespace, f"--field-selector={about}", "-o", "json")
        return sum(event.get("count") or 1 for event in json.loads(found)["items"])


async def until(engine: KubernetesEngine, run: Run, holds: Callable[[Report], Any]) -> Report:
    return await becomes(engine.changes(), lambda: engine.observe(run), holds)


async def waits(engine: KubernetesEngine, launch: Launch, text: str) -> Report:
    """The report once it waits in its queue with that in its message."""
    found = await until(
        engine,
        run_of(launch),
        lambda report: report.presence is Presence.waiting and text in (report.message or ""),
    )
    assert found.state is State.QUEUED
    assert found.reason is Reason.IN_QUEUE
    return found


async def runs(engine: KubernetesEngine, launch: Launch) -> None:
    await engine.start(launch)
    await printed(engine, run_of(launch), "runs")


async def passes(engine: KubernetesEngine) -> None:
    """One more goes through the queue: whatever Kueue had to do before, it has done."""
    report, text = await outcome(engine, a_launch("echo hello", queue=Queue.name))
    assert report.units[0].state is State.EXITED, report
    assert "hello" in text


# -- room --------------------------------------------------------------------------------------------------------------


async def test_it_runs_when_its_queue_has_room(engine: KubernetesEngine, queue: Queue) -> None:
    assert await engine.refusals(a_launch("true", queue=queue.name).spec) == []
    await passes(engine)


async def test_without_room_it_says_what_it_lacks_and_starts_when_there_is_some(
    engine: KubernetesEngine, queue: Queue
) -> None:
    first, second = (a_launch(SLEEPS, queue=queue.name) for _ in range(2))
    queue.has_room_for("70m")
    await runs(engine, first)
    await engine.start(second)
    found = await waits(engine, second, "no room")
    assert found.message == "the queue team has no room for it now: 30m more CPU is needed"
    await engine.stop(run_of(first), 5)
    await printed(engine, run_of(second), "runs")
    assert (await ended(engine, run_of(first))).units[0].state is State.STOPPED


async def test_what_its_queue_never_has_is_said(engine: KubernetesEngine, queue: Queue) -> None:
    queue.has_room_for("40m")
    launch = a_launch("true", queue=queue.name)
    await engine.start(launch)
    found = await waits(engine, launch, "never")
    assert found.message == "it asks for 50m CPU, and the queue team never has more than 40m"


async def test_two_nodes_are_let_in_together(engine: KubernetesEngine, queue: Queue) -> None:
    queue.has_room_for("99m")
    launch = a_launch("echo hello from $NODE_RANK", queue=queue.name, nodes=2, gpus=((), ()))
    await engine.start(launch)
    await waits(engine, launch, "100m CPU")
    assert queue.pods_made(launch) == 0
    queue.has_room_for("100m")
    report = await ended(engine, run_of(launch))
    assert [unit.state for unit in report.units] == [State.EXITED, State.EXITED]
    assert b"hello from 1" in await log_of(engine, run_of(launch), 1)


# -- queues ------------------------------------------------------------------------------------------------------------


async def test_a_queue_that_is_not_there_is_said_and_waited_for(
    engine: KubernetesEngine, queue: Queue, account: Deployed
) -> None:
    launch = a_launch("echo hello", queue="nowhere")
    await engine.start(launch)
    found = await waits(engine, launch, "there is no queue")
    assert found.message == f"there is no queue nowhere in the namespace {account.jobs}; it starts when there is"
    meta = {"name": "nowhere", "namespace": account.jobs}
    queue.rig.apply(queue.local | {"metadata": meta})
    report = await ended(engine, run_of(launch))
    assert report.units[0].state is State.EXITED
    queue.rig.kubectl("delete", f"localqueues.{GROUP}", "nowhere", "-n", account.jobs)


async def test_a_queue_that_is_held_is_said(engine: KubernetesEngine, queue: Queue) -> None:
    queue.has_room_for("50m", open_=False)
    launch = a_launch("echo hello", queue=queue.name)
    await engine.start(launch)
    found = await waits(engine, launch, "lets nothing start")
    assert found.message == f"the queue team lets nothing start: ClusterQueue {queue.cluster_queue} is inactive"


async def test_what_its_queue_does_not_have_is_said(engine: KubernetesEngine, queue: Queue) -> None:
    launch = a_launch("true", queue=queue.name, resources=Resources(gpus=1))
    await engine.start(launch)
    found = await waits(engine, launch, "to give")
    assert found.message == "the queue team has no GPU to give"


async def test_that_an_admin_took_it_out_of_its_queue_is_said(engine: KubernetesEngine, queue: Queue) -> None:
    queue.has_room_for("40m")
    launch = a_launch("echo hello", queue=queue.name)
    await engine.start(launch)
    await waits(engine, launch, "never")
    name = queue.workload(launch)["metadata"]["name"]
    queue.activate(name, active=False)
    found = await waits(engine, launch, "taken out")
    assert found.message == f"it was taken out of the queue team in the cluster (its Workload {name} is not active)"
    queue.has_room_for("50m")
    queue.activate(name, active=True)
    assert (await ended(engine, run_of(launch))).units[0].state is State.EXITED


# -- stop --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offered", [("v1beta2", "v1beta1"), ("v1beta1",)])
async def test_one_that_waits_is_stopped_and_never_starts(
    engine: KubernetesEngine, queue: Queue, offered: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Kueue offers only what it did before 0.15."""

    async def versions(*_: object) -> tuple[str, ...]:
        return offered

    monkeypatch.setattr(KubernetesApi, "versions", versions)
    first, second = a_launch(SLEEPS, queue=queue.name), a_launch("true", queue=queue.name)
    await runs(engine, first)
    await engine.start(second)
    await waits(engine, second, "no room")
    await engine.stop(run_of(second), 5)
    assert (await ended(engine, run_of(second))).units[0].state is State.STOPPED
    await engine.stop(run_of(first), 5)
    await ended(engine, run_of(first))
    await passes(engine)
    assert queue.job(second)["spec"]["suspend"] is True
    assert queue.pods_made(second) == 0


async def test_one_that_runs_is_stopped_and_not_started_again(engine: KubernetesEngine, queue: Queue) -> None:
    launch = a_launch(SLEEPS, queue=queue.name)
    await runs(engine, launch)
    await engine.stop(run_of(launch), 5)
    report = await ended(engine, run_of(launch))
    assert report.units[0].state is State.STOPPED
    assert report.units[0].reason is Reason.STOPPED_BY_USER
    await passes(engine)  # the room is free again
    assert queue.job(launch)["spec"]["suspend"] is True
    assert queue.pods_made(launch) == 1


async def test_one_that_is_stopped_at_once_stays_so(engine: KubernetesEngine, queue: Queue) -> None:
    """Before Kueue has made anything of it."""
    launches = [a_launch(SLEEPS, queue=queue.name) for _ in range(4)]
    for launch in launches:
        await engine.start(launch)
        await engine.stop(run_of(launch), 5)
    for launch in launches:
        assert (await ended(engine, run_of(launch))).units[0].state is State.STOPPED
    await passes(engine)
    for launch in launches:
        assert queue.job(launch)["spec"]["suspend"] is True


async def test_one_that_its_queue_starts_all_the_same_is_ended_again(engine: KubernetesEngine, queue: Queue) -> None:
    queue.has_room_for("40m")
    launch = a_launch(SLEEPS, queue=queue.name)
    await engine.start(launch)
    await waits(engine, launch, "never")
    await engine.stop(run_of(launch), 5)
    await ended(engine, run_of(launch))
    queue.has_room_for("50m")
    queue.activate(queue.workload(launch)["metadata"]["name"], active=True)
    await asyncio.to_thread(wait_for, "it to be let go", lambda: not queue.workload(launch)["spec"]["active"])
    await passes(engine)
    assert queue.job(launch)["spec"]["suspend"] is True
    assert (await engine.observe(run_of(launch))).units[0].state is State.STOPPED


async def test_what_can_never_start_is_ended_and_leaves_its_queue(engine: KubernetesEngine, queue: Queue) -> None:
    launch = a_launch(("no-such-program-anywhere",), queue=queue.name)
    report, _ = await outcome(engine, launch)
    assert report.units[0].reason is Reason.LAUNCH_FAILED
    await passes(engine)


# -- taken back --------------------------------------------------------------------------------------------------------


def urgent(queue: Queue, name: str) -> dict[str, Any]:
    """A Job of someone else's, of higher priority, that needs all the room there is, and ends when told."""
    wait = "trap 'exit 0' TERM; while [ ! -e /tmp/end ]; do sleep 0.2; done"
    requests = {"requests": {"cpu": "50m"}}
    container = {"name": "main", "image": "penstock-test:1", "command": ["bash", "-c", wait], "resources": requests}
    labels = {f"{GROUP}/queue-name": queue.name, f"{GROUP}/priority-class": "high"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": queue.namespace, "labels": labels},
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


async def test_one_whose_place_is_taken_waits_and_runs_again(engine: KubernetesEngine, queue: Queue) -> None:
    launch = a_launch(SLEEPS, queue=queue.name)
    await runs(engine, launch)
    queue.rig.apply(urgent(queue, "urgent"))
    found = await waits(engine, launch, "gave its place")
    assert (found.message or "").startswith("it gave its place in the queue team to something of higher priority")
    queue.rig.kubectl("delete", "job", "urgent", "-n", queue.namespace, "--wait=false")
    await until(engine, run_of(launch), lambda report: report.presence is Presence.running)
    await engine.stop(run_of(launch), 5)
    report = await ended(engine, run_of(launch))
    assert report.units[0].state is State.STOPPED
    assert queue.pods_made(launch) == 2


@pytest.fixture
def server(account: Deployed, place: Path) -> Iterator[RunningServer]:
    settings = {
        "engine": "kubernetes",
        "kubernetes_config": str(account.kubeconfig),
        "kubernetes_namespace": account.jobs,
        "kubernetes_image": "penstock-test:1",
        "default_cpus": "50m",
    }
    server = start_server(place, **settings)
    yield server
    server.end()


def test_a_person_sees_that_it_waits_again_and_then_its_end(server: RunningServer, queue: Queue) -> None:
    run = "until [ -e /tmp/go ]; do sleep 0.1; done; echo done"
    made = server.submit(f"name: train\nqueue: {queue.name}\nrun: {run}\n")
    is_in(server, made["id"], "RUNNING")
    queue.rig.apply(urgent(queue, "also-urgent"))
    waiting = is_in(server, made["id"], "QUEUED", "higher priority")
    assert waiting["reason"] == "IN_QUEUE"
    queue.rig.kubectl("delete", "job", "also-urgent", "-n", queue.namespace, "--wait=false")
    is_in(server, made["id"], "RUNNING")
    queue.rig.kubectl("exec", "-n", queue.namespace, f"job/train-{made['id']}", "--", "touch", "/tmp/go")
    found = server.ended(made["id"])
    assert (found["state"], found["attempt"]) == ("EXITED", 1)


def is_in(server: RunningServer, ref: str, state: str, text: str = "") -> dict[str, Any]:
    """The workload once it is in that state with that in its message; the server tells nobody."""
    found: dict[str, Any] = {}

    def reached() -> bool:
        found.update(server.request("GET", f"/v1/workloads/{ref}")[1])
        return bool(found["state"] == state) and text in (found["message"] or "")

    wait_for(f"{ref} to be {state}", reached)
    return found
