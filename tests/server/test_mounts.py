"""Whose volumes a job may mount, and to write: what no policy allows is refused before anything runs."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.server.test_roles import House, house

__all__ = ["house"]

SAMPLE = {"Workload": ["get", "getOne", "apply", "delete", "describe", "shell", "cancel"], "Volume": ["get"]}
"""What PWM's sample user has in their own group."""
SEES = {"Storage": ["get"], "CPU": ["get"], "GPU": ["get"]}
"""And in `pwm.resource`."""
TASK = "run: 'touch /data/mine'\nvolumes: {{/data: {{name: {name}, group: pwm.resource{more}}}}}\n"
DOCUMENT = """\
apiVersion: v1
kind: Workload
metadata: {name: writes}
spec:
  driver: pwm.docker
  selectors: {cpu: {product_name: pwm.all}}
  config: {cmd: sleep 60}
  volumes:
    - {group: pwm.resource, name: open, target: /data}
"""


@pytest.fixture(scope="module")
def sample(house: House) -> House:
    """With the sample user, one who may put data in, and two volumes that belong to `pwm.resource`."""
    people = {"sample": SEES, "uploads": SEES | {"Volume": ["upload"]}}
    for name, shared in people.items():
        house.ask("admin", "PUT", f"/v1/groups/{name}", {"name": name})
        groups = [{"name": name, "policy": SAMPLE}, {"name": "pwm.resource", "policy": shared}]
        assert house.ask("admin", "PUT", f"/v1/users/{name}", {"name": name, "groups": groups})[0] == 200
        house.tokens[name] = house.ask("admin", "POST", "/v1/tokens", {"user": name})[1]["token"]
    for name, readonly in (("open", False), ("closed", True)):
        body = {"name": name, "size": "1Mi", "readonly": readonly}
        status, made = house.ask("admin", "POST", "/v1/volumes?group=pwm.resource", body)
        assert status == 201, made
    return house


def ended(house: House, user: str, text: str) -> str:
    """The status a job ends with."""
    status, job = house.ask(user, "POST", "/v1/workloads", {"text": text})
    assert status == 201, job
    return str(house.ask(user, "GET", f"/v1/workloads/{job['id']}/wait?timeout=60")[1]["status"])


def test_who_only_sees_another_groups_volume_cannot_have_it_to_write(sample):
    status, answer = sample.ask("sample", "POST", "/v1/workloads", {"text": TASK.format(name="open", more="")})
    assert status == 422, answer
    assert [(p["field"], p["message"]) for p in answer["problems"]] == [
        ("volumes./data", "volume open belongs to group pwm.resource, where you may not write to volumes")
    ]
    hint = answer["problems"][0]["hint"]
    assert hint == "mount it read-only; to write you need 'upload' on Volume in group pwm.resource"


def test_nor_in_a_document(sample):
    status, answer = sample.ask("sample", "POST", "/v1/apply", {"text": DOCUMENT, "source": "d.yaml"})
    assert status == 422, answer
    assert [(p["where"], p["field"]) for p in answer["problems"]] == [("d.yaml:9:7", "spec.volumes[0]")]
    readonly = DOCUMENT.replace("target: /data", "target: /data, policy: readonly")
    status, answer = sample.ask("sample", "POST", "/v1/apply", {"text": readonly, "dry_run": True})
    assert status == 200, answer


TYPO = """\
apiVersion: v1
kind: Workload
metadata: {{name: {name}}}
spec:
  driver: pwm.docker
  selectors: {{cpu: {{product_name: pwm.all}}}}
  config: {{cmd: "true"}}
  volumes:
    - {{name: {volume}, target: /data{more}}}
"""
NOT_MADE = "Volume {} is not there, and a read-only mount does not make it"


