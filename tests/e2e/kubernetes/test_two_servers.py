"""Two servers on one namespace: one works, the other says who does and touches nothing."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.cluster import Rig
from tests.rig.processes import wait_for
from tests.running import RunningServer, StartFailed, start_server

JOB = "name: long\nresources: {cpus: 0.1}\nrun: sleep 600\n"


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    name = f"two-{secrets.token_hex(4)}"
    rig.make_namespace(name)
    yield name
    rig.delete_namespace(name)


def settings(rig: Rig, namespace: str) -> dict[str, str]:
    return {
        "engine": "kubernetes",
        "kubernetes_config": str(rig.kubeconfig),
        "kubernetes_namespace": namespace,
        "kubernetes_image": "penstock-test:1",
        "default_cpus": "50m",
        "stop_grace": "1s",
    }


def a_server(rig: Rig, namespace: str, place: Path) -> RunningServer:
    place.mkdir(exist_ok=True)
    return start_server(place, None, **settings(rig, namespace))


def running(server: RunningServer, job: str) -> Any:
    def is_so() -> bool:
        return bool(server.request("GET", f"/v1/workloads/{job}")[1]["status"] == "running")

    wait_for(f"{job} to run", is_so, 60)


def test_the_second_says_who_has_the_namespace_and_touches_nothing(rig: Rig, namespace: str, tmp_path: Path) -> None:
    first = a_server(rig, namespace, tmp_path / "a")
    try:
        job = first.submit(JOB)["id"]
        running(first, job)
        with pytest.raises(StartFailed) as refused:
            a_server(rig, namespace, tmp_path / "b").end()
        assert f"The namespace {namespace} is held by another Penstock server, on " in str(refused.value)
        assert first.request("GET", f"/v1/workloads/{job}")[1]["status"] == "running"
    finally:
        first.end()
    second = a_server(rig, namespace, tmp_path / "b")  # one that ended in order leaves it at once
    try:
        assert [each["id"] for each in second.request("GET", "/v1/workloads")[1]["items"]] == [job]
    finally:
        second.end()


def test_one_that_was_killed_has_it_again_at_once_and_another_after_a_while(
    rig: Rig, namespace: str, tmp_path: Path
) -> None:
    first = a_server(rig, namespace, tmp_path / "a")
    job = first.submit(JOB)["id"]
    running(first, job)
    first.kill()
    first = a_server(rig, namespace, tmp_path / "a")
    assert first.request("GET", f"/v1/workloads/{job}")[1]["status"] == "running"
    held = rig.get("lease", "penstock", namespace)["spec"]
    first.kill()
    other = a_server(rig, namespace, tmp_path / "b")
    try:
        now_held = rig.get("lease", "penstock", namespace)["spec"]
        assert now_held["holderIdentity"] != held["holderIdentity"]
        assert other.request("GET", f"/v1/workloads/{job}")[1]["status"] in ("pending", "running")
    finally:
        other.end()


def test_one_whose_namespace_was_taken_over_ends(rig: Rig, namespace: str, tmp_path: Path) -> None:
    """As after a long pause of its machine."""
    first = a_server(rig, namespace, tmp_path / "a")
    try:
        other = {
            "metadata": {"annotations": {"penstock.dev/process": "another"}},
            "spec": {"holderIdentity": "node-7/x"},
        }
        rig.kubectl("patch", "lease", "penstock", "-n", namespace, "--type=merge", "-p", json.dumps(other))
        assert first.process.wait(60) == 1
    finally:
        first.kill()
