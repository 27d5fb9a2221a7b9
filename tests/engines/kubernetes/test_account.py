"""Whoever has the token of the server's account: what they can do with it in a cluster, and what not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.states import State
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import KubernetesError
from penstock.engines.kubernetes.api.objects import Job
from penstock.engines.kubernetes.api.resources import Namespace, RoleBinding, Secret
from tests.engines.kubernetes.deployed import Deployed, deployed
from tests.engines.kubernetes.opening import opened
from tests.engines.launches import a_launch, outcome
from tests.rig.cluster import Rig

RBAC = "rbac.authorization.k8s.io"
ENFORCE = "pod-security.kubernetes.io/enforce"
Fields = dict[str, Any]


@pytest.fixture(scope="module", params=["base", "namespace-per-user"])
def account(rig: Rig, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Deployed]:
    with deployed(rig, tmp_path_factory.mktemp("account"), request.param) as made:
        yield made
        ours = [name.removeprefix("namespace/") for name in rig.kubectl("get", "namespaces", "-o", "name").split()]
        mine = [name for name in ours if name.startswith(made.jobs)]
        rig.kubectl("delete", "namespace", "--wait=false", "--ignore-not-found", *mine)


@pytest.fixture(scope="module")
def per_user(account: Deployed) -> bool:
    found = account.rig.kubectl("get", "clusterroles", "-o", "name")
    return account.role in found


@pytest.fixture
async def thief(account: Deployed) -> AsyncIterator[KubernetesApi]:
    api = KubernetesApi.open(account.kubeconfig, patience=5)
    yield api
    await api.close()


@pytest.fixture
async def home(account: Deployed, per_user: bool, tmp_path: Path) -> str:
    """A namespace in which the server ran a job, as it does every day."""
    chosen: Fields = {"kubernetes_namespaces": "user", "kubernetes_namespace_role": account.role} if per_user else {}
    async with opened(account.settings(tmp_path, **chosen)) as engine:
        report, _ = await outcome(engine, a_launch("true", user="ada", group="ada"))
        assert report.units[0].state is State.EXITED
        return engine.namespace("ada", "ada")


async def refused(attack: Callable[[], Awaitable[Any]]) -> str:
    """What the API server says; a new policy is known to it after a moment, so what comes through is tried again."""
    for _ in range(50):
        try:
            await attack()
        except KubernetesError as error:
            if error.status in (403, 422):
                return error.message
        await asyncio.sleep(0.2)
    raise AssertionError("it was never refused")


def namespace_(name: str, **labels: str) -> Fields:
    return {"metadata": {"name": name, "labels": {ENFORCE: "baseline"} | labels}}


def job(**pod: Any) -> Fields:
    """As harmless as Penstock's own, but for what is said."""
    container = {
        "name": "task",
        "image": "busybox:1",
        "command": ["true"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    } | pod.pop("container", {})
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    } | pod
    return {"metadata": {"generateName": "evil-"}, "spec": {"suspend": True, "template": {"spec": spec}}}


def binding(role: str, account: str, namespace: str) -> Fields:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    return {"metadata": {"generateName": "evil-"}, "roleRef": reference, "subjects": [subject]}


async def test_it_makes_no_namespace_that_is_weaker_or_of_another_name(account: Deployed, thief: KubernetesApi) -> None:
    attacks = [
        namespace_(f"{account.jobs}-evil", **{ENFORCE: "privileged"}),
        {"metadata": {"name": f"{account.jobs}-evil"}},
        namespace_(f"{account.jobs}-evil", **{"admission.gatekeeper.sh/ignore": "yes"}),
        namespace_(f"{account.jobs}-evil", **{f"{ENFORCE}-version": "v1.0"}),
        namespace_(f"{account.jobs}evil"),
        namespace_("evil"),
    ]
    for attack in attacks:
        try:
            await refused(lambda attack=attack: thief.create(Namespace, attack))  # type: ignore[misc]
        finally:
            account.rig.kubectl("delete", "namespace", "--ignore-not-found", "--wait=false", attack["metadata"]["name"])


async def test_it_changes_no_namespace(account: Deployed, thief: KubernetesApi, home: str) -> None:
    for name in (home, "default", account.jobs):
        weaker = {"metadata": {"labels": {ENFORCE: "privileged"}}}
        await refused(lambda name=name, weaker=weaker: thief.patch(Namespace, name, weaker))  # type: ignore[misc]
        await refused(lambda name=name: thief.delete(Namespace, name))  # type: ignore[misc]


@pytest.mark.parametrize(
    "pod",
    [
        {"container": {"securityContext": {"privileged": True}}},
        {"container": {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"add": ["SYS_ADMIN"]}}}},
        {"container": {"ports": [{"containerPort": 80, "hostPort": 80}]}},
        {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]},
        {"volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
        {"volumes": [{"name": "secret", "secret": {"secretName": "s"}}]},
        {"hostNetwork": True},
        {"hostPID": True},
        {"hostIPC": True},
        {"nodeName": "node-0"},
        {"serviceAccountName": "another"},
        {"automountServiceAccountToken": True},
        {"priorityClassName": "system-node-critical"},
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        {"initContainers": [{"name": "first", "image": "busybox:1", "securityContext": {"privileged": True}}]},
    ],
)
async def test_it_makes_no_job_that_gets_at_the_node(
    account: Deployed, thief: KubernetesApi, home: str, pod: Fields
) -> None:
    """Not even where the namespace's own level of Pod Security was taken away."""
    account.rig.kubectl("label", "namespace", home, "--overwrite", f"{ENFORCE}=privileged")
    await thief.create(Job, job(), home)
    assert "Penstock" in await refused(lambda: thief.create(Job, job(**pod), home))


async def test_it_gives_itself_and_others_no_further_rights(
    account: Deployed, thief: KubernetesApi, home: str, per_user: bool
) -> None:
    role = account.role if per_user else "view"
    for namespace, wanted in (
        ("kube-system", binding(role, "penstock", account.server)),
        ("default", binding(role, "penstock", account.server)),
        (account.jobs, binding(role, "penstock", account.server)),
        (home, binding("cluster-admin", "penstock", account.server)),
        (home, binding("view", "penstock", account.server)),
        (home, binding(role, "default", home)),
    ):
        await refused(lambda namespace=namespace, wanted=wanted: thief.create(RoleBinding, wanted, namespace))  # type: ignore[misc]


async def test_it_reads_nothing_elsewhere(account: Deployed, thief: KubernetesApi, home: str) -> None:
    """A pod that is not there is forbidden, too: who may read, is told that it is not there."""

    async def log() -> None:
        async with thief.log("any", "kube-system") as lines:
            await anext(lines)

    await refused(log)
    await refused(lambda: thief.exec("any", "kube-system", ["id"]))
    for namespace in ("kube-system", "default", account.server):
        await refused(lambda namespace=namespace: thief.get(Secret, "any", namespace))  # type: ignore[misc]
        await refused(lambda namespace=namespace: thief.create(Job, job(), namespace))  # type: ignore[misc]
    for namespace in ("kube-system", home):
        await refused(lambda namespace=namespace: thief.list(Secret, namespace))  # type: ignore[misc]
