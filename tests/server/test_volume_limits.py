"""What groups and their members may have in volumes: beyond it a volume is refused, and why is said in numbers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.running import RunningServer, start_server

GI = 2**30
CLAIM = """apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: {size}}}}}}}
---
"""
DOCUMENT = "apiVersion: v1\nkind: Volume\nmetadata: {{name: {name}, group: {group}}}\nspec: {{size: {size}}}\n---\n"


@dataclass
class Lab:
    """Everyone's own group is told apart by its name, so that tests do not count each other's volumes."""

    server: RunningServer
    admin: dict[str, str]

    def group(self, name: str, most: int | None = None, each: int | None = None) -> None:
        limits = {"limits": {"volume_bytes": most}, "limits_each": {"volume_bytes": each}}
        status, answer = self.server.tcp("PUT", f"/v1/groups/{name}", {"name": name} | limits, self.admin)
        assert status == 200, answer

    def member(self, name: str, group: str) -> dict[str, str]:
        user = {"name": name, "groups": [{"name": group, "policy": "pwm.all"}]}
        status, answer = self.server.tcp("PUT", f"/v1/users/{name}", user, self.admin)
        assert status == 200, answer
        _, made = self.server.tcp("POST", "/v1/tokens", {"user": name}, self.admin)
        return {"Authorization": f"Bearer {made['token']}"}

    def create(self, who: dict[str, str], name: str, size: str) -> tuple[int, Any]:
        return self.server.tcp("POST", "/v1/volumes", {"name": name, "size": size}, who)

    def apply(self, who: dict[str, str], text: str) -> tuple[int, Any]:
        return self.server.tcp("POST", "/v1/apply", {"text": text}, who)

    def names(self, who: dict[str, str]) -> set[str]:
        return {item["name"] for item in self.server.tcp("GET", "/v1/volumes", None, who)[1]["items"]}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    place.chmod(0o711)
    server = start_server(place)
    status, first = server.request("POST", "/v1/adm/init", {})
    assert status == 201, first
    yield Lab(server, {"Authorization": f"Bearer {first['token']}"})
    server.end()
    shutil.rmtree(place)


def test_beyond_the_groups_limit_a_volume_is_refused_with_what_is_taken_asked_and_allowed(lab: Lab):
    lab.group("vision", most=10 * GI)
    ann, bob = lab.member("ann", "vision"), lab.member("bob", "vision")
    assert lab.create(ann, "first", "6Gi")[0] == 201
    status, refused = lab.create(bob, "second", "5Gi")
    assert (status, refused["code"]) == (422, "invalid")
    [problem] = refused["problems"]
    assert problem["field"] == "size"
    assert problem["message"] == "group vision may have 10Gi in volumes: 6Gi are taken, this asks for 5Gi"
    assert lab.create(bob, "second", "4Gi")[0] == 201
    assert lab.server.tcp("DELETE", "/v1/volumes/first", None, ann)[0] == 200
    assert lab.create(bob, "third", "6Gi")[0] == 201


def test_beyond_what_each_member_may_have_only_that_one_is_refused(lab: Lab):
    lab.group("speech", most=100 * GI, each=3 * GI)
    cleo, dave = lab.member("cleo", "speech"), lab.member("dave", "speech")
    assert lab.create(cleo, "first", "2Gi")[0] == 201
    status, refused = lab.create(cleo, "second", "2Gi")
    assert status == 422
    [problem] = refused["problems"]
    assert problem["message"] == "cleo in group speech may have 3Gi in volumes: 2Gi are taken, this asks for 2Gi"
    assert lab.create(dave, "second", "2Gi")[0] == 201


def test_where_both_limits_forbid_it_both_are_said(lab: Lab):
    lab.group("small", most=1 * GI, each=0)
    _, refused = lab.create(lab.member("eve", "small"), "data", "2Gi")
    assert [problem["message"].split(" may")[0] for problem in refused["problems"]] == [
        "group small",
        "eve in group small",
    ]


def test_a_volume_grows_only_within_the_limit(lab: Lab):
    lab.group("growing", most=10 * GI)
    fred = lab.member("fred", "growing")
    assert lab.create(fred, "data", "4Gi")[0] == 201
    status, refused = lab.server.tcp("POST", "/v1/volumes/data/resize", {"size": "11Gi"}, fred)
    assert (status, refused["message"]) == (422, "Volume data cannot be resized.")
    [problem] = refused["problems"]
    assert problem["message"] == "group growing may have 10Gi in volumes: 4Gi are taken, this asks for 7Gi more"
    status, grown = lab.server.tcp("POST", "/v1/volumes/data/resize", {"size": "10Gi"}, fred)
    assert (status, grown["size"]) == (200, "10Gi")
    assert lab.create(fred, "more", "1Gi")[0] == 422


def test_a_file_of_several_that_grow_is_judged_as_a_whole(lab: Lab):
    lab.group("rising", most=10 * GI)
    hans = lab.member("hans", "rising")
    for name in ("one", "two"):
        assert lab.create(hans, name, "2Gi")[0] == 201
    text = "".join(CLAIM.format(name=name, size="6Gi") for name in ("one", "two"))
    for dry in (True, False):
        status, refused = lab.server.tcp("POST", "/v1/apply", {"text": text, "dry_run": dry}, hans)
        assert status == 422, refused
        assert [problem["message"] for problem in refused["problems"]] == [
            "group rising may have 10Gi in volumes: 8Gi are taken, this asks for 4Gi more"
        ]
    fits = text.replace("6Gi", "5Gi")
    status, made = lab.apply(hans, fits)
    assert [each["result"] for each in made["results"]] == ["resized", "resized"]


def test_many_at_once_do_not_pass_together(lab: Lab):
    lab.group("rush", most=5 * GI)
    gina = lab.member("gina", "rush")
    assert lab.create(gina, "data", "1Gi")[0] == 201

    def ask(number: int) -> int:
        if number % 4:
            return lab.create(gina, f"v{number}", "1Gi")[0]
        return lab.server.tcp("POST", "/v1/volumes/data/resize", {"size": "3Gi"}, gina)[0]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(32)))
    assert set(answers) <= {200, 201, 422}
    _, page = lab.server.tcp("GET", "/v1/volumes", None, gina)
    assert sum(item["size_bytes"] for item in page["items"]) == 5 * GI


def test_documents_that_are_too_much_together_change_nothing(lab: Lab):
    lab.group("papers", most=3 * GI)
    hal = lab.member("hal", "papers")
    text = CLAIM.format(name="one", size="2Gi") + CLAIM.format(name="two", size="2Gi")
    status, refused = lab.apply(hal, text)
    assert status == 422
    [problem] = refused["problems"]
    assert problem["message"] == "group papers may have 3Gi in volumes: 2Gi are taken, this asks for 2Gi"
    assert problem["field"] == "spec.resources.requests.storage"
    assert ":9:" in problem["where"]
    assert lab.names(hal) == set()
    fits = CLAIM.format(name="one", size="2Gi") + CLAIM.format(name="two", size="1Gi")
    for result in ("created", "not changed"):
        status, done = lab.apply(hal, fits)
        assert [each["result"] for each in done["results"]] == [result, result], done
    status, refused = lab.apply(hal, CLAIM.format(name="one", size="5Gi"))
    assert status == 422
    assert "3Gi are taken, this asks for 3Gi more" in str(refused["problems"])


def test_a_document_of_kind_volume_is_refused_where_it_says_its_size(lab: Lab):
    lab.group("notes", most=1 * GI)
    ida = lab.member("ida", "notes")
    status, refused = lab.apply(ida, DOCUMENT.format(name="data", group="notes", size="2Gi"))
    assert status == 422, refused
    [problem] = refused["problems"]
    assert problem["message"] == "group notes may have 1Gi in volumes: 0B are taken, this asks for 2Gi"
    assert problem["field"].endswith("size")


def test_a_limit_that_the_same_text_raises_counts(lab: Lab):
    lab.group("raised", most=1 * GI)
    text = "apiVersion: v1\nkind: Group\nmetadata: {name: raised}\nspec: {limits: {volume_size: 4Gi}}\n---\n"
    status, done = lab.apply(lab.admin, text + DOCUMENT.format(name="data", group="raised", size="2Gi"))
    assert status == 200, done
    assert [each["result"] for each in done["results"]] == ["configured", "created"]


def test_a_group_without_a_limit_has_none(lab: Lab):
    lab.group("free")
    assert lab.create(lab.member("jo", "free"), "data", "900Ti")[0] == 201
