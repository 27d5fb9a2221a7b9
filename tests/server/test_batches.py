"""Files of many documents: each means its own group's things, and all of them stand or fall together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.test_roles import House, house

__all__ = ["house"]


def volume(name: str, group: str) -> str:
    return f"---\napiVersion: v1\nkind: Volume\nmetadata: {{name: {name}, group: {group}}}\nspec: {{size: 1Mi}}\n"


def workload(name: str, group: str | None = None, more: str = "", cmd: str = "sleep 60") -> str:
    whose = f", group: {group}" if group else ""
    spec = "{driver: pwm.docker, selectors: {cpu: {count: 0}}, config: {cmd: %s}%s}" % (cmd, more)
    return f"---\napiVersion: v1\nkind: Workload\nmetadata: {{name: {name}{whose}}}\nspec: {spec}\n"


def apply(house: House, text: str, path: str = "/v1/apply", user: str = "admin", **more: Any) -> tuple[int, Any]:
    return house.ask(user, "POST", path, {"text": text, "source": "all.yaml"} | more)


def problems(answer: Any) -> list[tuple[str | None, str | None, str]]:
    return [(each.get("where"), each.get("field"), each["message"]) for each in answer["problems"]]


@pytest.fixture(scope="module")
def groups(house: House) -> House:
    """With two groups, and one who may everything in both."""
    for name in ("g1", "g2"):
        assert house.ask("admin", "PUT", f"/v1/groups/{name}", {"name": name})[0] == 200
    of = [{"name": name, "policy": "pwm.all"} for name in ("g1", "g2")]
    assert house.ask("admin", "PUT", "/v1/users/both", {"name": "both", "groups": of})[0] == 200
    house.tokens["both"] = house.ask("admin", "POST", "/v1/tokens", {"user": "both"})[1]["token"]
    return house


# whose


def files(house: House, name: str, id_: str) -> list[str]:
    """In this volume."""
    return sorted(path.name for path in (house.server.place / "data" / "volumes" / f"{name}-{id_}").iterdir())


def test_a_mount_means_the_volume_of_the_group_it_names_though_both_come_with_it(groups):
    mounts = ", volumes: [{name: data, group: g1, target: /one}, {name: data, group: g2, target: /two}]"
    text = volume("data", "g1") + volume("data", "g2")
    status, made = apply(groups, text + workload("w1", "g1", mounts, "touch /one/of-g1 /two/of-g2"))
    assert status == 200, made
    one, two, job = (each["id"] for each in made["results"])
    assert groups.ask("admin", "GET", f"/v1/workloads/{job}/wait?timeout=60")[1]["status"] == "completed"
    assert (files(groups, "data", one), files(groups, "data", two)) == (["of-g1"], ["of-g2"])


def test_a_mount_without_a_group_means_its_own_groups_volume_that_comes_with_it(groups):
    """Not the one of another group that is there already."""
    own = {"name": "near", "size": "1Mi"}
    assert groups.ask("both", "POST", "/v1/volumes?group=g2", own)[0] == 201
    claim = volume("near", "g1") + workload("w2", None, ", volumes: [{name: near, target: /data}]", "touch /data/here")
    status, made = apply(groups, claim, user="both")
    assert status == 200, made
    near, job = (each["id"] for each in made["results"])
    assert groups.ask("both", "GET", f"/v1/workloads/{job}/wait?timeout=60")[1]["status"] == "completed"
    assert files(groups, "near", near) == ["here"]


@pytest.mark.parametrize("group", ["nonexistent-group", "g2"])
def test_a_mount_of_a_group_that_has_no_such_volume_is_refused_though_another_of_that_name_comes(groups, group):
    mounts = f", volumes: [{{name: lone, group: {group}, target: /data}}]"
    status, answer = apply(groups, volume("lone", "g1") + workload("w3", "g1", mounts))
    assert status == 422, answer
    assert [message for _, _, message in problems(answer)] == ["Volume lone not found"]


def test_one_waits_only_for_its_own_groups_workloads(groups):
    status, answer = apply(groups, workload("first", "g1") + workload("second", "g2", ", after: [first]"))
    assert status == 422, answer
    assert [message for _, _, message in problems(answer)] == ["Task first not found"]
    text = workload("first", "g1") + workload("first", "g2") + workload("second", "g1", ", after: [first]")
    status, made = apply(groups, text)
    assert status == 200, made
    first, _, second = (each["id"] for each in made["results"])
    _, job = groups.ask("admin", "GET", f"/v1/workloads/{second}")
    assert job["message"] == f"waits for first ({first})"
    apply(groups, text, "/v1/delete")
