"""A volume that is deleted is listed until it is gone, with who still holds it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.house import House, house
from tests.rig.cluster import Rig
from tests.rig.processes import wait_for

HOLDER = "holds-it-still"
SUCCEEDED = "jsonpath={.status.succeeded}"


@pytest.fixture(scope="module")
def home(rig: Rig) -> Iterator[House]:
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    try:
        with house(rig, place) as made:
            yield made
    finally:
        shutil.rmtree(place)


def listed(home: House) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = home.server.request("GET", "/v1/volumes")[1]["items"]
    return found


def phase(home: House) -> str:
    return home.rig.kubectl("get", "pod", HOLDER, "-n", home.namespace, "-o", "jsonpath={.status.phase}")


def test_after_its_job_has_completed_it_is_gone_at_once(home: House) -> None:
    home.penstock("volumes", "create", "used", "10Mi")
    job = home.ended(home.submit("volumes: {/data: used}\nrun: echo done\n"))
    assert job["status"] == "completed"
    assert "deleted" in home.penstock("volumes", "delete", "used", "--force")
    assert listed(home) == []
    assert home.rig.kubectl("get", "pvc", "-n", home.namespace, "-o", "name") == ""
    assert home.penstock("jobs", "logs", job["id"]) == "done\n"


def test_what_somebody_else_holds_is_listed_as_being_deleted_until_it_is_gone(home: House) -> None:
    """By a pod that has ended: Kubernetes keeps the claim for it all the same."""
    made = home.server.request("POST", "/v1/volumes", {"name": "held", "size": "10Mi"})[1]
    mounted = {"name": "v", "persistentVolumeClaim": {"claimName": f"held-{made['id']}"}}
    container = {"name": "main", "image": "penstock-test:1", "command": ["true"]}
    container["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]  # type: ignore[assignment,list-item]
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [mounted]}
    metadata = {"name": HOLDER, "namespace": home.namespace}
    home.rig.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        wait_for("the pod to end", lambda: phase(home) == "Succeeded")
        said = home.penstock("volumes", "delete", "held", "--force")
        assert f"{HOLDER} still holds it" in said
        [volume] = listed(home)
        assert (volume["name"], volume["status"]) == ("held", "Deleting")
        assert f"{HOLDER} still holds it" in volume["message"]
        assert "Deleting" in home.penstock("volumes", "list")
    finally:
        home.rig.kubectl("delete", "pod", HOLDER, "-n", home.namespace)
    wait_for("the volume to be gone", lambda: listed(home) == [])


def test_a_task_as_a_manifest_names_the_claim_and_runs_as_it_is(home: House, tmp_path: Path) -> None:
    made = home.server.request("POST", "/v1/volumes", {"name": "data", "size": "10Mi"})[1]
    task = tmp_path / "task.yaml"
    task.write_text(
        "name: plain\nresources: {image_id: 'penstock-test:1'}\nvolumes: {/data: data}\nrun: echo >/data/x\n"
    )
    manifest = home.penstock("convert", str(task), "--to", "kubernetes")
    assert f"claimName: data-{made['id']}" in manifest
    home.rig.kubectl("apply", "-n", home.namespace, "-f", "-", text=manifest)
    wait_for("it to end", lambda: "1" in home.rig.kubectl("get", "job", "plain", "-n", home.namespace, "-o", SUCCEEDED))
    home.rig.kubectl("delete", "job", "plain", "-n", home.namespace)
    home.penstock("volumes", "delete", "data", "--force")


@pytest.fixture
def small(rig: Rig) -> Iterator[str]:
    """A storage class with one place of 16Mi, which has no more than that."""
    disk = rig.directory / "small"
    rig.processes.run("mkdir", "-p", disk)
    rig.processes.run("mount", "-t", "tmpfs", "-o", "size=16m,mode=1777", "tmpfs", disk)
    storage = {"capacity": {"storage": "16Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "small"}
    storage |= {"persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": str(disk)}}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "small"}}
    rig.apply(
        kind | {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "Immediate"},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "small"}, "spec": storage},
    )
    try:
        yield "small"
    finally:
        rig.kubectl("delete", "pv/small", "sc/small", "--ignore-not-found")
        rig.processes.run("umount", "--lazy", disk)


def test_a_job_that_fills_its_claim_ends_with_its_own_reason_and_all_of_it_can_be_cleared(
    home: House, small: str
) -> None:
    home.penstock("volumes", "create", "full", "16Mi", "--storage-class", small)
    fills = "sh -c 'dd if=/dev/zero of=/data/big bs=64k; exit 3'"
    done = home.ended(home.submit(f'volumes: {{/data: full}}\nrun: "{fills}"\n'))
    assert (done["state"], done["reason"], done["exit_code"]) == ("CRASHED", "PROGRAM_FAILED", 3)
    assert "No space left on device" in home.penstock("jobs", "logs", done["id"])
    again = home.submit("volumes: {/data: full}\nrun: sleep 600\n")
    home.runs(again)
    [line] = [each for each in home.penstock("volumes", "df").splitlines() if each.startswith("full ")]
    assert line.split() == ["full", "16Mi", "16Mi", "0B", "-", "100%", "Bound"]
    home.penstock("jobs", "stop", again)
    assert home.ended(again)["state"] == "STOPPED"
    for job in (done["id"], again):
        home.penstock("jobs", "delete", job, "--force")
    assert "deleted" in home.penstock("volumes", "delete", "full", "--force")
    assert listed(home) == []