def test_a_read_only_mount_does_not_make_its_volume(module_server):
    document = TYPO.format(name="reads", volume="typo", more=", policy: readonly")
    task = "run: 'true'\nvolumes: {/data: {name: typo, storage: pwm.all, read_only: true}}\n"
    for path, text, field in (
        ("/v1/apply", document, "spec.volumes[0]"),
        ("/v1/workloads", task, "volumes./data"),
    ):
        for dry in ({}, {"dry_run": True}):
            status, refused = module_server.request("POST", path, {"text": text, "source": "t.yaml"} | dry)
            assert status == 422, refused
            [problem] = refused["problems"]
            assert problem["field"] == field
            assert problem["message"] == NOT_MADE.format("typo")
            assert problem["hint"] == "penstock volumes create typo 10Gi makes it; or mount it to write"
    assert module_server.request("GET", "/v1/volumes/typo")[0] == 404


def test_on_a_storage_neither(module_server):
    storage = "apiVersion: v1\nkind: Storage\nmetadata: {name: disk9}\nspec: {local: {node: here}}\n"
    reads = TYPO.format(name="reads", volume="typo", more=", policy: readonly, storage: disk9")
    status, refused = module_server.request("POST", "/v1/apply", {"text": f"{storage}---\n{reads}"})
    assert (status, refused["problems"][0]["message"]) == (422, NOT_MADE.format("typo"))
    hint = "apply a Volume document of this name with the storage disk9; or mount it to write"
    assert refused["problems"][0]["hint"] == hint


def test_a_read_only_mount_has_what_another_of_its_text_makes(module_server):
    writes = TYPO.format(name="writes", volume="made", more="")
    reads = TYPO.format(name="reads", volume="made", more=", policy: readonly") + "  after: writes\n"
    both = TYPO.format(name="both", volume="twice", more="") + (
        "    - {name: twice, target: /again, policy: readonly}\n"
    )
    status, made = module_server.request("POST", "/v1/apply", {"text": "---\n".join([reads, writes, both])})
    assert status == 200, made
    for each in made["results"]:
        assert each["result"] == "created"
        assert module_server.ended(each["id"])["status"] == "completed"
    _, page = module_server.request("GET", "/v1/volumes")
    assert sorted(each["name"] for each in page["items"] if each["name"] in ("made", "twice")) == ["made", "twice"]


def test_who_only_sees_it_mounts_it_to_read(sample):
    text = TASK.format(name="open", more=", read_only: true")
    assert ended(sample, "sample", text) == "failed"
    assert ended(sample, "sample", text.replace("touch", "ls -d").replace("/mine", "")) == "completed"
    assert ended(sample, "sample", TASK.format(name="closed", more="").replace("touch", "test ! -e")) == "completed"


def test_who_may_put_data_in_writes_unless_the_volume_is_readonly(sample):
    assert ended(sample, "uploads", TASK.format(name="open", more="")) == "completed"
    assert ended(sample, "uploads", TASK.format(name="closed", more="")) == "failed"


def test_who_runs_jobs_in_a_group_writes_to_its_volumes(sample):
    """As PWM's sample user to their home, with `get` on Volume alone."""
    status, made = sample.ask("admin", "POST", "/v1/volumes?group=sample", {"name": "own", "size": "1Mi"})
    assert status == 201, made
    assert ended(sample, "sample", "run: touch /data/mine\nvolumes: {/data: own}\n") == "completed"


