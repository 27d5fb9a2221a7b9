"""A text of several documents: checked whole, made by name, not changed when applied again, deleted by the same."""

from __future__ import annotations

import pytest

from tests.running import RunningServer, start_server
from tests.server.test_attempts import until

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec:
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: %s}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: busybox:1
          command: [sh, -c, %r]
          volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
"""


def apply(server: RunningServer, text: str, path: str = "/v1/apply", **more):
    return server.request("POST", path, {"text": text, "source": "all.yaml"} | more)


def results(answer) -> list[tuple[str, str, str]]:
    return [(one["kind"], one["name"], one["result"]) for one in answer["results"]]


def test_volumes_come_first_whatever_their_place_and_the_same_again_changes_nothing(module_server):
    text = (JOB % ("writes", "echo 42 > /data/x; sleep 60", "pool")) + "---" + (CLAIM % ("pool", "1Gi"))
    status, made = apply(module_server, text)
    assert status == 200, made
    assert results(made) == [("PersistentVolumeClaim", "pool", "created"), ("Job", "writes", "created")]
    job = made["results"][1]["id"]
    until(module_server, job, lambda found: found["state"] == "RUNNING")
    _, again = apply(module_server, text)
    assert results(again) == [("PersistentVolumeClaim", "pool", "not changed"), ("Job", "writes", "not changed")]
    assert [one["id"] for one in again["results"]] == [one["id"] for one in made["results"]]
    status, deleted = apply(module_server, text, "/v1/delete")
    assert results(deleted) == [("Job", "writes", "deleted"), ("PersistentVolumeClaim", "pool", "deleted")]
    assert module_server.request("GET", f"/v1/workloads/{job}")[0] == 404
    _, absent = apply(module_server, text, "/v1/delete")
    assert results(absent) == [("Job", "writes", "not present"), ("PersistentVolumeClaim", "pool", "not present")]


def test_how_often_it_begins_anew_is_compared_as_it_is_said(module_server):
    """A record from before there was a default says 0 for what says nothing."""
    text = "name: begins\nrun: sleep 60\n"
    results(apply(module_server, text)[1])
    _, refused = apply(module_server, text + "requeue: 0\n")
    assert "requeue: nothing → 0" in refused["problems"][0]["message"]
    results(apply(module_server, text, "/v1/delete")[1])
    old = text + "requeue: 0\n"
    results(apply(module_server, old)[1])
    for same in (old, text):
        assert results(apply(module_server, same)[1]) == [("Task", "begins", "not changed")]
    results(apply(module_server, old, "/v1/delete")[1])


def test_one_that_ended_is_made_anew_and_sees_the_data_of_the_one_before(module_server):
    text = (
        f"{CLAIM % ('outlives', '1Gi')}---{JOB % ('appends', 'echo run >> /data/log; wc -l < /data/log', 'outlives')}"
    )
    ids = []
    for _ in range(2):
        _, made = apply(module_server, text)
        ids.append(made["results"][1]["id"])
        assert module_server.ended(ids[-1])["status"] == "completed"
    assert ids[0] != ids[1]
    assert module_server.request("GET", f"/v1/workloads/{ids[1]}/logs")[1] == "2\n"
    _, deleted = apply(module_server, JOB % ("appends", "x", "outlives"), "/v1/delete")
    assert results(deleted) == [("Job", "appends", "deleted")] * 2
    assert module_server.request("GET", "/v1/workloads?name=appends")[1]["items"] == []


def test_everything_is_checked_before_anything_is_made(module_server):
    text = f"{CLAIM % ('never', '1Gi')}---{JOB % ('mounts', 'true', 'nowhere')}---{JOB % ('also', 'true', 'neither')}"
    status, body = apply(module_server, text)
    assert status == 422
    assert "nothing was changed" in body["message"]
    assert len(body["problems"]) == 2
    assert all(problem["where"].startswith("all.yaml:") for problem in body["problems"])
    assert [problem["message"] for problem in body["problems"]] == [
        "Volume nowhere not found",
        "Volume neither not found",
    ]
    assert module_server.request("GET", "/v1/volumes/never")[0] == 404


def test_a_field_that_is_not_carried_is_an_error_with_its_path(module_server):
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  hostNetwork: true\n  containers: []\n"
    status, body = apply(module_server, text)
    assert status == 422
    assert any(problem["field"] == "spec.hostNetwork" for problem in body["problems"])


def test_what_runs_and_differs_is_refused_with_what_differs(module_server):
    apply(module_server, CLAIM % ("shared", "1Gi"))
    assert apply(module_server, JOB % ("steady", "sleep 60", "shared"))[0] == 200
    status, body = apply(module_server, JOB % ("steady", "sleep 61", "shared"))
    assert status == 422
    [problem] = body["problems"]
    assert "is" in problem["message"]
    assert "sleep 60" in problem["message"]
    assert "sleep 61" in problem["message"]
    assert problem["hint"].startswith("penstock jobs stop ")
    apply(module_server, JOB % ("steady", "sleep 60", "shared"), "/v1/delete")


def test_a_volume_grows_and_does_nothing_else(module_server):
    apply(module_server, CLAIM % ("grows", "1Gi"))
    _, made = apply(module_server, CLAIM % ("grows", "2Gi"))
    assert [(one["result"], one["message"]) for one in made["results"]] == [("resized", "1Gi to 2Gi")]
    assert module_server.request("GET", "/v1/volumes/grows")[1]["size"] == "2Gi"
    status, body = apply(module_server, CLAIM % ("grows", "1Gi"))
    assert (status, "never gets smaller" in body["detail"]) == (422, True)
    status, body = apply(module_server, (CLAIM % ("grows", "2Gi")).replace("ReadWriteMany", "ReadWriteOnce"))
    assert (status, "is ReadWriteMany and cannot become ReadWriteOnce" in body["detail"]) == (422, True)


def test_a_dry_run_says_what_would_happen_and_makes_nothing(module_server):
    text = f"{CLAIM % ('dry', '1Gi')}---{JOB % ('dry-run', 'true', 'dry')}"
    _, made = apply(module_server, text, dry_run=True)
    assert results(made) == [("PersistentVolumeClaim", "dry", "created"), ("Job", "dry-run", "created")]
    assert made["results"][1]["message"] == "It would start now."
    assert module_server.request("GET", "/v1/volumes/dry")[0] == 404


def test_tasks_are_taken_too_and_may_wait_for_those_before_them(module_server):
    text = "name: step-1\nrun: sleep 0.5\n---\nname: step-2\nafter: step-1\nrun: 'true'\n"
    _, made = apply(module_server, text)
    assert results(made) == [("Task", "step-1", "created"), ("Task", "step-2", "created")]
    first, second = (one["id"] for one in made["results"])
    assert made["results"][1]["message"] == f"waits for step-1 ({first})"
    done = module_server.ended(second)
    assert done["status"] == "completed"
    assert done["started_at"] >= module_server.ended(first)["ended_at"]
    status, body = apply(module_server, "run: 'true'\n")
    assert (status, body["problems"][0]["field"]) == (422, "name")


def test_the_directories_of_all_tasks_are_asked_for_at_once(module_server):
    text = "name: one\nworkdir: a\nrun: ls\n---\nname: two\nworkdir: b\nrun: ls\n"
    status, body = apply(module_server, text)
    assert (status, body["details"]["files"]) == (428, {"0.workdir": "a", "1.workdir": "b"})


def test_the_same_key_makes_it_once_even_when_it_has_ended_meanwhile(module_server):
    key = {"Idempotency-Key": "apply-once"}
    body = {"text": "name: keyed\nrun: 'true'\n", "source": "all.yaml"}
    _, made = module_server.request("POST", "/v1/apply", body, key)
    module_server.ended(made["results"][0]["id"])
    _, again = module_server.request("POST", "/v1/apply", body, key)
    assert again["results"][0]["id"] == made["results"][0]["id"]


def test_a_manifest_becomes_a_task_and_a_task_a_manifest(module_server):
    _, task = apply(module_server, JOB % ("both-ways", "true", "d"), "/v1/convert")
    assert "name: both-ways" in task["text"]
    _, manifest = apply(module_server, "name: hello\nrun: echo hello\n", "/v1/convert")
    assert "kind: Job" in manifest["text"]
    status, body = apply(module_server, "kind: Deployment\n", "/v1/convert")
    assert (status, body["code"]) == (422, "invalid")


def test_submit_takes_tasks_only_and_says_what_takes_manifests(module_server):
    status, body = module_server.request("POST", "/v1/workloads", {"text": JOB % ("no", "true", "d")})
    assert status == 422
    assert "penstock apply -f" in body["detail"]


@pytest.mark.parametrize("path", ["/v1/apply", "/v1/delete"])
def test_another_users_things_are_neither_seen_nor_touched(module_server, path):
    apply(module_server, CLAIM % ("mine", "1Gi"))
    _, token = module_server.request("POST", "/v1/tokens", {"user": "mallory"})
    bearer = {"Authorization": f"Bearer {token['token']}"}
    _, answer = module_server.tcp("POST", path, {"text": CLAIM % ("mine", "1Gi")}, bearer)
    assert answer["results"][0]["result"] == ("created" if path == "/v1/apply" else "deleted")
    assert module_server.request("GET", "/v1/volumes/mine")[1]["status"] == "Bound"


def test_killed_while_it_is_applied_the_same_text_finishes_it(place):
    """What was made is found by name, and the rest is made: nothing twice."""
    text = f"{CLAIM % ('first', '1Gi')}---{CLAIM % ('second', '1Gi')}---{JOB % ('after-all', 'sleep 60', 'first')}"
    server = start_server(place)
    apply(server, CLAIM % ("first", "1Gi"))
    server.kill()
    server = start_server(place)
    try:
        _, made = apply(server, text)
        assert [one["result"] for one in made["results"]] == ["not changed", "created", "created"]
        assert len(server.request("GET", "/v1/volumes")[1]["items"]) == 2
    finally:
        server.end()


def test_the_virtual_environment_that_is_active_is_taken_along_or_said_not_to_be(module_server):
    text = "name: alone\nrun: sleep 60\n"
    _, made = apply(module_server, text, venv="/no/venv")
    said = "The virtual environment /no/venv is not there in the job: there is no pyvenv.cfg in it."
    assert made["results"][0]["notices"] == [said]
    apply(module_server, text, "/v1/delete")


DOCUMENT = """\
apiVersion: v1
kind: Workload
metadata: {name: written}
spec:
  driver: pwm.docker
  image: {image: ubuntu}
  config: {cmd: sleep 60}
