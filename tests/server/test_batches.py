"""Files of many documents: each means its own group's things, and all of them stand or fall together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.server.test_roles import House, house

__all__ = ["house"]


def volume(name: str, group: str) -> str:
    return f"---\napiVersion: v1\nkind: Volume\nmetadata: {{name: {name}, group: {group}}}\nspec: {{size: 1Mi}}\n"


def workload(name: str, group: str | None = None, more: str = "", cmd: str = "sleep 60") -> str:
    whose = f", group: {group}" if group else ""
    spec = f"{{driver: pwm.docker, selectors: {{cpu: {{count: 0}}}}, config: {{cmd: {cmd}}}{more}}}"
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


# at the same time


def at_once(house: House, texts: list[str]) -> list[dict[str, Any]]:
    """What became of each of these, which are asked for together."""
    with ThreadPoolExecutor(len(texts)) as asking:
        answers = list(asking.map(lambda text: apply(house, text), texts))
    assert {status for status, _ in answers} <= {200, 422}, answers
    return [answer for _, answer in answers]


def test_the_same_file_applied_by_several_at_once_makes_one_of_each(groups):
    text = volume("raced", "g1") + workload("mounts", "g1", ", volumes: [{name: raced, target: /data}]")
    text += workload("waits", "g1", ", after: [mounts]")
    answers = at_once(groups, [text] * 8)
    made = [{(one["name"], one["id"]) for one in answer["results"]} for answer in answers]
    assert made == [made[0]] * 8, answers
    results = sorted(one["result"] for answer in answers for one in answer["results"])
    assert results == ["created"] * 3 + ["not changed"] * 21
    ids = dict(made[0])
    assert (
        groups.ask("admin", "GET", f"/v1/workloads/{ids['waits']}")[1]["message"]
        == f"waits for mounts ({ids['mounts']})"
    )
    for name in ("mounts", "waits"):
        found = groups.ask("admin", "GET", f"/v1/workloads?name={name}&group=g1")[1]["items"]
        assert [one["id"] for one in found] == [ids[name]]
    apply(groups, text, "/v1/delete")


def test_of_different_ones_applied_at_once_the_others_hear_what_differs(groups):
    texts = [workload("rival", "g1", cmd=f"sleep {number}") for number in range(60, 68)]
    answers = at_once(groups, texts)
    [made] = [one for answer in answers for one in answer.get("results", ()) if one["result"] == "created"]
    others = [str(answer) for answer in answers if made not in answer.get("results", ())]
    assert len(others) == 7
    assert all(f"'rival' ({made['id']}) is" in said and "and different: spec.config.cmd" in said for said in others)
    apply(groups, texts[0], "/v1/delete")


# two of one name


def test_two_of_one_name_are_one_too_many_though_only_one_says_its_group(groups):
    for text, kind in (
        (workload("dd", "g1") + workload("dd"), "workload"),
        (volume("dd", "g1") + volume("dd", "g1").replace(", group: g1", ""), "volume"),
        (workload("dd", "g1") + "---\nname: dd\nrun: sleep 60\n", "workload"),
    ):
        status, answer = apply(groups, text, user="both")
        assert status == 422, answer
        assert [message for _, _, message in problems(answer)] == [f"a {kind} 'dd' is in this file already"]


@pytest.mark.parametrize(("kind", "spec"), [("Storage", "{local: {node: here}}"), ("Node", "{address: 'unix:///x'}")])
def test_a_name_that_is_taken_once_for_all_groups_is_taken_once_in_a_file(groups, kind, spec):
    document = f"---\napiVersion: v1\nkind: {kind}\nmetadata: {{name: same, group: %s}}\nspec: {spec}\n"
    text = document.replace("%s", "g1") + document.replace("%s", "g2")
    for dry_run in (True, False):
        status, answer = apply(groups, text, dry_run=dry_run)
        assert status == 422, answer
        assert f"a {kind.lower()} 'same' is in this file already" in [message for _, _, message in problems(answer)]
    found = groups.ask("admin", "GET", f"/v1/{kind.lower()}s")[1]["items"]
    assert "same" not in [each["name"] for each in found]


# all at once


def test_all_of_ones_own_leaves_what_others_made_in_the_same_group(groups):
    user = {"name": "second", "groups": [{"name": "g1", "policy": "pwm.all"}]}
    assert groups.ask("admin", "PUT", "/v1/users/second", user)[0] == 200
    groups.tokens["second"] = groups.ask("admin", "POST", "/v1/tokens", {"user": "second"})[1]["token"]
    made = {name: apply(groups, workload(f"by-{name}", "g1"), user=name)[1] for name in ("both", "second")}
    ids = {name: each["results"][0]["id"] for name, each in made.items()}
    _, stopped = groups.ask("second", "POST", "/v1/workloads/stop")
    assert [each["id"] for each in stopped["items"]] == [ids["second"]]
    assert groups.ask("both", "GET", f"/v1/workloads/{ids['both']}")[1]["status"] in ("pending", "running")
    apply(groups, workload("by-both", "g1"), "/v1/delete")


# order


def test_what_waits_may_be_written_before_what_it_waits_for(groups):
    text = workload("job-c", "g1", ", after: [job-b]") + workload("job-b", "g1", ", after: [job-a]")
    status, made = apply(groups, text + workload("job-z", "g1") + workload("job-a", "g1"))
    assert status == 200, made
    names = [one["name"] for one in made["results"]]
    assert names == ["job-z", "job-a", "job-b", "job-c"]
    ids = {one["name"]: one["id"] for one in made["results"]}
    assert made["results"][3]["message"] == f"waits for job-b ({ids['job-b']})"
    apply(groups, text + workload("job-z", "g1") + workload("job-a", "g1"), "/v1/delete")


def test_those_that_wait_for_each_other_are_named(groups):
    text = workload("one", "g1", ", after: [two]") + workload("two", "g1", ", after: [three]")
    text += workload("three", "g1", ", after: [one]") + workload("own", "g1", ", after: [own]")
    status, answer = apply(groups, text + workload("behind", "g1", ", after: [one]"))
    assert status == 422, answer
    assert problems(answer) == [
        (
            "all.yaml:5:90",
            "spec.after",
            "could never start: one waits for two, which waits for three, which waits for one",
        ),
        ("all.yaml:20:90", "spec.after", "could never start: own waits for own"),
    ]


# all that is wrong


def test_what_is_wrong_in_one_document_hides_nothing_that_is_wrong_in_another(groups):
    text = workload("ex", "g1", ", imge: x") + volume("gone", "g1").replace("size: 1Mi", "storage: nonexistent")
    missing = "{name: nowhere, autoCreate: false, target: /data}"
    text += '---\nrun: "never closed\n' + workload("mounts", "g1", f", volumes: [{missing}]")
    for dry_run in (True, False):
        status, answer = apply(groups, text, dry_run=dry_run)
        assert status == 422, answer
        assert answer["message"] == "all.yaml has 4 problems."
        assert [(where.split(":")[1], message) for where, _, message in problems(answer)] == [
            ("5", "is not supported: no field of that name is known; did you mean 'image'?"),
            ("10", "Storage nonexistent not found"),
            ("12", "a quote is opened and never closed"),
            ("17", "Volume nowhere not found"),
        ]


def test_that_what_a_wrong_document_would_make_is_not_there_is_no_news(groups):
    """Nor what one would make that cannot be read at all."""
    text = volume("data", "g3").replace("size: 1Mi", "sze: 1Mi") + volume("pool", "g3").replace(
        "size: 1Mi}", "size: [1Mi}"
    )
    text += "---\napiVersion: v1\nkind: Group\nmetadata: {name: g3}\nspec: {limit: 1}\n"
    text += workload("first", "g3", ", imge: x") + workload("second", "g1", ", after: [first]")
    text += workload("third", "g3", ", volumes: [{name: data, target: /data}, {name: pool, target: /pool}]")
    status, answer = apply(groups, text)
    assert status == 422, answer
    assert [where.split(":")[1] for where, _, _ in problems(answer)] == ["5", "10", "15", "20"]


def test_all_that_differs_in_a_volume_is_said(groups):
    text = volume("kept", "g1").replace("1Mi", "1Mi, access_modes: [ReadWriteOnce]")
    assert apply(groups, text)[0] == 200
    other = text.replace("1Mi", "2Mi, policy: readonly").replace("Once", "Many")
    status, answer = apply(groups, other)
    assert status == 422, answer
    assert sorted((field, message) for _, field, message in problems(answer)) == [
        ("spec.access_modes", "is ReadWriteOnce and cannot become ReadWriteMany"),
        ("spec.policy", "is rw and cannot become readonly"),
        ("spec.size", "is 1Mi and cannot become 2Mi"),
    ]


# large ones


@pytest.mark.parametrize("path", ["/v1/apply", "/v1/stop", "/v1/delete"])
def test_a_file_of_several_mib_is_taken(groups, path):
    text = "".join(f"---\nname: long-{number}\nrun: |\n  true # {'x' * 200_000}\n" for number in range(30))
    status, answer = apply(groups, text, path, **({"dry_run": True} if path == "/v1/apply" else {}))
    assert status == 200, answer
    assert len(answer["results"]) == 30


def test_a_file_that_is_too_large_is_refused_with_what_to_do(groups):
    text = "---\nname: long\nrun: 'true'\n# " + "x" * (17 << 20)
    status, answer = apply(groups, text)
    assert (status, answer["problems"]) == (
        422,
        [{"where": "all.yaml", "message": "is larger than 16 MiB", "hint": "split it into several files"}],
    )
    status, answer = apply(groups, text + "x" * (8 << 20))
    assert (status, answer["message"], answer["hint"]) == (
        413,
        "The body is larger than 24Mi.",
        "See the setting documents_limit.",
    )


def many(count: int) -> str:
    """More than this machine has room for."""
    whole = ", selectors: {cpu: {count: 1}}"
    text = "".join(workload(f"member-{number}", "g1") for number in range(count))
    return text.replace(", selectors: {cpu: {count: 0}}", whole)


def test_any_number_of_documents_is_applied_stopped_and_deleted_with_a_result_for_each(groups):
    text, names = many(1500), [f"member-{number}" for number in range(1500)]
    for path, words in (
        ("/v1/apply", {"created"}),
        ("/v1/stop", {"stopped", "is being stopped"}),
        ("/v1/delete", {"deleted"}),
    ):
        status, answer = apply(groups, text, path)
        assert status == 200, answer
        assert [one["name"] for one in answer["results"]] == names
        assert {one["result"] for one in answer["results"]} <= words


def settled(house: House) -> list[dict[str, Any]]:
    """Those members, once each runs or was told why it waits."""
    path = "/v1/workloads?group=g1&limit=500"
    while True:
        _, page = house.ask("admin", "GET", path)
        found = [one for one in page["items"] if one["name"].startswith("member-")]
        if all(one["state"] in ("RUNNING", "QUEUED") and one["reason"] != "SUBMITTED" for one in found):
            return found
        house.ask("admin", "GET", f"{path}&wait=5&seen={page['version']}")


def test_when_a_batch_is_stopped_none_of_it_starts_in_the_place_of_another(groups):
    text = many(60)
    status, made = apply(groups, text)
    assert status == 200, made
    ran = {one["id"] for one in settled(groups) if one["state"] == "RUNNING"}
    assert 0 < len(ran) < 60
    _, stopped = apply(groups, text, "/v1/stop")
    assert [one["name"] for one in stopped["results"]] == [f"member-{number}" for number in range(60)]
    ended = [groups.ask("admin", "GET", f"/v1/workloads/{one['id']}/wait?timeout=60")[1] for one in stopped["results"]]
    assert {one["id"] for one in ended if "ASSIGNED" in [line["state"] for line in one["history"]]} == ran
    _, gone = apply(groups, text, "/v1/delete")
    assert {one["result"] for one in gone["results"]} == {"deleted"}


def test_each_of_a_batch_is_told_its_own_place_in_the_queue(groups):
    text = many(30)
    status, made = apply(groups, text)
    assert status == 200, made
    messages = [one["message"] for one in made["results"]]
    first = next(number for number, message in enumerate(messages) if message)
    assert messages == [None] * first + [f"needs 1 CPU; 0 of {first} are free"] * (30 - first)
    ahead = [one["ahead"] for one in made["results"]]
    assert ahead == [None] * (first + 1) + list(range(1, 30 - first))
    apply(groups, text, "/v1/delete")
