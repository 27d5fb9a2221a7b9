"""A server that is killed (SIGKILL) at each step of submit, retry, stop and delete: the next one finds everything as it
should be. Nothing is doubled, nothing is lost, nothing is left behind.

The steps are the writes to the cluster. `before` is killed with the write on its way; `after` when the cluster has done
it and the server has not heard of it.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.e2e.kubernetes.house import PATIENCE, House, Job, house
from tests.rig.cluster import Rig
from tests.rig.processes import wait_for
from tests.sampling import KILLS, sample

ROUNDS = max(KILLS // 60, 1)
"""PENSTOCK_KILLS=300 does each five times."""


def moments(*all_of_them: str) -> pytest.MarkDecorator:
    """When to kill: at one of these moments, or at all of them."""
    return pytest.mark.parametrize("moment", sample(all_of_them, 1))


TALLY = "echo $PENSTOCK_TASK_ID $PENSTOCK_ATTEMPT ${JOB_COMPLETION_INDEX:-$NODE_RANK} >>/tally/runs\n"

pytestmark = pytest.mark.parametrize("turn", range(ROUNDS))


@pytest.fixture(scope="module")
def home(rig: Rig) -> Iterator[House]:
    """One for all: each test leaves the server that followed the one it killed."""
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    try:
        with house(rig, place) as made:
            made.penstock("volumes", "create", "tally", "10Mi", "-s", "shared", "-a", "ReadWriteMany")
            yield made
    finally:
        shutil.rmtree(place)


def task(run: str, **keys: object) -> tuple[str, str]:
    """A name that no other has, and a task that notes on a volume what runs, before it does something else."""
    name = f"k{secrets.token_hex(4)}"
    more = "".join(f"{key}: {value}\n" for key, value in keys.items())
    lines = "".join(f"  {line}\n" for line in (TALLY + run).splitlines())
    return name, f"name: {name}\nvolumes: {{/tally: tally}}\n{more}run: |\n{lines}"


def tally(home: House) -> Path:
    """What the programs note, as this machine sees it."""
    [place] = (home.rig.directory / "disk" / "shared").glob(f"*{home.namespace}*tally*")
    return place / "runs"


def ran(home: House, job: Job) -> list[str]:
    """`attempt part` of each program that was started, as the programs themselves noted it."""
    found = [line.split(maxsplit=1) for line in tally(home).read_text().splitlines()]
    return sorted(rest for id_, rest in found if id_ == job["id"])


def jobs(home: House, job: Job) -> list[str]:
    return [each.removeprefix(f"Job/{job['object_name']}") for each in home.objects(job["id"], "jobs")]


def states(job: Job) -> list[str]:
    return [change["state"] for change in job["history"]]


# -- submit -----------------------------------------------------------------------------------------------------------


@moments("before POST jobs", "after POST jobs", "after PATCH jobs", "before PATCH jobs")
def test_a_job_runs_once(home: House, moment: str, turn: int) -> None:
    name, text = task("echo done")
    with home.killed(moment):
        home.server.submit(text)
    job = home.ended(home.named(name)["id"])
    assert (job["status"], job["attempt"], job["exit_code"]) == ("completed", 1, 0)
    assert ran(home, job) == ["1 0"]
    assert jobs(home, job) == [""]
    assert states(job).count("RUNNING") == 1
    assert home.penstock("jobs", "logs", job["id"]) == "done\n"
    home.settled(job["id"])


@moments("after POST services", "after POST jobs", "before PATCH services")
def test_two_nodes_run_once_and_their_service_goes_with_their_job(home: House, moment: str, turn: int) -> None:
    name, text = task("echo done", num_nodes=2)
    with home.killed(moment):
        home.server.submit(text)
    job = home.ended(home.named(name)["id"])
    assert (job["status"], job["attempt"]) == ("completed", 1)
    assert ran(home, job) == ["1 0", "1 1"]
    assert home.objects(job["id"], "jobs,services") == [f"Job/{job['object_name']}", f"Service/{job['object_name']}"]
    home.rig.kubectl("delete", "job", job["object_name"], "-n", home.namespace)  # as its ttl does, some day
    home.nothing_left(job["id"])


@moments("after GET exec", "before GET exec")
def test_code_that_is_sent_along_arrives(home: House, tmp_path: Path, moment: str, turn: int) -> None:
    name, text = task("cat code", workdir=".")
    (tmp_path / "code").write_text("the code\n")
    (tmp_path / "task.yaml").write_text(text)
    with home.killed(moment):
        home.penstock("jobs", "submit", str(tmp_path / "task.yaml"), "--detach")
    job = home.ended(home.named(name)["id"])
    assert job["status"] == "completed"
    assert ran(home, job) == ["1 0"]
    assert home.penstock("jobs", "logs", job["id"]) == "the code\n"


@moments("before 2nd POST jobs", "before POST jobs", "after 2nd POST jobs")
def test_failed_indexes_are_repeated_once_each(home: House, moment: str, turn: int) -> None:
    text = task("[ $PENSTOCK_ATTEMPT = 2 ] || [ $JOB_COMPLETION_INDEX = 0 ]", array=3)[1]
    first = home.ended(home.submit(text))
    assert first["status"] == "failed"
    with home.killed(moment):
        home.server.request("POST", f"/v1/workloads/{first['id']}/retry", {})
    job = home.ended(first["id"])
    assert (job["status"], job["attempt"]) == ("completed", 2)
    assert ran(home, job) == ["1 0", "1 1", "1 2", "2 1", "2 2"]
    assert [each for each in jobs(home, job) if each] == ["-2-1", "-2-2"]


@moments("after POST jobs", "before POST jobs")
def test_what_waits_for_another_is_kept_and_runs_once(home: House, moment: str, turn: int) -> None:
    """Killed while it waits, of which the cluster knows nothing, and while it is handed over."""
    _, text = task("until [ -e /tally/$PENSTOCK_TASK_ID ]; do sleep 0.1; done")
    first = home.runs(home.submit(text))["id"]
    name, text = task("echo done", after=first)
    home.submit(text)
    home.again()
    assert home.becomes(home.named(name)["id"], lambda job: job["reason"] == "WAITS_FOR_OTHERS")["status"] == "pending"
    with home.killed(moment):
        (tally(home).parent / first).touch()
    ran_once_and_alone(home, name)


def ran_once_and_alone(home: House, name: str) -> None:
    job = home.ended(home.named(name)["id"])
    assert job["status"] == "completed"
    assert ran(home, job) == ["1 0"]
    wait_for("only its Job to be left", lambda: all_jobs(home).count(job["id"]) == 1)


def all_jobs(home: House) -> str:
    return home.rig.kubectl("get", "jobs", "-n", home.namespace, "-o", "name")


# -- stop -------------------------------------------------------------------------------------------------------------


@moments("before PATCH jobs", "after PATCH jobs", "after 2nd PATCH jobs")
def test_what_is_stopped_ends(home: House, moment: str, turn: int) -> None:
    """The second word is that its end is written down."""
    job = home.runs(home.submit(task("sleep 600")[1]))
    with home.killed(moment):
        home.server.request("POST", f"/v1/workloads/{job['id']}/stop")
    job = home.ended(job["id"])
    assert (job["status"], job["reason"]) == ("stopped", "STOPPED_BY_USER")
    assert ran(home, job) == ["1 0"]
    home.nothing_left(job["id"], "pods")
    assert jobs(home, job) == [""]
    home.settled(job["id"])


def test_what_is_stopped_before_its_job_is_made_leaves_nothing(home: House, turn: int) -> None:
    """Its Service was made; by the time there is a server again nobody wants it any more."""
    name, text = task("sleep 600", num_nodes=2)
    with home.killed("after POST services"):
        made = home.server.submit(text)
        home.server.request("POST", f"/v1/workloads/{made['id']}/stop")
    job = home.named(name)
    home.server.request("POST", f"/v1/workloads/{job['id']}/stop")
    job = home.ended(job["id"])
    assert job["status"] == "stopped"
    home.penstock("jobs", "delete", job["id"], "--force")
    home.nothing_left(job["id"])


def test_a_job_that_arrives_late_for_one_that_is_stopped_by_then_does_not_run(home: House, turn: int) -> None:
    """The cluster took its time; meanwhile the job was stopped, its server killed, and the next one was sure."""
    home.proxy.delay("POST jobs")
    job = home.submit(task("sleep 600")[1])
    assert home.proxy.late.wait(PATIENCE)
    home.penstock("jobs", "stop", job)
    home.again()
    assert home.ended(job)["status"] == "stopped"
    home.proxy.let_on()
    wait_for("the Job to arrive", lambda: jobs_ever(home, job))
    home.nothing_left(job)
    assert home.job(job)["status"] == "stopped"


def jobs_ever(home: House, workload_id: str) -> bool:
    """Also those that are gone: Kubernetes tells what it did with them."""
    happened = home.rig.kubectl("get", "events", "-n", home.namespace, "-o", "jsonpath={..involvedObject.name}")
    return workload_id in happened


# -- delete -----------------------------------------------------------------------------------------------------------


@moments("after DELETE services", "before DELETE services", "after DELETE jobs")
def test_what_is_deleted_is_gone(home: House, moment: str, turn: int) -> None:
    job = home.ended(home.submit(task("echo done", num_nodes=2)[1]))
    with home.killed(moment):
        home.server.request("DELETE", f"/v1/workloads/{job['id']}")
    home.nothing_left(job["id"])
    assert "not found" in home.penstock("jobs", "status", job["id"], code=3)
    assert job["id"] not in home.penstock("jobs", "list", "--limit", "0")


# -- volumes ----------------------------------------------------------------------------------------------------------


def claims(home: House, name: str) -> list[str]:
    return [each["metadata"]["name"] for each in home.items("persistentvolumeclaims", f"volume-name={name}")]


@moments("before POST persistentvolumeclaims", "after POST persistentvolumeclaims")
def test_a_volume_is_made_once(home: House, moment: str, turn: int) -> None:
    name = f"v{secrets.token_hex(4)}"
    with home.killed(moment):
        home.server.request("POST", "/v1/volumes", {"name": name, "size": "10Mi"})
    [volume] = home.server.request("GET", f"/v1/volumes?name={name}")[1]["items"]
    assert volume["status"] == "Pending"
    assert claims(home, name) == [f"{name}-{volume['id']}"]
    home.penstock("volumes", "delete", name, "--force")
    assert claims(home, name) == []


@moments("before DELETE persistentvolumeclaims", "after DELETE persistentvolumeclaims")
def test_a_volume_that_is_deleted_is_gone(home: House, moment: str, turn: int) -> None:
    name = f"v{secrets.token_hex(4)}"
    home.penstock("volumes", "create", name, "10Mi")
    with home.killed(moment):
        home.server.request("DELETE", f"/v1/volumes/{name}")
    wait_for("it to be gone", lambda: home.server.request("GET", f"/v1/volumes?name={name}")[1]["items"] == [])
    assert claims(home, name) == []


def test_a_volume_that_others_use_by_the_time_is_not_forgotten(home: House, turn: int) -> None:
    """It was to be deleted; while no server ran, somebody else began to use it."""
    name = f"v{secrets.token_hex(4)}"
    made = home.server.request("POST", "/v1/volumes", {"name": name, "size": "10Mi", "storage_class": "shared"})[1]
    home.proxy.kill_at("before DELETE persistentvolumeclaims", home.server.process.pid)
    with suppress(OSError, HTTPException):
        home.server.request("DELETE", f"/v1/volumes/{name}")
    assert home.proxy.killed.wait(PATIENCE)
    with used(home, f"{name}-{made['id']}") as pod:
        home.again()
        refused = home.penstock("volumes", "delete", name, "--force", code=6)
        assert f"Volume {name} is in use by {pod}" in refused
    home.penstock("volumes", "delete", name, "--force")
    assert claims(home, name) == []


@contextmanager
def used(home: House, claim: str) -> Iterator[str]:
    """By a pod that is none of ours."""
    name = f"other-{secrets.token_hex(4)}"
    container = {"name": "main", "image": "penstock-test:1", "command": ["sleep", "600"]}
    mounted = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    spec = {"containers": [container], "volumes": [mounted], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "namespace": home.namespace}
    home.rig.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        yield f"pod {home.namespace}/{name}"
    finally:
        home.rig.kubectl("delete", "pod", name, "-n", home.namespace)
