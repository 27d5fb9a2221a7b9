"""`penstock top` and `penstock inspect` against a real server: once in a pipe, again and again at a terminal."""

from __future__ import annotations

import json
import re
import signal

import pytest

from penstock.cli.top import node_lines, workload_lines
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
    assert done.out.splitlines()[2].endswith("  Network -")
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
    assert re.split(" {2,}", shown.splitlines()[0])[-2:] == ["Disk r / w", "Network in / out"]
    assert node["disk_written_per_second"] >= 0
    assert node["received_per_second"] >= 0
    assert penstock("top", "node", "elsewhere").code == 3


def test_all_of_it_fits_a_terminal_of_the_usual_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    process = {"pid": 4194304, "user": "somebody", "cpu_percent": 12800.0}
    process |= {"memory_bytes": 1023 << 30, "command": "x" * 15}
    moved = ("disk_read_per_second", "disk_written_per_second", "received_per_second", "sent_per_second")
    node = dict.fromkeys(moved, 1 << 20) | {"name": "gpu-node-001", "cpus": "128", "cpu_percent": 12800.0}
    node |= {"load": (128.1, 99.25, 7.5), "memory_bytes": 512 << 30, "memory_used_bytes": 100 << 30}
    node |= {"gpus": [{"utilization": 87}] * 8, "message": "it is so for a reason, " * 5}
    lines = node_lines([node])
    assert max(map(len, lines)) <= 80
    assert re.split(" {2,}", lines[0])[-3:] == ["GPUs", "Disk r / w", "Network in / out"]
    assert re.split(" {2,}", lines[1])[-3:] == ["87%, 87%, 8…", "1Mi / 1Mi", "1Mi / 1Mi"]
    assert lines[2].startswith("gpu-node-001: it is so for a reason,")
    used = dict.fromkeys(("disk_read_bytes", "disk_written_bytes"), (1 << 40) - 1)
    used |= dict.fromkeys(("network_received_bytes", "network_sent_bytes"), (1 << 40) - 1)
    job = used | {"name": "a", "id": "abcd2345", "memory_bytes": 1, "processes": [process], "message": "so " * 50}
    assert max(map(len, workload_lines(job))) <= 80


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
