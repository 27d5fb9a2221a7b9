"""A node is emptied under what runs there: `default_requeue` says what becomes of it, unless it says so itself."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import House, Job, house
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


def test_what_says_nothing_begins_anew_as_often_as_the_server_says(home: House) -> None:
    job = home.submit(RUNS.format("moves"))
    runs(home, job, 1)
    assert "Requeue:" in home.penstock("jobs", "status", job)
    evict(home, job)
    [requeued] = [line for line in runs(home, job, 2)["history"] if line["reason"] == "REQUEUED"]
    assert requeued["message"].startswith("attempt 2 of 2: It had to leave node-")
    evict(home, job)
    done = home.ended(job)
    assert (done["status"], done["reason"], done["attempt"]) == ("failed", "EVICTED", 2)


@pytest.mark.parametrize(("own", "attempts"), [(0, 1), (2, 2)])
def test_what_it_says_itself_counts(home: House, own: int, attempts: int) -> None:
    job = home.submit(RUNS.format(f"own{own}") + f"requeue: {own}\n")
    runs(home, job, 1)
    evict(home, job)
    if attempts == 1:
        done = home.ended(job)
        assert (done["status"], done["reason"], done["attempt"]) == ("failed", "EVICTED", 1)
        return
    assert "attempt 2 of 3: " in runs(home, job, 2)["message"] + str(home.job(job)["history"])
    home.penstock("jobs", "stop", job)
    home.ended(job)
