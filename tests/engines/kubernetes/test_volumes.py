"""Volumes as claims of a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.domain.states import State
from penstock.domain.volumes import AccessMode, Phase, Volume
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.errors import Conflict, InUse, Invalid, Unavailable
from tests.engines.kubernetes.deployed import Deployed
from tests.engines.kubernetes.making import eventually
from tests.engines.kubernetes.opening import bound
from tests.engines.launches import a_launch, a_volume, ended, log_of, outcome, printed, run_of, the_account
from tests.rig import provisioner

ONCE = {"access_modes": (AccessMode.ReadWriteOnce,)}


async def made(engine: KubernetesEngine, **fields: Any) -> Volume:
    volume = a_volume(**fields)
    await engine.create_volume(volume, the_account())
    return volume


def claim(account: Deployed, volume: Volume) -> dict[str, Any]:
    return account.rig.get("pvc", volume.object_name, account.jobs)


async def report(engine: KubernetesEngine, volume: Volume) -> tuple[Phase, str | None]:
    found = (await engine.volume_reports([volume]))[volume.id]
    return found.phase, found.message


@pytest.fixture
def foreign(account: Deployed) -> Iterator[Any]:
    """Makes pods that are not ours, in the namespace of our jobs."""
    names_: list[str] = []

    def make(name: str, volume_claim: str) -> None:
        names_.append(name)
        container = {"name": "main", "image": "busybox:1", "command": ["sleep", "600"]}
        mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        account.rig.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": account.jobs},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container | mounts],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": volume_claim}}],
                },
            }
        )

    yield make
    for name in names_:
        account.rig.kubectl("delete", "pod", name, "-n", account.jobs, "--ignore-not-found")


# -- as k8s-cli describes them -----------------------------------------------------------------------------------


async def test_a_claim_has_the_name_the_labels_and_the_spec_that_were_asked_for(
    engine: KubernetesEngine, account: Deployed
) -> None:
    volume = await made(engine, name="ml-data", size="3Gi", size_bytes=3 * 2**30)
    found = claim(account, volume)
    assert found["metadata"]["name"] == f"ml-data-{volume.id}"
    assert found["metadata"]["labels"] == {
        "skypilot-volume": "true",
        "volume-id": volume.id,
        "volume-name": "ml-data",
        "username": "ann",
        names.MANAGED: "penstock",
    }
    assert found["metadata"]["annotations"]["created-at"].startswith("20")
    assert found["metadata"]["annotations"][names.OWNER] == "ann/ann"
    assert found["spec"]["storageClassName"] == "shared"
    assert found["spec"]["accessModes"] == ["ReadWriteMany"]
    assert found["spec"]["resources"]["requests"]["storage"] == "3Gi"


async def test_what_binds_late_says_so_and_is_bound_by_its_first_use(engine: KubernetesEngine) -> None:
    volume = await made(engine, storage_class="standard", **ONCE)
    assert await report(engine, volume) == (Phase.Pending, "binds when first used")
    assert await engine.volume_usage(volume) == 0
    found, log = await outcome(engine, a_launch("echo x >/data/x; cat /data/x", {"/data": volume}))
    assert (found.units[0].state, log) == (State.EXITED, "x\n")
    assert await report(engine, volume) == (Phase.Bound, None)


async def test_a_class_that_is_not_there_is_refused_with_those_that_are(engine: KubernetesEngine) -> None:
    with pytest.raises(Invalid) as error:
        await engine.create_volume(a_volume(storage_class="fast-ssd"), the_account())
    (problem,) = error.value.problems
    assert problem["message"] == "'fast-ssd' is not a storage class"
    assert problem["hint"] == "there are: standard, expandable, rook-cephfs, shared"


async def test_classes_are_described(engine: KubernetesEngine) -> None:
    classes = {each.name: each for each in await engine.storage_classes()}
    assert next(iter(classes)) == "standard"
    assert classes["standard"].default
    assert "binds when first used" in classes["standard"].description
    assert "binds at once" in classes["shared"].description
    assert [name for name, each in classes.items() if each.resizable] == ["expandable"]


async def test_why_it_cannot_be_made_is_said(engine: KubernetesEngine, account: Deployed) -> None:
    """The rig's provisioner knows nothing of this class."""
    broken = f"broken-{account.jobs}"
    meta = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": broken}}
    account.rig.apply({**meta, "provisioner": provisioner.NAME, "volumeBindingMode": "Immediate"})
    try:
        await eventually(lambda: engine._cluster.classes.get(broken))
        volume = await made(engine, storage_class=broken)
        said = f"{broken} is no storage class of this provisioner"
        found = await eventually(lambda: said in str((at := engine._claims.report(volume)).message) and at)
        assert found.phase is Phase.Pending
        assert any(event.kind == "Warning" for event in await engine.volume_events(volume))
    finally:
        account.rig.kubectl("delete", "storageclass", broken)


