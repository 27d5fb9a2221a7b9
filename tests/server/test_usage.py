"""Who took how much: what each may see of it, and in which rows."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.domain.model import now
from tests.server.test_roles import House, house

__all__ = ["house"]

TASK = "name: {name}\nresources: {{cpus: 1}}\nrun: sleep 0.2\n"


@pytest.fixture(scope="module")
def busy_house(house: House) -> House:
    """`has` ran two in the group lab, `rules-other` one in the group other."""
    for user, name in (("has", "first"), ("has", "second"), ("rules-other", "third")):
        status, job = house.ask(user, "POST", "/v1/workloads", {"text": TASK.format(name=name)})
        assert status == 201, job
        _, ended = house.ask(user, "GET", f"/v1/workloads/{job['id']}/wait?timeout=60")
        assert ended["state"] == "EXITED", ended
        assert house.ask(user, "DELETE", f"/v1/workloads/{job['id']}")[0] == 200
    return house


def rows(house: House, user: str, query: str = "") -> list[dict[str, Any]]:
    status, report = house.ask(user, "GET", f"/v1/usage{query}")
    assert status == 200, report
    assert report["since"] < report["until"]
    return list(report["items"])


def test_a_member_sees_all_of_their_own_groups_and_nothing_of_others(busy_house):
    for user in ("has", "sees"):
        [row] = rows(busy_house, user)
        assert (row["name"], row["group"], row["user"], row["workloads"]) == ("lab/has", "lab", "has", 2)
        assert row["cpu_hours"] > 0
        assert (row["gpu_hours"], row["gpu_hours_used"]) == (0, None)
    [row] = rows(busy_house, "rules-other")
    assert (row["name"], row["workloads"]) == ("other/rules-other", 1)


def test_an_admin_sees_everyone_or_the_group_that_is_named(busy_house):
    assert {row["name"] for row in rows(busy_house, "admin")} == {"lab/has", "other/rules-other"}
    assert [row["name"] for row in rows(busy_house, "admin", "?group=other")] == ["other/rules-other"]


def test_rows_are_of_users_or_of_groups_where_that_is_asked(busy_house):
    by_group = {row["name"]: row for row in rows(busy_house, "admin", "?by=group")}
    assert by_group.keys() == {"lab", "other"}
    assert (by_group["lab"]["group"], by_group["lab"]["user"], by_group["lab"]["workloads"]) == ("lab", None, 2)
    by_user = {row["name"]: row for row in rows(busy_house, "admin", "?by=user")}
    assert by_user.keys() == {"has", "rules-other"}
    assert by_user["has"]["group"] is None
    assert by_user["has"]["cpu_hours"] == by_group["lab"]["cpu_hours"]


def test_a_group_that_is_not_theirs_reads_like_one_that_is_not_there(busy_house):
    not_theirs = busy_house.ask("has", "GET", "/v1/usage?group=other")
    not_there = busy_house.ask("has", "GET", "/v1/usage?group=nosuch")
    assert not_theirs[0] == not_there[0] == 404
    assert str(not_theirs[1]).replace("other", "nosuch") == str(not_there[1])


@pytest.mark.parametrize(
    "since", ["12h", "999999d", "0001-01-01T00:00:00", "2026-01-01", "2026-01-01T12:00:00%2B01:00"]
)
def test_since_is_a_duration_or_a_time(busy_house, since):
    assert len(rows(busy_house, "has", f"?since={since}")) == 1


def test_a_time_that_is_still_to_come_is_refused(busy_house):
    status, refused = busy_house.ask("has", "GET", f"/v1/usage?since={now().year + 1}-01-01")
    assert (status, refused["problems"][0]["message"]) == (422, f"'{now().year + 1}-01-01' is in the future")


@pytest.mark.parametrize("since", ["soon", "30", "", "0d", "-1d", "2026-13-01"])
def test_anything_else_is_refused_with_what_would_be_right(busy_house, since):
    status, refused = busy_house.ask("has", "GET", f"/v1/usage?since={since}")
    assert (status, refused["code"]) == (422, "invalid")
    [problem] = refused["problems"]
    assert (problem["field"], problem["hint"]) == ("since", "for example 30d or 2026-11-15T21:31:15")
