"""`penstock top` and `penstock inspect` against a real server: once in a pipe, again and again at a terminal."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.cli.conftest import SECONDS
from tests.cli.test_exec import Terminal
from tests.running import RunningServer
from tests.server.test_exec import running


@pytest.fixture(scope="module")
def job(server: RunningServer) -> str:
    return running(server, "busy", "sleep 617")


def test_in_a_pipe_it_is_printed_once(penstock, job):
    done = penstock("top", "busy")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == f"busy ({job}), node 0"
    assert "sleep 617" in done.out
    assert done.out.splitlines()[2].endswith("  Network 0B received, 0B sent")
    assert "\x1b" not in done.out


def test_at_a_terminal_it_is_drawn_again_until_ctrl_c(penstock, job):
    terminal = Terminal(penstock, "top", "busy")
    for _ in range(2):
        terminal.until(r"\x1b\[H\x1b\[J")
        terminal.until("sleep 617")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.ended() == 0


def test_the_machine_is_shown_by_node(penstock, job):
    [node] = json.loads(penstock("top", "node", "-o", "json").out)
    shown = penstock("top", "node").out
    assert shown.startswith("Node")
    assert node["name"] in shown
    assert "Disk read / written  Network in / out" in shown.splitlines()[0]
    assert node["disk_written_per_second"] >= 0
    assert node["received_per_second"] >= 0
    assert len(node["processes"]) == 5
    assert penstock("top", "node", "elsewhere").code == 1


def test_the_busiest_processes_of_the_machine_are_named_with_their_workload(penstock, server):
    busy = running(server, "spins", "while :; do :; done")
    deadline = time.monotonic() + SECONDS
    while busy not in (shown := penstock("top", "node").out):
        assert time.monotonic() < deadline, shown
    [line] = [line.split() for line in shown.splitlines() if busy in line]
    assert line[3] == busy
    assert float(line[4].rstrip("%")) > 0
    server.request("POST", f"/v1/workloads/{busy}/stop")


def test_a_process_that_has_ended_is_not_shown(penstock, server):
    running(server, "leaves", "sh -c ':' & exec sleep 618")
    assert "sleep 618" in (shown := penstock("top", "leaves").out)
    assert "defunct" not in shown
    assert "[sh]" not in shown
    [part] = json.loads(penstock("inspect", "leaves").out)["found"]["parts"]
    assert [] not in [process["command"] for process in part["processes"]]


def test_what_is_inspected_is_json_and_yaml(penstock, job):
    found = json.loads(penstock("inspect", "busy").out)
    assert (found["id"], found["engine"]) == (job, "local")
    assert f"id: {job}" in penstock("inspect", "busy", "-o", "yaml").out
