"""Workloads by name, as PWM names them: after they ended, by what they ask for, and where they are not."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable

import pytest
import yaml

from tests.cli.conftest import Program, Result
from tests.running import RunningServer

WAITER = "name: {}\nrun: echo {}\n"


@pytest.fixture
def pwmcli(penstock: Program) -> Callable[..., Result]:
    return lambda *words, **more: penstock(*words, name="pwmcli", **more)


def ran(server: RunningServer, name: str, times: int) -> list[str]:
    """The ids of as many of this name that have ended, the newest first."""
    made = [server.submit(WAITER.format(name, number))["id"] for number in range(times)]
    for id_ in made:
        server.ended(id_)
    return made[::-1]


def test_a_name_that_ended_twice_is_the_newest_to_all_that_read(pwmcli, penstock, server):
    newest, older = ran(server, "waiter", 2)
    assert json.loads(pwmcli("get", "wk", "waiter", "-j").out)["id"] == newest
    assert yaml.safe_load(pwmcli("get", "wk", "waiter", "-o", "yaml").out)["metadata"]["name"] == "waiter"
    assert newest in pwmcli("describe", "wk", "waiter").out
    assert pwmcli("logs", "wk", "waiter").out == "1\n"
    assert json.loads(pwmcli("inspect", "wk", "waiter").out)["id"] == newest
    assert "waiter is the name of" not in pwmcli("top", "wk", "waiter").err
    assert penstock("explain", "wk", "waiter", "-o", "name").out == f"{newest}\n"
    assert pwmcli("stop", "wk", "waiter").out == f"Task {newest} (waiter) is completed\n"
    assert pwmcli("logs", "wk", older).out == "0\n"


def test_one_that_is_alive_goes_before_those_that_ended(pwmcli, server):
    ran(server, "again", 2)
    alive = server.submit("name: again\nrun: sleep 600\n")["id"]
    assert json.loads(pwmcli("get", "wk", "again", "-j").out)["id"] == alive
    refused = pwmcli("delete", "wk", "again")
    assert refused.code == 6
    assert f"again ({alive}) is " in refused.err
    assert len(json.loads(pwmcli("get", "wk", "-j").out)) >= 3, "none is deleted while one of them is alive"


def test_a_name_is_deleted_with_all_that_ended_under_it(pwmcli, server):
    newest, *_ = ran(server, "gone", 3)
    assert pwmcli("delete", "wk", "gone").out == f"Workload gone ({newest}) deleted: all 3 of that name\n"
    missing = pwmcli("get", "wk", "gone")
    assert (missing.code, "gone not found" in missing.err) == (3, True)


def test_an_id_deletes_that_one_only(pwmcli, server):
    newest, older = ran(server, "kept", 2)
    assert pwmcli("delete", "wk", older).out == f"Workload kept ({older}) deleted\n"
    assert json.loads(pwmcli("get", "wk", "kept", "-j").out)["id"] == newest


def test_more_of_a_name_than_are_looked_up_at_once_are_deleted(server):
    for id_ in [server.submit(WAITER.format("many", 1))["id"] for _ in range(23)]:
        server.request("POST", f"/v1/workloads/{id_}/stop")
        server.ended(id_)
    status, gone = server.request("DELETE", "/v1/workloads/many")
    assert (status, gone["message"]) == (200, "all 23 of that name")
    assert server.request("GET", "/v1/workloads/many")[0] == 404


# -- by what it asks for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["describe", "logs", "inspect", "top", "stop", "shell", "delete"])
def test_gpuw_names_no_workload_that_asks_for_none(pwmcli, server, word):
    [id_] = ran(server, f"on-cpu-{word}", 1)
    refused = pwmcli(word, "gpuw", f"on-cpu-{word}")
    assert (refused.code, refused.out) == (125 if word == "shell" else 3, "")
    assert f"Workload on-cpu-{word} asks for no GPUs" in refused.err
    assert server.request("GET", f"/v1/workloads/{id_}")[0] == 200


def test_cpuw_is_what_asks_for_no_gpus(pwmcli, penstock, server):
    [id_] = ran(server, "on-cpu", 1)
    assert penstock("explain", "gpuw", "on-cpu").code == 3
    assert penstock("explain", "cpuw", "on-cpu", "-o", "name").out == f"{id_}\n"
    assert id_ in pwmcli("describe", "cpuw", "on-cpu").out
    assert pwmcli("logs", "cpuw", "on-cpu").out == "0\n"
    assert json.loads(pwmcli("inspect", "cpuw", "on-cpu").out)["id"] == id_
    assert pwmcli("stop", "cpuw", "on-cpu").out == f"Task {id_} (on-cpu) is completed\n"
    assert pwmcli("delete", "cpuw", "on-cpu").out == f"Workload on-cpu ({id_}) deleted\n"


# -- what is not there, or not taken -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wk", "vol", "gpu", "node"])
def test_what_is_not_there_is_not_watched(pwmcli, kind):
    refused = pwmcli("get", kind, "typo", "-w")
    assert (refused.code, refused.out) == (3, "")
    assert "typo not found" in refused.err


def test_what_is_watched_by_name_is_found_behind_many_others(penstock, server):
    [id_] = ran(server, "behind", 1)
    ran(server, "before", 2)
    watching = penstock.started("get", "wk", "behind", "-w", "--limit", "1", "-o", "name", name="pwmcli")
    assert watching.stdout
    assert watching.stdout.readline() == f"{id_}\n"


def test_top_says_what_it_takes(pwmcli):
    refused = pwmcli("top", "gpu")
    assert refused.code == 2
    assert "'gpu' is not one of: wk (workload, workloads), node (nodes), gpuw, cpuw." in refused.err


# -- volumes ------------------------------------------------------------------------------------------------------

DATASET = """
apiVersion: v1
kind: Volume
metadata: {name: imagenet, group: pwm.resource}
spec: {storage: NODE-local, subPath: imagenet-2012, policy: readonly}
"""


def test_a_dataset_is_described_with_its_path_and_that_it_is_only_read(pwmcli, server):
    applied = pwmcli("apply", "-f", "-", stdin=DATASET.replace("NODE", os.uname().nodename))
    assert applied.code == 0, applied.err
    described = pwmcli("describe", "vol", "imagenet", "-g", "pwm.resource").out
    facts = dict(re.findall(r"^([A-Z][\w ]+): +(\S+)$", described, re.MULTILINE))
    assert (facts["Sub Path"], facts["Policy"]) == ("imagenet-2012", "readonly")
    assert facts["Access Modes"] == "ReadOnlyMany"


def test_a_script_says_that_it_means_it(penstock, server):
    [id_] = ran(server, "scripted", 1)
    refused = penstock("delete", "wk", "scripted", stdin="")
    assert (refused.code, "There is no terminal to ask on: use --yes." in refused.err) == (2, True)
    assert penstock("delete", "wk", "scripted", "--yes").out == f"Workload scripted ({id_}) deleted\n"