def test_another_attempt_asks_again_what_its_owner_may_mount(sample):
    """Of the owner, whoever asks for it, and of who asks."""

    def given(policy: dict[str, list[str]]) -> None:
        groups = [{"name": "leaves", "policy": SAMPLE}, {"name": "pwm.resource", "policy": policy}]
        assert sample.ask("admin", "PUT", "/v1/users/leaves", {"name": "leaves", "groups": groups})[0] == 200

    def again(user: str) -> tuple[int, list[tuple[str, str]]]:
        status, answer = sample.ask(user, "POST", f"/v1/workloads/{job['id']}/retry", {})
        return status, [(problem["field"], problem["message"]) for problem in answer.get("problems", ())]

    sample.ask("admin", "PUT", "/v1/groups/leaves", {"name": "leaves"})
    given(SEES | {"Volume": ["upload"]})
    sample.tokens["leaves"] = sample.ask("admin", "POST", "/v1/tokens", {"user": "leaves"})[1]["token"]
    text = TASK.format(name="open", more="").replace("/mine", "/mine; exit 3")
    status, job = sample.ask("leaves", "POST", "/v1/workloads", {"text": text})
    assert status == 201, job
    assert sample.ask("leaves", "GET", f"/v1/workloads/{job['id']}/wait?timeout=60")[1]["status"] == "failed"
    given(SEES)
    refused = "volume open belongs to group pwm.resource, where {} may not write to volumes"
    assert again("leaves") == (422, [("volumes./data", refused.format("you"))])
    assert again("admin") == (422, [("volumes./data", refused.format("leaves"))])
    given({"CPU": ["get"]})
    assert again("leaves") == (422, [("volumes./data", refused.format("you").replace("write to", "see"))])
    assert sample.ask("leaves", "GET", f"/v1/workloads/{job['id']}")[1]["attempt"] == 1
    given(SEES | {"Volume": ["upload"]})
    assert again("leaves") == (200, [])


FRESH = """\
apiVersion: v1
kind: Workload
metadata: {{name: {name}}}
spec:
  driver: pwm.docker
  config: {{cmd: [sh, -c, "{cmd}"]}}
  volumes: [{{name: {volume}, target: /data{more}}}]
"""


def fresh(house: House, cmd: str, volume: str, more: str = "") -> tuple[int, dict[str, Any]]:
    text = FRESH.format(name=f"job-{uuid4().hex[:8]}", cmd=cmd, volume=volume, more=more)
    return house.ask("sample", "POST", "/v1/apply", {"text": text, "source": "d.yaml"})


@pytest.mark.parametrize(("volume", "more"), [("brandnew", ""), ("asked-for", ", autoCreate: true")])
def test_a_document_has_its_volume_made_by_itself(sample, volume, more):
    """The sample user may only see volumes, and that is enough."""
    for cmd in ("echo kept > /data/file", "grep kept /data/file"):
        status, made = fresh(sample, cmd, volume, more)
        assert status == 200, made
        [result] = made["results"]
        assert sample.ask("sample", "GET", f"/v1/workloads/{result['id']}/wait?timeout=60")[1]["status"] == "completed"
    status, made = sample.ask("sample", "GET", f"/v1/volumes/{volume}")
    assert (status, made["group"], made["status"]) == (200, "sample", "Bound")
    text = f"apiVersion: v1\nkind: Volume\nmetadata: {{name: {volume}, group: sample}}\nspec: {{storage: pwm.all}}\n"
    status, again = sample.ask("admin", "POST", "/v1/apply", {"text": text})
    assert [each["result"] for each in again["results"]] == ["not changed"], again


@pytest.mark.parametrize("more", [", autoCreate: false", ", group: pwm.resource", ", group: team"])
def test_one_that_must_be_there_or_is_anothers_is_not_made(sample, more):
    status, answer = fresh(sample, "true", "nowhere", more)
    assert status == 422, answer
    [problem] = answer["problems"]
    assert (problem["where"], problem["field"]) == ("d.yaml:7:13", "spec.volumes[0]")
    assert "not found" in problem["message"]


def test_a_task_names_volumes_that_are_there(sample):
    text = "run: 'true'\nvolumes: {/data: nowhere}\n"
    status, answer = sample.ask("sample", "POST", "/v1/workloads", {"text": text})
    assert (status, answer["problems"][0]["message"]) == (422, "Volume nowhere not found")
    assert ended(sample, "sample", "run: 'true'\nvolumes: {/data: {name: by-task, storage: pwm.all}}\n") == "completed"
