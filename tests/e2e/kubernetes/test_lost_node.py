"""A node that does not answer runs its pods on: the next attempt waits until that is over for certain."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.kubernetes.house import House, Job, house
from tests.rig.cluster import Rig
from tests.rig.processes import wait_for

pytestmark = pytest.mark.timeout(400)

NODE, OTHER = "node-2", "node-1"
WRITES = """\
name: {0}
volumes: {{/tally: tally}}
requeue: 1
num_nodes: {1}
run: |
  while sleep 0.2; do echo {0} $PENSTOCK_ATTEMPT >>/tally/{0}.$NODE_RANK; done
"""


@pytest.fixture(scope="module")
def home(own_rig: Rig) -> Iterator[House]:
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    try:
        with house(own_rig, place) as made:
            made.penstock("volumes", "create", "tally", "10Mi", "-s", "shared", "-a", "ReadWriteMany")
            yield made
    finally:
        shutil.rmtree(place)


def written(home: House, name: str, rank: int = 0) -> list[str]:
    """What the program wrote, as this machine sees the volume."""
    [place] = (home.rig.directory / "disk" / "shared").glob(f"*{home.namespace}*tally*")
    file = place / f"{name}.{rank}"
    return file.read_text().splitlines() if file.exists() else []


def placed(home: House, name: str, nodes: int) -> Job:
    """One that writes, all of it on the node that will be lost."""
    home.rig.kubectl("cordon", OTHER)
    try:
        return home.runs(home.submit(WRITES.format(name, nodes)))
    finally:
        home.rig.kubectl("uncordon", OTHER)


@pytest.mark.parametrize("nodes", [1, 2], ids=["alone", "gang"])
def test_no_attempt_begins_while_the_one_before_may_still_write(home: House, nodes: int) -> None:
    name = f"writes{nodes}"
    job = placed(home, name, nodes)
    wait_for("it to write", lambda: written(home, name))
    home.rig.cut(NODE)
    try:
        waits = home.becomes(job["id"], lambda job: job["attempt"] == 2 and job["reason"] == "NODE_LOST")
        assert (waits["state"], waits["status"]) == ("QUEUED", "pending")
        said = f"attempt 1 may still run on {NODE}, which does not answer; this one starts when {NODE} answers again"
        assert waits["message"].startswith(said)
        assert (
            f"kubectl taint nodes {NODE} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in waits["message"]
        )
        before = len(written(home, name))
        wait_for("the first attempt to write on", lambda: len(written(home, name)) > before + 5)
        assert {line for rank in range(nodes) for line in written(home, name, rank)} == {f"{name} 1"}
    finally:
        home.rig.mend(NODE)
    home.becomes(job["id"], lambda job: job["status"] == "running")
    wait_for("the next attempt to write", lambda: f"{name} 2" in written(home, name))
    lines = written(home, name)
    assert lines == sorted(lines)  # none of the first after one of the second
    home.penstock("jobs", "stop", job["id"])
    home.ended(job["id"])


def test_an_admin_may_say_that_the_machine_is_off(home: House) -> None:
    job = placed(home, "off", 1)
    home.rig.cut(NODE)
    try:
        home.becomes(job["id"], lambda job: job["attempt"] == 2 and job["reason"] == "NODE_LOST")
        home.rig.kubectl("taint", "nodes", NODE, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
        home.becomes(job["id"], lambda job: job["status"] == "running" and job["attempt"] == 2)
    finally:
        home.rig.mend(NODE)
        home.rig.kubectl("taint", "nodes", NODE, "node.kubernetes.io/out-of-service-")
    home.penstock("jobs", "stop", job["id"])
    home.ended(job["id"])
