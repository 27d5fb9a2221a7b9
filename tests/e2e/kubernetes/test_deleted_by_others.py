"""What others delete in the cluster, while the server looks or while there is none: it is seen, and said."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.house import PATIENCE, House, Job, house
from tests.rig.cluster import Rig
from tests.rig.processes import wait_for

LOOKING = pytest.mark.parametrize("looking", [True, False], ids=["while it looks", "while there is no server"])


@pytest.fixture(scope="module")
def home(rig: Rig) -> Iterator[House]:
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    try:
        with house(rig, place) as made:
            yield made
    finally:
        shutil.rmtree(place)


def delete(home: House, looking: bool, *what: str) -> None:
    if not looking:
        home.server.kill()
    home.rig.kubectl("delete", *what, "-n", home.namespace)
    if not looking:
        home.again()


def said(home: House, job: Job) -> tuple[str, str, str]:
    done = home.ended(job["id"])
    return done["status"], done["reason"], done["message"]


@LOOKING
def test_a_job_that_runs(home: House, looking: bool) -> None:
    job = home.runs(home.submit("run: echo up; sleep 600\n"))
    delete(home, looking, "job", job["object_name"])
    assert said(home, job) == ("failed", "DELETED_OUTSIDE", "Its Job was deleted in the cluster.")
    assert home.penstock("jobs", "logs", job["id"]).startswith("up\n")


@LOOKING
def test_a_job_that_waits(home: House, looking: bool) -> None:
    job = home.submit("resources: {cpus: 900}\nrun: 'true'\n")
    shown = home.becomes(job, lambda job: "no node has 900 CPUs" in (job["message"] or ""))
    delete(home, looking, "job", shown["object_name"])
    assert said(home, shown) == ("failed", "DELETED_OUTSIDE", "Its Job was deleted in the cluster.")


@LOOKING
def test_the_pod_of_a_job(home: House, looking: bool) -> None:
    job = home.runs(home.submit("run: sleep 600\n"))
    delete(home, looking, "pods", "-l", f"task-id={job['id']}")
    assert said(home, job) == ("failed", "DELETED_OUTSIDE", "Its pod was deleted in the cluster.")


@LOOKING
@pytest.mark.parametrize("storage_class", ["standard", "shared"])
def test_the_claim_of_a_volume(home: House, looking: bool, storage_class: str) -> None:
    """It was used: making it anew, empty, would be no help."""
    name = f"v-{storage_class}-{looking}".lower()
    home.penstock("volumes", "create", name, "10Mi", "-s", storage_class)
    job = home.submit(f"volumes: {{/v: {name}}}\nrun: echo precious >/v/data\n")
    home.ended(job)
    home.penstock("jobs", "delete", job, "--force")
    home.nothing_left(job)  # a pod keeps its claims, also when it has ended
    assert shown(home, name)["status"] == "Bound"
    delete(home, looking, "persistentvolumeclaim", f"{name}-{shown(home, name)['id']}")
    wait_for(f"{name} to be lost", lambda: shown(home, name)["status"] == "Lost", PATIENCE)
    volume = shown(home, name)
    assert (volume["status"], volume["message"]) == (
        "Lost",
        f"The claim {home.namespace}/{name}-{volume['id']} is gone.",
    )
    (home.place / "task.yaml").write_text(f"volumes: {{/v: {name}}}\nrun: cat /v/data\n")
    refused = home.penstock("jobs", "submit", str(home.place / "task.yaml"), code=125)
    assert f"volume {name} is Lost" in refused
    home.penstock("volumes", "delete", name, "--force")


def shown(home: House, name: str) -> dict[str, Any]:
    [volume] = json.loads(home.penstock("volumes", "list", "--name", name, "-o", "json"))
    return dict(volume)
