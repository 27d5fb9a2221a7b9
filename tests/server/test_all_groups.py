"""What one sees who may see everything: all groups at once, and a thing by its name wherever it is."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.server.test_roles import House, house

__all__ = ["house"]

SLEEPS = "name: {name}\nrun: sleep 600\n"
JOBS = {"has": ("lab", "in-lab"), "rules-other": ("other", "in-other")}


@pytest.fixture(scope="module")
def full(house: House) -> House:
    """With a job and a volume in each of two groups, one of a name that both have."""
    for user, (_, name) in JOBS.items():
        for each in (name, "in-both"):
            status, made = house.ask(user, "POST", "/v1/workloads", {"text": SLEEPS.format(name=each)})
            assert status == 201, made
            status, made = house.ask(user, "POST", "/v1/volumes", {"name": each, "size": "1Mi"})
            assert status == 201, made
    return house


def penstock(house: House, user: str, *words: str) -> tuple[int, str, str]:
    known = {"PENSTOCK_API_URL": house.server.address, "PENSTOCK_TOKEN": house.tokens[user]}
    command = [sys.executable, "-m", "penstock.cli", *words]
    done = subprocess.run(command, env=house.server.environ | known, capture_output=True, text=True, timeout=90)
    return done.returncode, done.stdout, done.stderr


def listed(answer: tuple[int, Any]) -> set[tuple[str, str]]:
    status, found = answer
    assert status == 200, found
    return {(item["group"], item["name"]) for item in found["items"]}


ALL = {("lab", "in-lab"), ("lab", "in-both"), ("other", "in-other"), ("other", "in-both")}
OF_LAB = {("lab", "in-lab"), ("lab", "in-both")}
LISTS = ("/v1/workloads?", "/v1/volumes?", "/v1/documents?kind=Workload&", "/v1/documents?kind=Volume&")


@pytest.mark.parametrize("path", LISTS)
def test_a_list_of_everything_is_all_that_the_caller_may_see(full, path):
    for query in ("everything=true", "group=pwm.all"):
        assert listed(full.ask("admin", "GET", f"{path}{query}")) == ALL
    assert listed(full.ask("admin", "GET", path)) == set(), "which are their own groups'"
    assert listed(full.ask("admin", "GET", f"{path}everything=true&group=lab")) == OF_LAB
    assert listed(full.ask("has", "GET", f"{path}everything=true")) == OF_LAB
    status, answer = full.ask("has", "GET", f"{path}group=pwm.all")
    assert (status, answer["message"]) == (404, "Group pwm.all not found")


@pytest.mark.parametrize("path", ["/v1/workloads", "/v1/apply", "/v1/volumes"])
def test_nothing_is_made_in_all_groups(full, path):
    body = {"name": "x", "size": "1Mi"} if path == "/v1/volumes" else {"text": SLEEPS.format(name="x")}
    status, answer = full.ask("admin", "POST", f"{path}?group=pwm.all", body)
    assert (status, answer["message"]) == (404, "Group pwm.all not found")


@pytest.mark.parametrize("kind", ["workloads", "volumes"])
def test_an_admin_finds_a_thing_by_its_name_where_only_one_has_it(full, kind):
    status, found = full.ask("admin", "GET", f"/v1/{kind}/in-lab")
    assert (status, found.get("group")) == (200, "lab"), found
    assert full.ask("rules-other", "GET", f"/v1/{kind}/in-lab")[0] == 404
    status, answer = full.ask("admin", "GET", f"/v1/{kind}/in-both")
    assert (status, answer["code"]) == (409, "ambiguous")
    assert "in-both is the name of 2: " in answer["message"]
    assert "lab/in-both (" in answer["message"]
    assert "other/in-both (" in answer["message"]
    assert answer["hint"] == "Name the group with -g, or use one of the ids."
    assert full.ask("admin", "GET", f"/v1/{kind}/in-both?group=other")[1]["group"] == "other"


@pytest.mark.parametrize("kind", ["workloads", "volumes"])
def test_what_is_anothers_is_deleted_by_id_or_with_its_group_named(full, kind):
    """A name of one's own that is gone by now must never mean somebody else's data."""
    status, answer = full.ask("admin", "DELETE", f"/v1/{kind}/in-lab")
    assert status == 404, answer
    assert answer["hint"] == "There is one in group lab: name that with -g lab."
    assert full.ask("admin", "GET", f"/v1/{kind}/in-lab")[0] == 200
    missing = full.ask("has", "DELETE", f"/v1/{kind}/in-other")
    assert (missing[0], "hint" in missing[1]) == (404, False), "nobody else is told of it"


def test_a_job_of_an_admin_mounts_no_volume_of_another_group_that_it_does_not_name(full):
    text = "run: 'true'\nvolumes: {/data: in-lab}\n"
    status, answer = full.ask("admin", "POST", "/v1/workloads", {"text": text})
    assert status == 422
    assert answer["problems"][0]["message"] == "Volume in-lab not found"
    named = text.replace("in-lab", "{name: in-lab, group: lab}")
    assert full.ask("admin", "POST", "/v1/workloads", {"text": named, "dry_run": True})[0] == 200


@pytest.mark.parametrize("group", [(), ("-g", "pwm.all")])
def test_get_shows_an_admin_all_groups(full, group):
    for kind in ("wk", "vol", "job", "volume"):
        code, out, err = penstock(full, "admin", "get", kind, *group)
        assert code == 0, err
        for name in ("in-lab", "in-other", "in-both"):
            assert name in out.split(), kind
    _, out, _ = penstock(full, "admin", "get", "wk", "-o", "yaml", *group)
    assert {"  group: lab", "  group: other"} <= set(out.splitlines())
    code, out, _ = penstock(full, "has", "get", "wk")
    assert code == 0
    assert "in-lab" in out.split()
    assert "in-other" not in out.split()


def test_our_own_columns_say_whose_a_job_is_where_there_are_several(full):
    _, out, _ = penstock(full, "admin", "get", "job")
    assert "User" in out.splitlines()[0].split()
    assert "rules-other" in out.split()
    _, out, _ = penstock(full, "has", "get", "job")
    assert "User" not in out.splitlines()[0].split()


def test_jobs_list_is_of_ones_own_groups_and_with_all_users_of_all(full):
    _, out, _ = penstock(full, "admin", "jobs", "list")
    assert "in-lab" not in out.split()
    _, out, _ = penstock(full, "admin", "jobs", "list", "--all-users")
    assert {"in-lab", "in-other"} <= set(out.split())


def test_an_admin_describes_and_stops_by_name(full):
    code, out, err = penstock(full, "admin", "describe", "wk", "in-other")
    assert (code, "in-other" in out) == (0, True), err
    code, _, err = penstock(full, "admin", "describe", "wk", "in-both")
    assert code == 6
    assert "lab/in-both (" in err
    assert "-g" in err
    _, made = full.ask("has", "POST", "/v1/workloads", {"text": SLEEPS.format(name="to-stop")})
    assert penstock(full, "admin", "stop", "wk", "to-stop", "--yes")[0] == 0
    _, ended = full.ask("has", "GET", f"/v1/workloads/{made['id']}/wait?timeout=60")
    assert ended["status"] == "stopped"
    assert penstock(full, "admin", "logs", "wk", "to-stop")[0] == 0


def test_what_ended_under_one_name_in_two_groups_is_still_not_one(full):
    for user in JOBS:
        _, made = full.ask(user, "POST", "/v1/workloads", {"text": "name: over-in-both\nrun: 'true'\n"})
        full.ask(user, "POST", f"/v1/workloads/{made['id']}/stop")
        assert full.ask(user, "GET", f"/v1/workloads/{made['id']}/wait?timeout=30")[1]["ended_at"]
    status, answer = full.ask("admin", "GET", "/v1/workloads/over-in-both")
    assert (status, answer["code"]) == (409, "ambiguous")
    assert answer["hint"] == "Name the group with -g, or use one of the ids."


@pytest.mark.parametrize("kind", ["GPU", "CPU", "Node"])
def test_who_may_not_see_nodes_is_told_of_that_whatever_of_them_they_ask_for(full, kind):
    for words in (["get", kind.lower()], ["get", kind.lower(), "-o", "yaml"], ["describe", kind.lower(), "any"]):
        code, out, err = penstock(full, "blind", *words, "-g", "lab")
        assert (code, out) == (4, "")
        assert "You may not see nodes in group lab." in err, words
