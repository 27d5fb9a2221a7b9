"""What `penstock doctor` says of a cluster, and what cannot run in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from penstock.domain.workloads import Resources, Scratch, Selectors, Spec
from penstock.engines.kubernetes import doctor, refusals
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.engines.kubernetes.waiting.capacity import Autoscaler, read_autoscaler
from penstock.errors import SettingsError
from penstock.settings import Settings
from tests.engines.kubernetes.deployed import DEPLOY, Deployed
from tests.engines.kubernetes.making import eventually
from tests.engines.kubernetes.opening import opened
from tests.engines.kubernetes.rights import FOR_GPU_USE, FOR_ITS_TOKEN, FOR_KUBELETS, FOR_METRICS, FOR_QUEUES
from tests.engines.kubernetes.test_adoption import gone
from tests.rig.cluster import Rig


async def test_the_account_of_deploy_has_all_the_rights_and_no_others(engine: KubernetesEngine) -> None:
    found = {check.name: check for check in await engine.checks()}
    assert found["cluster"].ok
    assert found["kubernetes"].ok
    assert found["rights"].detail == "all that is needed is allowed"
    assert found["storage class"].detail == "the default is standard"
    assert found["node use"].ok


def test_the_roles_of_deploy_are_what_is_asked_for() -> None:
    """No right that nothing needs."""
    for file, number, rights in (
        ("base/rights-in-jobs.yaml", 0, doctor.IN_NAMESPACE + FOR_QUEUES + doctor.FOR_THE_LEASE),
        ("base/rights-in-cluster.yaml", 0, doctor.IN_CLUSTER + FOR_METRICS),
        ("base/rights-on-nodes.yaml", 0, FOR_KUBELETS),
        ("base/rights-on-nodes.yaml", 1, FOR_ITS_TOKEN),
        ("gpu-use/rights.yaml", 0, FOR_GPU_USE),
    ):
        found = yaml.safe_load_all((DEPLOY / file).read_text())
        role = [each for each in found if each["kind"] in ("Role", "ClusterRole")][number]
        given = {
            (verb, group, resource)
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        needed = {
            (verb, kind.kind.group, kind.kind.plural + (f"/{part}" if part else "")) for verb, kind, part in rights
        }
        assert given == needed, file


async def test_a_namespace_that_is_not_there_is_said(rig: Rig, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, kubernetes_config=rig.kubeconfig, kubernetes_namespace="not-there")
    async with gone(settings) as engine:
        (check,) = [check for check in await engine.checks() if check.name == "namespace"]
        assert (check.ok, check.detail) == (False, "not-there is not there")
        assert check.fix == "kubectl create namespace not-there"


async def test_rights_that_are_missing_are_named(rig: Rig, account: Deployed, tmp_path: Path) -> None:
    rig.kubectl("delete", "rolebinding", "penstock", "-n", account.jobs)
    rig.kubectl("create", "clusterrolebinding", f"view-{account.jobs}", "--clusterrole=view",
                f"--serviceaccount={account.server}:penstock")  # fmt: skip
    try:
        async with gone(account.settings(tmp_path)) as engine:
            (rights,) = [check for check in await engine.checks() if check.name == "rights"]
            assert not rights.ok
            assert "create jobs" in rights.detail
            assert "create pods/exec" in rights.detail
            assert rights.fix
    finally:
        rig.kubectl("delete", "clusterrolebinding", f"view-{account.jobs}")
        rig.kubectl("create", "rolebinding", "penstock", "-n", account.jobs, "--role=penstock",
                    f"--serviceaccount={account.server}:penstock")  # fmt: skip


@pytest.mark.parametrize(
    ("version", "ok"), [("v1.30.2", True), ("v1.36.0-rc.1", True), ("v1.29.9", False), ("?", False)]
)
def test_the_version_is_looked_at(version: str, ok: bool) -> None:
    assert doctor._version(version).ok is ok


# -- what cannot run --------------------------------------------------------------------------------------------------


@pytest.fixture
def a10(rig: Rig) -> Iterator[None]:
    rig.patch_gpus("node-1", "NVIDIA-A10", 4)
    yield
    rig.patch_gpus("node-1", None, 0)


async def test_a_product_no_node_has_is_refused_where_it_cannot_come(
    account: Deployed, tmp_path: Path, a10: None
) -> None:
    spec = Spec(run="true", resources=Resources(gpus=1, gpu_products=("H100",)))
    async with opened(account.settings(tmp_path, kubernetes_autoscaler=("none",))) as engine:
        await eventually(lambda: engine._inventory.products())
        (refusal,) = await engine.refusals(spec)
        assert refusal.keys == ("resources", "accelerators")
        assert refusal.message == "no node has a GPU 'H100'"
        assert refusal.hint == "there are: NVIDIA-A10 (4 of 4 free)"
        for word in ("A10", "nvidia-a10", "NVIDIA A10"):
            known = Spec(run="true", resources=Resources(gpus=1, gpu_products=("H100", word)))
            assert await engine.refusals(known) == []
            assert await engine.notices(known) == []


async def test_a_product_no_node_has_may_be_to_come_where_nobody_has_said_otherwise(
    engine: KubernetesEngine, a10: None
) -> None:
    await eventually(lambda: engine._inventory.products())
    spec = Spec(run="true", resources=Resources(gpus=1, gpu_products=("H100",)))
    assert await engine.refusals(spec) == []
    (notice,) = await engine.notices(spec)
    assert notice.startswith(
        "No node has a GPU 'H100' now: it waits until one has. There are: NVIDIA-A10 (4 of 4 free)."
    )


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (("NVIDIA H100",), "'NVIDIA H100' is no GPU product"),
        (("NVIDIA-H100:many",), "'NVIDIA-H100:many' is no GPU product"),
        (("NVIDIA-H100:0",), "'NVIDIA-H100:0' is no GPU product"),
        (("none", "cpu"), "'none' stands beside something"),
    ],
)
def test_what_is_said_of_an_autoscaler_is_checked(said: tuple[str, ...], wrong: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_autoscaler(Settings(kubernetes_autoscaler=said))
    assert [(each["field"], each["message"]) for each in error.value.problems] == [("kubernetes_autoscaler", wrong)]


async def test_what_no_container_can_be_started_with_is_refused(engine: KubernetesEngine) -> None:
    for spec in (Spec(run="x" * 130_000), Spec(run="true", setup="x" * 130_000), Spec(run=("echo", "x" * 130_000))):
        (refusal,) = await engine.refusals(spec)
        assert "120 KiB" in refusal.message
    many = {f"V{number}": "x" * 1000 for number in range(140)}
    (refusal,) = await engine.refusals(Spec(run="true", envs=many))
    assert "128 KiB" in refusal.message


async def test_a_queue_needs_kueue(engine: KubernetesEngine) -> None:
    (refusal,) = await engine.refusals(Spec(run="true", queue="gpus"))
    assert refusal.keys == ("queue",)
    assert refusal.message == "this cluster has no queues: Kueue is not installed in it"


def test_what_the_cluster_decides_or_does_not_know_is_refused() -> None:
    spec = Spec(run="true", priority=5, selectors=Selectors(cpu_product="Xeon", spread=True))
    found = refusals.find_refusals(spec, {}, Autoscaler(), kueue=False)
    assert [each.keys for each in found] == [("selectors",), ("selectors", "spread"), ("priority",)]
    assert found[1].message == "in Kubernetes the scheduler of the cluster decides how Pods are spread"


async def test_nothing_can_be_where_the_code_will_be(engine: KubernetesEngine) -> None:
    (refusal,) = await engine.refusals(Spec(run="true", workdir=".", scratch=(Scratch(path="/workdir"),)))
    assert refusal.keys == ("volumes", "/workdir")
    assert await engine.refusals(Spec(run="true", workdir="/workdir", scratch=(Scratch(path="/workdir"),))) == []