"""


def test_a_document_is_told_about_its_own_keys(module_server):
    _, made = apply(module_server, DOCUMENT)
    said = "spec.image.image: ubuntu is not used by this engine; the machine's own programs run"
    assert made["results"][0]["notices"][0] == said
    apply(module_server, DOCUMENT, "/v1/delete")
    _, task = apply(module_server, "name: written\nresources: {image_id: ubuntu}\nrun: sleep 60\n", dry_run=True)
    assert task["results"][0]["notices"][0] == said.replace("spec.image.image", "image_id")


def test_who_names_a_storage_that_is_not_there_is_told_where_they_are_listed(module_server):
    mounted = DOCUMENT + "  volumes: [{name: home, storage: nfs99, target: /home}]\n"
    volume = "apiVersion: v1\nkind: Volume\nmetadata: {name: home}\nspec: {storage: nfs99}\n"
    for text, field in ((mounted, "spec.volumes[0]"), (volume, "spec.storage")):
        status, refused = apply(module_server, text)
        assert status == 422
        [problem] = refused["problems"]
        assert (problem["field"], problem["message"]) == (field, "Storage nfs99 not found")
        assert problem["hint"] == "penstock get storage shows those you may use"


def test_a_storage_may_come_with_the_workload_that_keeps_its_home_there(module_server):
    storage = "apiVersion: v1\nkind: Storage\nmetadata: {name: fresh}\nspec: {local: {node: here}}\n"
    mounted = DOCUMENT + "  volumes: [{name: nest, storage: fresh, target: /home}]\n"
    status, made = apply(module_server, f"{mounted}---\n{storage}")
    assert status == 200, made
    assert [(each["kind"], each["result"]) for each in made["results"]] == [
        ("Storage", "created"),
        ("Workload", "created"),
    ]
    apply(module_server, mounted, "/v1/delete")
    elsewhere = storage.replace("fresh", "other") + "---\n" + mounted.replace("fresh", "other")
    status, refused = apply(module_server, elsewhere)
    assert status == 422
    assert [problem["message"] for problem in refused["problems"]] == [
        "volume nest is there, on fresh and not on other"
    ]


def test_what_differs_is_said_in_the_words_of_the_document_and_without_secrets(module_server):
    apply(module_server, "apiVersion: v1\nkind: Volume\nmetadata: {name: kept}\nspec: {size: 1Mi}\n")
    text = DOCUMENT + "  selectors: {cpu: {count: 1}}\n  volumes: [{name: kept, target: /old}]\n"
    text = text.replace("{cmd: sleep 60}", "{cmd: sleep 60, env: {MY_TOKEN: hunter2, EPOCHS: '3'}}")
    assert apply(module_server, text)[0] == 200
    other = text.replace("ubuntu", "debian").replace("hunter2", "hunter3").replace("'3'", "'4'").replace("/old", "/new")
    status, refused = apply(module_server, other)
    assert status == 422
    [problem] = refused["problems"]
    for said in ("spec.image.image: ubuntu → debian", "spec.config.env.EPOCHS: 3 → 4", "spec.config.env.MY_TOKEN"):
        assert said in problem["message"]
    assert "spec.volumes[0] at /new: nothing → kept" in problem["message"]
    assert "hunter" not in problem["message"]
    apply(module_server, text, "/v1/delete")