# -- delete -----------------------------------------------------------------------------------------------------------


async def test_what_a_pod_uses_cannot_be_deleted_whosever_it_is(
    engine: KubernetesEngine, account: Deployed, foreign: Any
) -> None:
    volume = await made(engine)
    foreign("someone-elses", volume.object_name)
    await eventually(lambda: engine._claims.pods(volume))
    assert await engine.volume_users(volume) == [f"pod {account.jobs}/someone-elses"]
    with pytest.raises(InUse, match="in use by someone-elses"):
        await engine.delete_volume(volume)
    assert "deletionTimestamp" not in claim(account, volume)["metadata"]


async def test_what_a_job_of_ours_uses_cannot_be_deleted(engine: KubernetesEngine) -> None:
    volume = await made(engine)
    launch = a_launch("echo up; sleep 600", {"/data": volume})
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    assert await engine.volume_users(volume) == []
    with pytest.raises(InUse, match=f"in use by try-{launch.workload_id}"):
        await engine.delete_volume(volume)
    await engine.stop(run_of(launch), 1)
    await ended(engine, run_of(launch))
    await engine.delete_volume(volume)


async def test_what_has_ended_holds_no_volume_and_its_log_stays(engine: KubernetesEngine, account: Deployed) -> None:
    volume = await made(engine)
    launch = a_launch("echo done", {"/data": volume})
    _, log = await outcome(engine, launch)
    assert log == "done\n"
    await engine.delete_volume(volume)
    assert volume.object_name not in account.rig.kubectl("get", "pvc", "-n", account.jobs, "-o", "name")
    assert await log_of(engine, run_of(launch)) == b"done\n"
    assert (await ended(engine, run_of(launch))).units[0].state is State.EXITED


async def test_deleted_with_kubectl_while_in_use_it_says_who_holds_it(
    engine: KubernetesEngine, account: Deployed, foreign: Any
) -> None:
    volume = await made(engine)
    await bound(engine, volume)
    foreign("holder", volume.object_name)
    await eventually(lambda: engine._claims.pods(volume))
    account.rig.kubectl("delete", "pvc", volume.object_name, "-n", account.jobs, "--wait=false")
    await eventually(lambda: engine._claims.report(volume).phase is Phase.Deleting)
    assert await report(engine, volume) == (Phase.Deleting, "still used by holder")


async def test_deleted_with_kubectl_it_is_lost(engine: KubernetesEngine, account: Deployed) -> None:
    volume = await made(engine)
    account.rig.kubectl("delete", "pvc", volume.object_name, "-n", account.jobs)
    await eventually(lambda: engine._claims.report(volume).phase is Phase.Lost)
    message = f"The claim {account.jobs}/{volume.object_name} is gone."
    assert await report(engine, volume) == (Phase.Lost, message)
    with pytest.raises(Unavailable, match="is gone"):
        await engine.volume_usage(volume)


# -- grow -------------------------------------------------------------------------------------------------------------


async def test_it_grows_where_its_class_lets_it(engine: KubernetesEngine, account: Deployed) -> None:
    volume = await made(engine, storage_class="expandable", **ONCE)
    bigger = volume.model_copy(update={"size": "2Gi", "size_bytes": 2 * 2**30})
    await eventually(lambda: engine._claims.find(volume))
    with pytest.raises(Conflict, match="is not bound yet") as error:
        await engine.resize_volume(bigger)
    assert error.value.hint
    await outcome(engine, a_launch("true", {"/data": volume}))
    await engine.resize_volume(bigger)
    await engine.resize_volume(bigger)
    await eventually(lambda: claim(account, volume)["status"]["capacity"]["storage"] == "2Gi")
    assert (await report(engine, bigger))[0] is Phase.Bound
    record = json.loads(claim(account, volume)["metadata"]["annotations"][names.RECORD])
    assert record["volume"]["size"] == "2Gi"


