"""`penstock get` and the reasons in lists."""

from __future__ import annotations

import json

import pytest


def test_a_list_says_why_a_job_failed_and_keeps_that_on_a_narrow_terminal(penstock):
    penstock("jobs", "submit", "-", stdin="name: breaks\nrun: exit 7\n")
    shown = penstock("jobs", "list", "--name", "breaks").out
    assert shown.splitlines()[0].endswith("Reason")
    assert shown.splitlines()[1].endswith("run ended with code 7.")
    _, narrow = penstock.on_terminal("jobs", "list", "--name", "breaks", COLUMNS="60")
    assert "Created" not in narrow
    assert "run ended with code 7." in narrow
    _, wide = penstock.on_terminal("jobs", "list", "--name", "breaks", "-o", "wide", COLUMNS="80")
    assert "run ended with code 7." in wide


def test_one_job_and_one_volume_are_tables_unless_something_else_is_asked_for(penstock):
    penstock("volumes", "create", "gotten", "1Gi")
    penstock("jobs", "submit", "-", stdin="name: gotten\nrun: 'true'\n")
    for kind in ("job", "volume"):
        head, row = penstock("get", kind, "gotten").out.splitlines()
        assert "Name" in head
        assert "gotten" in row
        assert penstock("get", kind, "gotten", "-o", "name").out.strip() == row.split()[0]
        assert json.loads(penstock("get", kind, "gotten", "-o", "json").out)["name"] == "gotten"


@pytest.mark.parametrize("kind", ["jobs", "volumes", "nodes", "gpus"])
def test_what_is_not_there_is_said(penstock, kind):
    done = penstock("get", kind, "none-such")
    assert (done.code, done.out) == (3, "")
    assert "none-such not found" in done.err
