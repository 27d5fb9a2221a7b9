"""Why a workload waits: `penstock explain`, and the place in the queue in every list."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from penstock.cli.explain import _columns
from penstock.cli.ui.table import table
from tests.cli.test_completion import complete
from tests.running import RunningServer, start_server
from tests.server.test_attempts import until

NODE = os.uname().nodename
TASK = "name: {}\nresources: {{cpus: 2}}\nrun: sleep 600\n"


@pytest.fixture(scope="module")
def server(_module_place: Path) -> Iterator[RunningServer]:
    """With room for one of the tasks, which runs, and two that wait."""
    running = start_server(_module_place, cpus="2", memory="2Gi")
    until(running, running.submit(TASK.format("runs"))["id"], lambda found: found["state"] == "RUNNING")
    until(running, running.submit(TASK.format("first"))["id"], lambda found: found["state"] == "QUEUED")
    until(running, running.submit(TASK.format("second"))["id"], lambda found: found["ahead"] == 1)
    yield running
    running.end()


def test_it_is_said_in_a_sentence_and_for_each_node(penstock, server):
    first, second = penstock("explain", "wk", "first"), penstock("explain", "second")
    assert (first.code, second.code) == (0, 0)
    facts, nodes = first.out.split("\n\n")
    assert "State:    QUEUED\n" in facts
    assert "Why:      needs 2 CPUs; 0 of 2 are free\n" in facts
    assert nodes.splitlines()[0].split() == ["NODE", "FITS", "WHY"]
    assert nodes.splitlines()[1].split(maxsplit=2) == [NODE, "no", "has 0 of 2 CPUs free, needs 2"]
    assert "Why:      needs 2 CPUs; 0 of 2 are free\nAhead:    1\n" in second.out


def test_it_is_told_to_programs(penstock, server):
    told = json.loads(penstock("explain", "second", "-o", "json").out)
    _, answered = server.request("GET", "/v1/workloads/second/explain")
    assert told == answered == yaml.safe_load(penstock("explain", "job/second", "-o", "yaml").out)
    assert (told["ahead"], told["nodes"][0]["name"], told["nodes"][0]["fits"]) == (1, NODE, False)
    assert penstock("explain", told["id"], "-o", "name").out == f"{told['id']}\n"
    assert " cpus " in penstock("explain", "second", "-o", "wide").out.splitlines()[-1]


def test_of_one_that_does_not_wait_it_says_what_is_the_case(penstock):
    shown = penstock("explain", "runs").out
    assert "Why:      it does not wait: it is RUNNING" in shown
    assert "NODE" not in shown


def test_one_that_is_not_there(penstock):
    done = penstock("explain", "none-such")
    assert (done.code, done.out, done.err) == (3, "", "Error: Task none-such not found\n")
    assert penstock("explain", "volume", "x").code == 2


def test_names_are_completed(penstock):
    assert complete(penstock, "penstock", "explain", "wk", "sec") == ["plain,second"]
    assert complete(penstock, "penstock", "explain", "sec") == ["plain,second"]


def test_each_node_has_all_that_stands_in_its_way_in_one_line():
    cpus = {"key": "cpus", "message": "has 1 of 8 CPUs free, needs 4", "passes": True}
    label = {"key": "labels", "message": "has no label rack=a", "passes": False}
    nodes = [
        {"name": "gpu01", "fits": True, "obstacles": []},
        {"name": "gpu02", "fits": False, "obstacles": [cpus]},
        {"name": "gpu03", "fits": False, "obstacles": [label, cpus]},
    ]
    assert table(nodes, _columns(wide=True)) == [
        "NODE   FITS   ABOUT        WHY",
        "gpu01  yes    -            -",
        "gpu02  no     cpus         has 1 of 8 CPUs free, needs 4",
        "gpu03  never  labels,cpus  has no label rack=a; has 1 of 8 CPUs free, needs 4",
    ]


# the place in the queue


def test_every_list_shows_the_place_in_the_queue_of_one_that_waits(penstock):
    head, second, first, runs, *_ = penstock("jobs", "list").out.splitlines()
    assert head.split()[-2:] == ["Ahead", "Reason"]
    assert "  1      needs 2 CPUs; 0 of 2 are free" in second
    assert "ahead" not in second
    assert "  -      needs 2 CPUs; 0 of 2 are free" in first
    _, narrow = penstock.on_terminal("jobs", "list", "--name", "second", COLUMNS="60")
    assert "Ahead" in narrow
    shown = {line.split()[1]: line for line in penstock("get", "wk", name="pwmcli").out.splitlines()[2:]}
    assert "QUEUED   NO_AVAILABLE_RESOURCES, 1 ahead  " in shown["second"]
    assert "QUEUED   NO_AVAILABLE_RESOURCES  " in shown["first"]
    assert "Message:    needs 2 CPUs; 0 of 2 are free (1 ahead in the queue)\n" in penstock("describe", "second").out
    assert runs.split()[1] == "runs"


def test_nobody_ahead_is_no_column(penstock):
    assert "Ahead" not in penstock("jobs", "list", "--name", "first").out