async def test_elsewhere_it_says_which_classes_would(engine: KubernetesEngine) -> None:
    volume = await made(engine)
    with pytest.raises(Conflict, match="class shared cannot grow") as error:
        await engine.resize_volume(volume.model_copy(update={"size": "2Gi"}))
    assert error.value.hint == "these can: expandable"


# -- how much it holds ------------------------------------------------------------------------------------------------


async def test_it_is_measured_with_no_job_running_and_in_one_that_runs(
    engine: KubernetesEngine, account: Deployed
) -> None:
    volume = await made(engine)
    fill = "dd if=/dev/zero of=/data/file bs=1M count=3 2>/dev/null"
    await outcome(engine, a_launch(fill, {"/data": volume}))
    assert 3 * 2**20 <= await engine.volume_usage(volume) < 4 * 2**20
    await eventually(lambda: "measure" not in account.rig.kubectl("get", "jobs,pods", "-n", account.jobs, "-o", "name"))
    launch = a_launch("echo more >/data/more; echo up; sleep 600", {"/data": volume})
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    assert 3 * 2**20 <= await engine.volume_usage(volume) < 4 * 2**20


# -- claims by their own name -----------------------------------------------------------------------------------------


async def test_a_claim_that_penstock_did_not_make_is_found_by_its_name(
    engine: KubernetesEngine, account: Deployed
) -> None:
    account.rig.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "by-hand", "namespace": account.jobs},
            "spec": {
                "storageClassName": "shared",
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    await eventually(lambda: engine._cluster.claims.get("by-hand", account.jobs))
    nobodys = await engine.existing_claim("by-hand", "ada", "ada")
    assert nobodys is not None
    assert nobodys.group == ""
    account.rig.kubectl("annotate", "pvc", "by-hand", "-n", account.jobs, f"{names.GROUPS}=vision,ada")
    await eventually(lambda: names.GROUPS in engine._cluster.claims.get("by-hand", account.jobs).annotations)  # type: ignore[union-attr]
    literal = await engine.existing_claim("by-hand", "ada", "ada")
    assert literal is not None
    assert literal.group == "ada"
    assert (literal.claim, literal.object_name, literal.size, literal.many_nodes) == ("by-hand", "by-hand", "1Gi", True)
    _, log = await outcome(engine, a_launch("touch /data/x; ls /data", {"/data": literal}))
    assert log == "x\n"
    assert await engine.volume_usage(literal) >= 0


async def test_a_claim_of_penstocks_own_is_not_found_that_way(engine: KubernetesEngine, account: Deployed) -> None:
    volume = await made(engine)
    await eventually(lambda: engine._cluster.claims.get(volume.object_name, account.jobs))
    assert await engine.existing_claim(volume.object_name, "mallory", "mallory") is None
    assert await engine.existing_claim("no-such-claim", "mallory", "mallory") is None
    account.rig.kubectl(
        "label", "pvc", volume.object_name, "-n", account.jobs, "volume-id-", "app.kubernetes.io/managed-by-"
    )
    unmarked = lambda: not engine._claims.find(volume).labels.get("volume-id")  # type: ignore[union-attr]  # noqa: E731
    await eventually(unmarked)
    assert await engine.existing_claim(volume.object_name, "mallory", "mallory") is None


async def test_what_is_there_can_be_found_by_a_server_that_lost_its_records(engine: KubernetesEngine) -> None:
    volume = await made(engine)
    await eventually(
        lambda: engine._claims.find(volume) is engine._cluster.claims.get(*reversed(_place(engine, volume)))
    )
    found = await engine.found(())
    assert (volume, the_account()) in [(each.model_copy(update={}), account) for each, account in found.volumes]


def _place(engine: KubernetesEngine, volume: Volume) -> tuple[str, str]:
    return engine._claims.place(volume)
