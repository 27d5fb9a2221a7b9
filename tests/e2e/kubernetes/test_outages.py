"""A cluster that is slow, gone, throttling, or does not let us in: jobs wait, say so, and go on when it is better."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import running
from tests.e2e.kubernetes.house import House, Job, house
from tests.e2e.kubernetes.proxy import between
from tests.engines.kubernetes.denying import denying_webhook
from tests.rig.cluster import Rig
from tests.rig.places import RigError
from tests.rig.processes import wait_for

GONE = "the cluster's API has not answered since "
THROTTLED = {
    "kind": "Status",
    "status": "Failure",
    "reason": "TooManyRequests",
    "code": 429,
    "message": "too many asked",
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def home(rig: Rig, folder: Path) -> Iterator[House]:
    with house(rig, folder, pull_patience="3s") as made:
        yield made


def message(job: Job) -> str:
    return job["message"] or ""


def lets_go(home: House, job: Job) -> None:
    """The program of a job that waits for this ends; nobody needs our server for that."""
    [pod] = home.objects(job["id"], "pods")
    home.rig.kubectl("exec", "-n", home.namespace, pod.removeprefix("Pod/"), "--", "touch", "/tmp/go")


def pods_made(home: House, job: Job) -> int:
    """How many its Job ever had, as Kubernetes tells."""
    about = f"involvedObject.name={job['object_name']},reason=SuccessfulCreate"
    said = home.rig.kubectl("get", "events", "-n", home.namespace, "--field-selector", about, "-o", "name")
    return len(said.split())


WAITS = "echo up; until [ -e /tmp/go ]; do sleep 0.05; done; echo on"


# -- gone -------------------------------------------------------------------------------------------------------------


def test_while_the_api_is_gone_everything_is_shown_and_said_and_then_goes_on(home: House) -> None:
    runs = home.runs(home.submit(f"name: runs\nrun: {WAITS}\n"))
    unwanted = home.runs(home.submit("name: unwanted\nrun: sleep 600\n"))
    waits = home.submit("name: waits\nresources: {cpus: 900}\nrun: 'true'\n")
    home.becomes(waits, lambda job: "no node has 900 CPUs" in message(job))
    home.proxy.do(home.proxy.down())
    try:
        home.becomes(waits, lambda job: message(job).startswith(GONE))
        home.becomes(runs["id"], lambda job: message(job).startswith(GONE))
        assert home.job(runs["id"])["status"] == "running"
        late = home.submit("name: late\nrun: echo late\n")
        home.becomes(late, lambda job: job["reason"] == "CLUSTER_UNREACHABLE" and bool(job["message"]))
        assert "being stopped" in home.penstock("jobs", "stop", unwanted["id"])
        assert GONE in home.penstock("jobs", "list")
        assert GONE in home.penstock("jobs", "status", "runs")
        assert "up\n" in home.penstock("jobs", "logs", "runs", "--no-follow")
        assert "cannot be reached" in home.penstock("doctor", code=None)
        lets_go(home, runs)
    finally:
        home.proxy.do(home.proxy.up())
    both_went_on(home, runs, late)
    assert home.ended(unwanted["id"])["status"] == "stopped"
    home.becomes(waits, lambda job: "no node has 900 CPUs" in message(job))
    home.penstock("jobs", "stop", waits)


def test_a_server_that_starts_while_the_api_is_gone_shows_what_it_knows(
    home: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "START_SECONDS", 90)  # it hopes for the cluster before it begins
    runs = home.runs(home.submit(f"run: {WAITS}\n"))
    home.penstock("volumes", "create", "known", "10Mi")
    home.proxy.do(home.proxy.down())
    try:
        home.again()
        home.becomes(runs["id"], lambda job: "cannot be reached" in message(job))
        assert home.job(runs["id"])["status"] == "running"
        assert "as it was last known" in home.penstock("volumes", "list", "-o", "json")
        late = home.submit("run: echo late\n")
        home.becomes(late, lambda job: job["reason"] == "CLUSTER_UNREACHABLE" and "cannot be reached" in message(job))
        lets_go(home, runs)
    finally:
        home.proxy.do(home.proxy.up())
    both_went_on(home, runs, late)


def both_went_on(home: House, runs: Job, late: str) -> None:
    """What ran meanwhile, with all it printed, and what was submitted meanwhile, once."""
    done = home.ended(runs["id"])
    assert (done["status"], done["message"]) == ("completed", None)
    assert home.penstock("jobs", "logs", runs["id"]) == "up\non\n"
    assert home.ended(late)["status"] == "completed"
    assert pods_made(home, home.job(late)) == 1


# -- slow -------------------------------------------------------------------------------------------------------------


def test_an_api_that_takes_its_time_is_waited_for(home: House) -> None:
    mark = len(home.proxy.requests)
    home.proxy.now(home.proxy.hold)
    try:
        job = home.submit("run: echo slow\n")
        wait_for("the Job to be asked for", lambda: _asked(home, mark, "POST", "/jobs"))
        assert home.job(job)["status"] == "pending"
        assert job in home.penstock("jobs", "list")
    finally:
        home.proxy.now(home.proxy.release)
    assert home.ended(job)["status"] == "completed"
    assert pods_made(home, home.job(job)) == 1


def _asked(home: House, mark: int, method: str, what: str) -> int:
    return sum(line.startswith(method) and what in line for line in home.proxy.requests[mark:])


# -- throttling -------------------------------------------------------------------------------------------------------


def test_throttled_for_a_moment_nobody_notices(home: House) -> None:
    mark = len(home.proxy.requests)
    home.proxy.now(lambda: home.proxy.answer("/jobs?", 429, THROTTLED, times=2, Retry_After="1"))
    job = home.ended(home.submit("run: echo done\n"))
    assert job["status"] == "completed"
    assert "CLUSTER_UNREACHABLE" not in [change["reason"] for change in job["history"]]
    assert _asked(home, mark, "POST", "/jobs") == 3


def test_throttled_for_long_a_job_says_so_and_starts_when_it_may(home: House) -> None:
    home.proxy.now(lambda: home.proxy.answer("POST /apis/batch", 429, THROTTLED, times=10**6, Retry_After="60"))
    try:
        job = home.submit("run: echo done\n")
        waits = home.becomes(job, lambda job: "too many asked" in message(job))
        assert (waits["status"], waits["reason"]) == ("pending", "CLUSTER_UNREACHABLE")
    finally:
        home.proxy.now(home.proxy.mend)
    assert home.ended(job)["status"] == "completed"
    assert pods_made(home, home.job(job)) == 1


# -- not let in -------------------------------------------------------------------------------------------------------


def test_a_token_that_is_not_accepted_any_more_is_said_and_a_new_one_taken_without_a_restart(
    rig: Rig, rig_namespace: str, place: Path
) -> None:
    """As in a pod: the token is in a file, which somebody else renews."""
    account = f"--serviceaccount={rig_namespace}:default"
    rig.kubectl("create", "clusterrolebinding", rig_namespace, "--clusterrole=cluster-admin", account)
    rig.kubectl("create", "secret", "generic", "until", "-n", rig_namespace)
    bound = ("--bound-object-kind=Secret", "--bound-object-name=until")
    first = rig.kubectl("create", "token", "default", "-n", rig_namespace, *bound)
    (place / "token").write_text(first)
    with between(rig, admin=False) as proxy:
        proxy.kubeconfig(place / "kubeconfig", {"tokenFile": str(place / "token")})
        home = House(rig, proxy, place, rig_namespace)
        try:
            runs = home.runs(home.submit(f"run: {WAITS}\n"))
            rig.kubectl("delete", "secret", "until", "-n", rig_namespace)  # the token is worth nothing without it
            _refused(rig, first)
            proxy.now(proxy.cut)
            late = home.submit("run: echo late\n")
            waits = home.becomes(late, lambda job: "Unauthorized" in message(job))
            assert (waits["status"], waits["reason"]) == ("pending", "CLUSTER_UNREACHABLE")
            home.becomes(runs["id"], lambda job: "Unauthorized" in message(job))
            assert "renew the credentials" in home.penstock("doctor", code=None)
            (place / "token").write_text(rig.token("default", rig_namespace))
            assert home.ended(late)["status"] == "completed"
            lets_go(home, runs)
            assert home.ended(runs["id"])["status"] == "completed"
        finally:
            home.end()
            rig.kubectl("delete", "clusterrolebinding", rig_namespace)


def _refused(rig: Rig, token: str) -> None:
    """The API server remembers for some seconds that a token was good."""

    def is_refused() -> bool:
        try:
            rig.kubectl("get", "nodes", f"--token={token.strip()}", "--kubeconfig=/dev/null", *_server(rig))
        except RigError as error:
            return "Unauthorized" in str(error) or "logged in" in str(error)
        return False

    wait_for("the token to be refused", is_refused)


def _server(rig: Rig) -> list[str]:
    certificates = rig.control.certificates
    return [f"--server={certificates.server}", f"--certificate-authority={certificates.authority}"]


# -- webhooks ---------------------------------------------------------------------------------------------------------


def test_a_policy_that_refuses_jobs_is_quoted_and_nothing_stays(home: House) -> None:
    with denying_webhook(home.rig, home.namespace, "jobs need a cost centre", "jobs"):
        _denies(home, "jobs need a cost centre")
        job = home.ended(home.submit("num_nodes: 2\nrun: 'true'\n"))
        assert (job["status"], job["reason"]) == ("failed", "LAUNCH_FAILED")
        assert "jobs need a cost centre" in job["message"]
        assert "jobs need a cost centre" in home.penstock("run", "true", code=1)
        home.nothing_left(job["id"])
    _denies(home, None)
    assert "allowed\n" in home.penstock("run", "echo allowed")


def test_a_policy_that_refuses_pods_is_quoted_and_ends_the_job(home: House) -> None:
    with denying_webhook(home.rig, home.namespace, "images must be signed", "pods"):
        _denies(home, "images must be signed", "pod")
        job = home.submit("run: 'true'\n")
        home.becomes(job, lambda job: "images must be signed" in message(job))
        done = home.ended(job)
    assert (done["status"], done["reason"]) == ("failed", "LAUNCH_FAILED")
    assert done["message"] == "The cluster's policy deny.penstock.test refuses it: images must be signed."


def test_a_policy_that_does_not_answer_is_waited_for(home: House) -> None:
    name = f"broken-{secrets.token_hex(4)}"
    jobs = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    webhook = {
        "name": "broken.penstock.test",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [jobs],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": home.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    home.rig.apply(kind | {"metadata": {"name": name}, "webhooks": [webhook]})
    try:
        _denies(home, "failed calling webhook")
        job = home.submit("run: echo done\n")
        waits = home.becomes(job, lambda job: 'failed calling webhook "broken.penstock.test"' in message(job))
        assert (waits["status"], waits["reason"]) == ("pending", "CLUSTER_UNREACHABLE")
    finally:
        home.rig.kubectl("delete", "validatingwebhookconfiguration", name)
    assert home.ended(job)["status"] == "completed"


def _denies(home: House, said: str | None, kind: str = "job") -> None:
    """The API server learns of a webhook, and that it is gone, after a moment."""
    more = ("--restart=Never",) if kind == "pod" else ()
    make = ("run", "try") if kind == "pod" else ("create", "job", "try")

    def it_is_so() -> bool:
        try:
            home.rig.kubectl(*make, "--image=none", *more, "--dry-run=server", "-n", home.namespace)
        except RigError as error:
            return said is not None and said in str(error)
        return said is None

    wait_for(f"{kind}s to be answered with: {said}", it_is_so)
