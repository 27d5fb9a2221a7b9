"""Why something waits, and why it is given up: each cause is produced in a real cluster."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Array, Resources
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.errors import describe_quota
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.api.resources import KubernetesEvent, PersistentVolumeClaim
from penstock.engines.kubernetes.events import list_run_events
from penstock.engines.kubernetes.waiting.capacity import Autoscaler
from penstock.engines.kubernetes.waiting.reasons import PendingReasons, why_not_bound
from penstock.engines.shared.images import describe_pull_failure
from tests.engines.kubernetes.denying import denying_webhook
from tests.engines.kubernetes.observed import IMAGE, Observed, observed
from tests.engines.launches import a_launch
from tests.rig import images, system
from tests.rig.cluster import Rig


@pytest.fixture(scope="module")
def gpus(own_rig: Rig) -> None:
    own_rig.patch_gpus("node-1", "NVIDIA-A10", 2)


@pytest.fixture
def own_namespace(own_rig: Rig) -> Iterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    own_rig.make_namespace(name)
    yield name
    own_rig.delete_namespace(name)


@pytest.fixture
async def seen(own_rig: Rig, own_namespace: str, tmp_path: Path) -> AsyncIterator[Observed]:
    async with observed(own_rig, own_namespace, tmp_path) as seen:
        yield seen


def asks(**resources: Any) -> Resources:
    return Resources(**resources)


async def waiting(seen: Observed, run: Run, reason: Reason, text: str = "") -> str:
    report = await seen.until(run, lambda report: report.reason is reason and text in (report.message or ""))
    return report.message or ""


async def given_up(seen: Observed, run: Run) -> tuple[Reason | None, str | None]:
    report = await seen.ended(run)
    assert {unit.state for unit in report.units} == {State.CRASHED}
    return report.units[0].reason, report.units[0].message


# no place


async def test_gpus_that_others_have_are_named_with_who_has_them(seen: Observed, gpus: None) -> None:
    first = await seen.start(a_launch("sleep 600", resources=asks(gpus=2)), ["NVIDIA-A10"])
    await seen.running(first)
    second = await seen.start(a_launch("true", resources=asks(gpus=1)), ["NVIDIA-A10"])
    said = await waiting(seen, second, Reason.NO_AVAILABLE_RESOURCES)
    expected = f"no node has 1 × A10 free: 2 × A10 on node-1, all taken by ada (try, {first.workload_id})"
    assert said == expected


async def test_a_product_no_node_has_is_said_with_those_there_are(seen: Observed, gpus: None) -> None:
    run = await seen.start(a_launch("true", resources=asks(gpus=1)), ["H100"])
    said = await waiting(seen, run, Reason.NO_AVAILABLE_RESOURCES)
    assert said.startswith("no node has 1 × H100: there are 2 × A10 (")


async def test_more_gpus_than_any_node_has(seen: Observed, gpus: None) -> None:
    run = await seen.start(a_launch("true", resources=asks(gpus=8)))
    said = await waiting(seen, run, Reason.NO_AVAILABLE_RESOURCES)
    assert said == "no node has 8 × GPU: the most is 2 on node-1"


async def test_more_than_any_node_has(seen: Observed) -> None:
    run = await seen.start(a_launch("true", resources=asks(cpus_milli=50_000)))
    said = await waiting(seen, run, Reason.NO_AVAILABLE_RESOURCES)
    assert said.startswith("no node has 50 CPUs: the largest, node-")
    run = await seen.start(a_launch("true", resources=asks(memory_bytes=500 << 30)))
    said = await waiting(seen, run, Reason.NO_AVAILABLE_RESOURCES)
    assert said.startswith("no node has 500Gi of memory: the largest, node-")


async def test_what_others_have_taken(seen: Observed) -> None:
    large = asks(cpus_milli=1500)
    for _ in range(2):
        await seen.running(await seen.start(a_launch("sleep 600", resources=large)))
    run = await seen.start(a_launch("true", resources=large))
    said = await waiting(seen, run, Reason.NO_AVAILABLE_RESOURCES)
    assert said.startswith("no node has 1.5 CPUs free: node-")
    assert said.endswith("has the most, 0.5 of 2")


async def test_nodes_kept_for_others_by_a_taint(seen: Observed) -> None:
    with tainted(seen.rig, "dedicated=ml:NoSchedule"):
        run = await seen.start(a_launch("true"))
        said = await waiting(seen, run, Reason.NO_AVAILABLE_RESOURCES, "node-1, node-2")
        assert said == "node-1, node-2 are kept for others by the taint dedicated=ml"
    assert (await seen.ended(run)).units[0].state is State.EXITED


async def test_nodes_that_are_cordoned(seen: Observed) -> None:
    for node in seen.rig.node_names:
        seen.rig.kubectl("cordon", node)
    try:
        run = await seen.start(a_launch("true"))
        said = await waiting(seen, run, Reason.NO_AVAILABLE_RESOURCES, "node-1, node-2")
        assert said == "node-1, node-2 are cordoned: nothing new starts there"
    finally:
        for node in seen.rig.node_names:
            seen.rig.kubectl("uncordon", node)
    await seen.ended(run)


async def test_labels_no_node_has(seen: Observed) -> None:
    run = await seen.start(a_launch("true"), change=in_pod(nodeSelector={"zone": "mars"}))
    said = await waiting(seen, run, Reason.NO_AVAILABLE_RESOURCES)
    assert said == "no node has the labels it needs: zone=mars"


# not allowed


async def test_a_quota_that_is_used_up(seen: Observed) -> None:
    quota = {"hard": {"requests.cpu": "2"}}
    seen.rig.apply(thing("v1", "ResourceQuota", "team", seen.namespace, spec=quota))
    first = await seen.start(a_launch("sleep 600", resources=asks(cpus_milli=1500)))
    await seen.running(first)
    second = await seen.start(a_launch("true", resources=asks(cpus_milli=1000)))
    report = await seen.until(second, lambda report: report.reason is Reason.QUOTA)
    assert report.state is State.DENIED
    assert report.message == "the quota team has no room: 1.5 of 2 CPUs are used, and it asks for 1"


async def test_a_webhook_that_refuses_the_pod_ends_it(seen: Observed) -> None:
    with denying_webhook(seen.rig, seen.namespace, "images must be signed"):
        run = await seen.start(a_launch("true"))
        said = await waiting(seen, run, Reason.LAUNCH_FAILED)
        assert said.startswith("the cluster's policy deny.penstock.test refuses it: images must be signed; if that")
        reason, message = await given_up(seen, run)
    assert reason is Reason.LAUNCH_FAILED
    assert message == "The cluster's policy deny.penstock.test refuses it: images must be signed."


async def test_a_namespace_that_is_stricter_than_the_pods_ends_it(seen: Observed) -> None:
    seen.rig.kubectl("label", "namespace", seen.namespace, "pod-security.kubernetes.io/enforce=restricted")
    reason, message = await given_up(seen, await seen.start(a_launch("true")))
    assert reason is Reason.LAUNCH_FAILED
    assert (message or "").startswith("The Pod Security level restricted of its namespace refuses it: ")


# volumes


async def test_a_claim_that_is_not_there_ends_it(seen: Observed) -> None:
    run = await seen.start(a_launch("true"), change=with_claim("not-there"))
    said = await waiting(seen, run, Reason.VOLUME_NOT_READY)
    assert said.startswith("the volume not-there is not there: nobody has a claim of that name; if that does not")
    reason, message = await given_up(seen, run)
    assert reason is Reason.VOLUME_LOST
    assert message == "The volume not-there is not there: nobody has a claim of that name."


async def test_a_claim_of_a_class_there_is_not(seen: Observed) -> None:
    await claim(seen, "stuck", storageClassName="nope")
    run = await seen.start(a_launch("true"), change=with_claim("stuck"))
    said = await waiting(seen, run, Reason.VOLUME_NOT_READY, "nope")
    assert said == "the volume stuck is not ready: there is no storage class nope"


async def test_a_claim_that_cannot_be_made_for_the_pods_node_is_the_reason(seen: Observed) -> None:
    """Its class makes it for the node that was chosen, and until then the scheduler says nothing of the pod."""
    await claim(seen, "many", storageClassName="standard", accessModes=["ReadWriteMany"])
    run = await seen.start(a_launch("true"), change=with_claim("many"))
    said = await waiting(seen, run, Reason.VOLUME_NOT_READY, "for one node")
    assert said.startswith("the volume many is not ready: standard is for one node: only ReadWriteOnce"), said


@pytest.mark.parametrize("binds", ["Immediate", "WaitForFirstConsumer"])
async def test_a_claim_whose_provisioner_does_not_answer(seen: Observed, binds: str) -> None:
    with storage_class(seen.rig, "example.com/nobody", binds) as name:
        await claim(seen, "asked", storageClassName=name)
        run = await seen.start(a_launch("true"), change=with_claim("asked"))
        said = await waiting(seen, run, Reason.VOLUME_NOT_READY, "nobody")
    start = f"the volume asked is not ready: the provisioner example.com/nobody of the storage class {name} has not"
    assert said.startswith(f"{start} answered since ")


@pytest.mark.parametrize("binds", ["Immediate", "WaitForFirstConsumer"])
async def test_a_claim_of_a_class_without_a_provisioner(seen: Observed, binds: str) -> None:
    with storage_class(seen.rig, "kubernetes.io/no-provisioner", binds) as name:
        await claim(seen, "by-hand", storageClassName=name)
        run = await seen.start(a_launch("true"), change=with_claim("by-hand"))
        said = await waiting(seen, run, Reason.VOLUME_NOT_READY)
        found = await seen.api.get(PersistentVolumeClaim, "by-hand", seen.namespace)
        own = why_not_bound(found, seen.cluster.classes.get(name), seen.cluster.events.about(found.uid))
    why = f"the storage class {name} has no provisioner"
    why += ": an admin must make a PersistentVolume of 1Mi with ReadWriteOnce"
    assert said == f"the volume by-hand is not ready: {why}"
    assert own == (why if binds == "Immediate" else f"binds when first used; {why}")


async def test_a_claim_on_a_node_that_takes_no_work(seen: Observed) -> None:
    await claim(seen, "local", storageClassName="standard")
    on_first = in_pod(nodeSelector={"kubernetes.io/hostname": "node-1"})
    first = await seen.start(a_launch("true"), change=lambda body: (with_claim("local")(body), on_first(body)))
    assert (await seen.ended(first)).units[0].state is State.EXITED
    seen.rig.kubectl("cordon", "node-1")
    try:
        run = await seen.start(a_launch("true"), change=with_claim("local"))
        said = await waiting(seen, run, Reason.VOLUME_NOT_READY)
    finally:
        seen.rig.kubectl("uncordon", "node-1")
    assert said == "the volume local can only be used on node-1, cordoned: nothing new starts there"


async def test_a_claim_binds_with_its_first_pod_and_that_is_no_reason_to_wait(seen: Observed) -> None:
    await claim(seen, "fresh", storageClassName="standard")
    run = await seen.start(a_launch("true", resources=asks(cpus_milli=50_000)), change=with_claim("fresh"))
    said = await waiting(seen, run, Reason.NO_AVAILABLE_RESOURCES)
    assert said.startswith("no node has 50 CPUs")


# images, Secrets


async def test_an_image_the_registry_has_not_ends_it_with_its_answer(seen: Observed) -> None:
    run = await seen.start(a_launch("true", resources=asks(image="nobody/nothing:1")))
    report = await seen.until(run, lambda report: "cannot be pulled" in (report.message or ""))
    assert (report.state, report.reason) == (State.PULLING, Reason.PULLING_IMAGE)
    reason, message = await given_up(seen, run)
    assert reason is Reason.PULL_FAILED
    assert (message or "").startswith(
        "The image nobody/nothing:1 cannot be pulled: the registry has no such image (docker.io/nobody/nothing:1:"
    )


async def test_an_image_that_asks_for_credentials(seen: Observed) -> None:
    run = await seen.start(a_launch("true", resources=asks(image="private/thing:1")))
    reason, message = await given_up(seen, run)
    assert reason is Reason.PULL_FAILED
    assert (message or "").startswith("The image private/thing:1 cannot be pulled: the registry asks for credentials (")


async def test_credentials_that_are_missing_are_the_reason_and_not_the_image(seen: Observed) -> None:
    def with_credentials(body: dict[str, Any]) -> None:
        body["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "nowhere"}]

    run = await seen.start(a_launch("true", resources=asks(image="nobody/nothing:1")), change=with_credentials)
    reason, message = await given_up(seen, run)
    assert reason is Reason.PULL_FAILED
    assert (message or "").startswith(
        "The image nobody/nothing:1 cannot be pulled: the Secret nowhere is not there, which has the registry's"
    )


async def test_what_is_no_image_name_ends_it_at_once(own_rig: Rig, own_namespace: str, tmp_path: Path) -> None:
    async with observed(own_rig, own_namespace, tmp_path, pull_patience="1h") as seen:
        run = await seen.start(a_launch("true", resources=asks(image="UPPER CASE")))
        reason, message = await given_up(seen, run)
    assert reason is Reason.PULL_FAILED
    assert (message or "").startswith("'UPPER CASE' is not the name of an image: ")


async def test_patience_is_kept_while_an_image_fails(own_rig: Rig, own_namespace: str, tmp_path: Path) -> None:
    async with observed(own_rig, own_namespace, tmp_path, pull_patience="1h") as seen:
        run = await seen.start(a_launch("true", resources=asks(image="nobody/nothing:1")))
        await seen.until(run, lambda report: "if that does not change it ends at" in (report.message or ""))
        await seen.until(run, lambda _: any(event.reason == "BackOff" for event in list_run_events(seen.cluster, run)))
        assert seen.snapshots.report(run).state is State.PULLING


@pytest.mark.parametrize("way", ["variable", "volume"])
async def test_a_missing_secret_ends_it(seen: Observed, way: str) -> None:
    def change(body: dict[str, Any]) -> None:
        spec = body["spec"]["template"]["spec"]
        if way == "variable":
            source = {"secretKeyRef": {"name": "my-token", "key": "token"}}
            spec["containers"][0]["env"].append({"name": "TOKEN", "valueFrom": source})
        else:
            spec["volumes"].append({"name": "token", "secret": {"secretName": "my-token"}})
            spec["containers"][0]["volumeMounts"].append({"name": "token", "mountPath": "/token"})

    reason, message = await given_up(seen, await seen.start(a_launch("true"), change=change))
    assert reason is Reason.LAUNCH_FAILED
    assert message == "The Secret my-token is missing in the cluster."


async def test_an_index_that_cannot_start_leaves_the_others_alone(seen: Observed, tmp_path: Path) -> None:
    """Its node has not got the image, and may not pull it. The other one is still being started when that is seen."""
    base = system.standard()[system.TEST]
    image = images.write(tmp_path / "image", [], {"Labels": {"only": "here"}}, base)  # no further name of another one
    seen.rig.load_image(image, "docker.io/library/only-here:1")
    here = asks(image="only-here:1")
    on_first = in_pod(nodeSelector={"kubernetes.io/hostname": "node-1"})
    pulled = await seen.ended(await seen.start(a_launch("true", resources=here), change=on_first))
    assert pulled.units[0].state is State.EXITED
    launch = a_launch("sleep 1", array=Array(count=2), resources=here)
    report = await seen.ended(await seen.start(launch, change=never_pulled_and_apart(launch.workload_id)))
    said = "The image only-here:1 is not on the node, and may not be pulled."
    assert sorted((unit.state, unit.reason, unit.message) for unit in report.units) == [
        (State.CRASHED, Reason.PULL_FAILED, said),
        (State.EXITED, Reason.FINISHED, None),
    ]


async def test_a_queue_is_named_while_it_holds_it_back(seen: Observed) -> None:
    run = await seen.start(a_launch("true", queue="gpu-queue"))
    said = await waiting(seen, run, Reason.IN_QUEUE)
    assert said == "it is in the queue gpu-queue, which has not let it start yet"


async def test_a_job_someone_suspended_says_so_and_goes_on_when_resumed(seen: Observed) -> None:
    run = await seen.start(a_launch("echo up; sleep 600", stop_grace=1))
    await seen.printed(run, b"up\n")
    name, first = seen.cluster.jobs_of(run)[0].name, seen.pod(run).uid
    seen.kubectl("patch", "job", name, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    await seen.waits(run, "its Job was suspended in the cluster")
    seen.kubectl("patch", "job", name, "--type=merge", "-p", '{"spec":{"suspend":false}}')
    await seen.running(run)
    assert seen.pod(run).uid != first


# helpers


@contextmanager
def tainted(rig: Rig, taint: str) -> Iterator[None]:
    rig.kubectl("taint", "nodes", "--all", taint)
    try:
        yield
    finally:
        rig.kubectl("taint", "nodes", "--all", f"{taint.partition('=')[0]}-")


def thing(version: str, kind: str, name: str, namespace: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **fields}


@contextmanager
def storage_class(rig: Rig, provisioner: str, binds: str) -> Iterator[str]:
    name = f"class-{secrets.token_hex(4)}"
    meta = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    rig.apply({**meta, "provisioner": provisioner, "volumeBindingMode": binds})
    try:
        yield name
    finally:
        rig.kubectl("delete", "storageclass", name)


def in_pod(**fields: Any) -> Any:
    def change(body: dict[str, Any]) -> None:
        body["spec"]["template"]["spec"] |= fields

    return change


def never_pulled_and_apart(workload_id: str) -> Any:
    same = {"labelSelector": {"matchLabels": {names.TASK_ID: workload_id}}, "topologyKey": "kubernetes.io/hostname"}
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    slow = ["sh", "-c", '[ "$NODE" != node-1 ] || sleep 4']
    return never_pulled(
        in_pod(
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [same]}},
            initContainers=[{"name": "slow-on-the-first", "image": IMAGE, "command": slow, "env": [node]}],
        )
    )


def never_pulled(changed: Any) -> Any:
    def change(body: dict[str, Any]) -> None:
        changed(body)
        body["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Never"

    return change


def with_claim(name: str) -> Any:
    def change(body: dict[str, Any]) -> None:
        spec = body["spec"]["template"]["spec"]
        spec["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": name}})
        spec["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})

    return change


async def claim(seen: Observed, name: str, **fields: Any) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, **fields}
    await seen.api.create(PersistentVolumeClaim, {"metadata": {"name": name}, "spec": spec}, seen.namespace)


# sentences alone


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            'Back-off pulling image "r.io/a:1": ErrImagePull: rpc error: code = NotFound desc = failed to pull and '
            'unpack image "r.io/a:1": failed to resolve reference "r.io/a:1": r.io/a:1: not found',
            "the image r.io/a:1 cannot be pulled: the registry has no such image (r.io/a:1: not found)",
        ),
        (
            'failed to pull and unpack image "r.io/a:1": failed to resolve reference "r.io/a:1": failed to do request: '
            'Head "https://r.io/v2/a/manifests/1": dial tcp 10.0.0.1:443: connect: connection refused',
            "the image r.io/a:1 cannot be pulled: the registry is not there "
            "(dial tcp 10.0.0.1:443: connect: connection refused)",
        ),
        ("something new", "the image r.io/a:1 cannot be pulled: something new"),
        ("", "the image r.io/a:1 cannot be pulled"),
    ],
)
def test_the_registrys_answer_is_taken_out_of_what_passed_it_on(message: str, said: str) -> None:
    assert describe_pull_failure("r.io/a:1", "ErrImagePull", message) == said


def test_a_quota_that_allows_less_than_is_asked_for_at_all() -> None:
    said = describe_quota(
        "exceeded quota: team, requested: requests.memory=16Gi,requests.nvidia.com/gpu=2, used: requests.memory=0,"
        "requests.nvidia.com/gpu=3, limited: requests.memory=8Gi,requests.nvidia.com/gpu=4"
    )
    assert said == (
        "the quota team has no room: it asks for 16Gi memory, and 8Gi are allowed in all, "
        "3 of 4 GPUs are used, and it asks for 2"
    )


def test_a_quota_of_what_the_job_does_not_say() -> None:
    said = describe_quota("failed quota: team: must specify limits.cpu,limits.memory,requests.memory for: task")
    assert said == "the quota team counts CPUs and memory: it must say under resources how much it needs"


@pytest.mark.parametrize(
    ("causes", "reason"),
    [
        ("1 Insufficient cpu, 1 node(s) had volume node affinity conflict.", Reason.VOLUME_NOT_READY),
        ("1 Insufficient cpu, 1 node(s) were unschedulable.", Reason.NO_AVAILABLE_RESOURCES),
        ("2 Insufficient cpu.", Reason.NO_AVAILABLE_RESOURCES),
    ],
)
def test_a_volume_is_blamed_only_if_the_scheduler_says_so(causes: str, reason: Reason) -> None:
    message = f"0/2 nodes are available: {causes} preemption: 0/2 nodes are available: 2 Preemption is not helpful."
    waits = {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}
    spec = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "local"}}]}
    pod = msgspec.convert({"metadata": {"name": "a", "namespace": "n"}, "spec": spec, "status": waits}, Pod)
    chosen = {"volume.kubernetes.io/selected-node": "node-1"}
    bound = {"metadata": {"name": "local", "annotations": chosen}, "status": {"phase": "Bound"}}
    cluster: Any = SimpleNamespace(claims=SimpleNamespace(get=lambda *_: msgspec.convert(bound, PersistentVolumeClaim)))
    stock: Any = SimpleNamespace(node=lambda _: None, all=list)
    assert PendingReasons(cluster, stock, Autoscaler(), None).why([], pod).reason is reason  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("happened", "state", "said"),
    [
        ([], State.ASSIGNED, "it starts on node-1"),
        (["Scheduled"], State.ASSIGNED, "it starts on node-1"),
        (["Scheduled", "Pulling"], State.PULLING, "node-1 pulls the image python:3.13-slim"),
        (["Scheduled", "Pulling", "Pulled"], State.LAUNCHING, "it starts on node-1"),
        (["Scheduled", "Pulled", "Created"], State.LAUNCHING, "it starts on node-1"),
    ],
)
def test_the_steps_of_one_that_has_a_place(happened: list[str], state: State, said: str) -> None:
    container = {"name": "task", "image": "python:3.13-slim"}
    status = {"containerStatuses": [{"name": "task", "state": {"waiting": {"reason": "ContainerCreating"}}}]}
    spec = {"nodeName": "node-1", "containers": [container]}
    pod = msgspec.convert({"metadata": {"name": "a", "uid": "u"}, "spec": spec, "status": status}, Pod)
    events = [msgspec.convert({"reason": reason, "type": "Normal"}, KubernetesEvent) for reason in happened]
    cluster: Any = SimpleNamespace(events=SimpleNamespace(about=lambda _: events))
    why = PendingReasons(cluster, None, Autoscaler(), None).why([], pod)  # type: ignore[arg-type]
    assert (why.state, why.message) == (state, said)
