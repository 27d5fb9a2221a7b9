"""A node is emptied under what runs there: `default_requeue` says what becomes of it, unless it says so itself."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kubernetes.house import House, Job, house
from tests.rig.cluster import Rig

pytestmark = pytest.mark.timeout(300)

RUNS = "name: {0}\nrun: sleep 600\n"


@pytest.fixture(scope="module")
def home(rig: Rig) -> Iterator[House]:
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    try:
        with house(rig, place, default_requeue="1") as made:
            yield made
    finally:
        shutil.rmtree(place)


def runs(home: House, ref: str, attempt: int) -> Job:
    return home.becomes(ref, lambda job: job["status"] == "running" and job["attempt"] == attempt)


def evict(home: House, ref: str) -> None:
    """As `kubectl drain` does it."""
    for pod in home.items("pods", f"task-id={ref}"):
        if "deletionTimestamp" not in pod["metadata"]:
            home.rig.evict(pod["metadata"]["name"], home.namespace)


def requeued(job: Job) -> str:
    """What its history says of that."""
    [message] = [line["message"] for line in job["history"] if line["reason"] == "REQUEUED"]
    return str(message)


def test_what_says_nothing_begins_anew_as_often_as_the_server_says(home: House) -> None:
    job = home.submit(RUNS.format("moves"))
    runs(home, job, 1)
    assert "Requeue:" in home.penstock("jobs", "status", job)
    evict(home, job)
    assert requeued(runs(home, job, 2)).startswith("attempt 2 of 2: It had to leave node-")
    evict(home, job)
    done = home.ended(job)
    assert (done["status"], done["reason"], done["attempt"]) == ("failed", "EVICTED", 2)


def test_one_that_declines_has_ended(home: House) -> None:
    job = home.submit(RUNS.format("once") + "requeue: 0\n")
    runs(home, job, 1)
    evict(home, job)
    done = home.ended(job)
    assert (done["status"], done["reason"], done["attempt"]) == ("failed", "EVICTED", 1)


def test_a_number_of_its_own_counts(home: House) -> None:
    job = home.submit(RUNS.format("often") + "requeue: 2\n")
    runs(home, job, 1)
    evict(home, job)
    assert requeued(runs(home, job, 2)).startswith("attempt 2 of 3: ")
    home.penstock("jobs", "stop", job)
    home.ended(job)
