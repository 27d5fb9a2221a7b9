"""deploy/kubernetes as an admin applies it: the image built here, the server as a pod, a job through it."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scripts import image
from tests.engines.kubernetes.deployed import objects, own_names
from tests.rig.cluster import Rig
from tests.rig.processes import wait_for

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def built(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of the image in the rig, which takes it as an archive from `python -m scripts.image`."""
    place = tmp_path_factory.mktemp("image")
    name = f"docker.io/library/penstock:{secrets.token_hex(4)}"
    image.save(image.build(place), place / "penstock-image.tar", name)
    rig.load_image(place / "penstock-image.tar", name)
    return name


@pytest.fixture(scope="module")
def server(rig: Rig, built: str) -> Iterator[dict[str, str]]:
    names = own_names()
    found = objects(rig, "base", names)
    for item in found:
        _for_the_rig(item, built, names)
    rig.apply(*(item for item in found if item["kind"] == "Namespace"))
    rig.apply(*found)
    try:
        rig.kubectl("rollout", "status", "statefulset/penstock", "-n", names["penstock"], "--timeout=150s")
        yield names
    finally:
        print(rig.kubectl("logs", "-n", names["penstock"], "penstock-0", check=False))
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
        rig.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", text=text)


def _for_the_rig(item: dict[str, Any], built: str, names: dict[str, str]) -> None:
    """Names of their own, this image, the image that jobs have here, and less time to be found hanging."""
    if item["kind"] == "StatefulSet":
        (container,) = item["spec"]["template"]["spec"]["containers"]
        container["image"] = built
        container["livenessProbe"] |= {"periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 3}
    if item["kind"] == "ConfigMap":
        text = item["data"]["config.toml"]
        for old, new in (('"penstock-jobs"', f'"{names["penstock-jobs"]}"'), ("penstock.penstock", _host(names))):
            text = text.replace(old, new)
        account = f'kubernetes_kubelet_account = "{names["penstock"]}/penstock-nodes"'
        item["data"]["config.toml"] = f'{text}\n{account}\nkubernetes_image = "penstock-test:1"\ndefault_cpus = "50m"\n'


def _host(names: dict[str, str]) -> str:
    return f"penstock.{names['penstock']}"


def inside(rig: Rig, names: dict[str, str], *command: str) -> str:
    return rig.kubectl("exec", "-n", names["penstock"], "penstock-0", "--", "timeout", "90", *command)


def test_a_job_is_submitted_through_it(rig: Rig, server: dict[str, str]) -> None:
    assert "hello from 1" in inside(rig, server, "penstock", "run", "--nodes", "2", "echo hello from $NODE_RANK")
    jobs = json.loads(rig.kubectl("get", "jobs", "-n", server["penstock-jobs"], "-o", "json"))["items"]
    assert [job["metadata"]["labels"]["skypilot-task"] for job in jobs] == ["true"]


def test_volumes_are_claims(rig: Rig, server: dict[str, str]) -> None:
    inside(rig, server, "penstock", "volumes", "create", "data", "1Gi")
    claims = rig.kubectl("get", "pvc", "-n", server["penstock-jobs"], "-l", "volume-name=data", "-o", "name")
    assert "persistentvolumeclaim/data-" in claims
    inside(rig, server, "penstock", "volumes", "delete", "data", "--force")


def test_others_reach_it_by_the_service_with_a_token(rig: Rig, server: dict[str, str]) -> None:
    token = inside(rig, server, "penstock", "token", "create", "--user", "ada").strip().splitlines()[-1]
    address = f"PENSTOCK_API_URL=http://{_host(server)}.svc"
    command = ["env", address, f"PENSTOCK_TOKEN={token}", "penstock", "run", "echo as $PENSTOCK_TASK_ID"]
    assert "as " in inside(rig, server, *command)


def test_it_says_that_all_is_well(rig: Rig, server: dict[str, str]) -> None:
    said = inside(rig, server, "penstock", "doctor")
    assert "all that is needed is allowed" in said


def test_it_sees_what_the_nodes_do(rig: Rig, server: dict[str, str]) -> None:
    """From inside the cluster, with what a pod has: its own token, and the authority it finds beside that."""
    nodes = json.loads(inside(rig, server, "penstock", "top", "node", "-o", "json"))
    assert {node["name"] for node in nodes} >= set(rig.node_names)
    for node in nodes:
        assert node["message"] is None
        assert None not in (node["cpu_percent"], node["memory_used_bytes"], node["received_per_second"])


def test_it_comes_back_with_what_it_knew(rig: Rig, server: dict[str, str]) -> None:
    inside(rig, server, "penstock", "run", "--name", "before", "echo kept")
    rig.kubectl("delete", "pod", "penstock-0", "-n", server["penstock"])
    rig.kubectl("rollout", "status", "statefulset/penstock", "-n", server["penstock"], "--timeout=150s")
    assert "before" in inside(rig, server, "penstock", "jobs", "list")
    assert "kept" in inside(rig, server, "penstock", "jobs", "logs", "before", "--no-follow")


def test_one_that_hangs_is_started_again(rig: Rig, server: dict[str, str]) -> None:
    inside(rig, server, "penstock", "run", "--name", "hangs", "echo kept")
    before = container(rig, server)
    os.kill(process_of(before["containerID"]), signal.SIGSTOP)
    wait_for("another container", lambda: container(rig, server)["containerID"] != before["containerID"], 180)
    rig.kubectl("wait", "pod/penstock-0", "-n", server["penstock"], "--for=condition=Ready", "--timeout=150s")
    assert container(rig, server)["restartCount"] == before["restartCount"] + 1
    assert "kept" in inside(rig, server, "penstock", "jobs", "logs", "hangs", "--no-follow")


def container(rig: Rig, names: dict[str, str]) -> dict[str, Any]:
    (found,) = rig.get("pod", "penstock-0", names["penstock"])["status"]["containerStatuses"]
    return dict(found)


def process_of(container_id: str) -> int:
    """Its first process, as this machine counts."""
    mark = container_id.removeprefix("containerd://")
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    (found,) = (pid for pid in pids if mark in _read(pid, "cgroup") and "penstock.server" in _read(pid, "cmdline"))
    return found


def _read(pid: int, name: str) -> str:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / name).read_text(errors="replace")
    return ""


def test_a_node_that_is_emptied_does_not_wait_for_it(rig: Rig, server: dict[str, str]) -> None:
    uid = rig.get("pod", "penstock-0", server["penstock"])["metadata"]["uid"]
    rig.evict("penstock-0", server["penstock"])
    wait_for("it to leave", lambda: rig.get("pod", "penstock-0", server["penstock"])["metadata"]["uid"] != uid)
    rig.kubectl("rollout", "status", "statefulset/penstock", "-n", server["penstock"], "--timeout=150s")


@pytest.mark.parametrize("overlay", ["base", "two-replicas", "namespace-per-user", "gpu-use"])
def test_every_overlay_is_accepted(rig: Rig, overlay: str, tmp_path: Path) -> None:
    """By the API server, with every field it does not know an error."""
    names = own_names()
    for name in names.values():
        rig.make_namespace(name)
    try:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(rig, overlay, names)})
        rig.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
    finally:
        rig.kubectl("delete", "namespace", "--wait=false", *names.values())
