"""The server of this machine: started when it is needed, once, and with words for what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def test_the_first_command_starts_the_server_and_says_so_in_one_line(alone):
    first = alone("jobs", "list")
    assert (first.code, first.out) == (0, "No tasks found\n"), first.err
    data = alone.environ["PENSTOCK_DATA_DIR"]
    assert first.err == (f"Started the local Penstock server (data in {data}; stop it with: penstock server stop).\n")
    second = alone("jobs", "list")
    assert (second.out, second.err) == ("No tasks found\n", "")


def test_commands_at_the_same_moment_start_one_server_between_them(alone):
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda _: alone("jobs", "list"), range(4)))
    assert [result.code for result in results] == [0] * 4
    assert len([result for result in results if result.err]) == 1


def test_start_status_and_stop(alone):
    assert alone("server", "status").code == 1
    started = alone("server", "start")
    assert started.code == 0, started.err
    facts = json.loads(alone("server", "status", "-o", "json").out)
    assert (
        started.out == f"Started: socket {facts['socket']}, API {facts['address']} (docs at {facts['address']}/docs)\n"
    )
    assert "Status:    running\n" in alone("server", "status").out
    assert alone("server", "start").err == "The server is running already; see: penstock server status\n"
    assert alone("server", "start", "--auth", "header").err == (
        "Error: The server is running already.\nHint: penstock server stop, then start it again\n"
    )
    assert "listening on" in alone("server", "logs").out
    assert alone("server", "stop").err == "Stopped the server. Running jobs go on.\n"
    assert alone("server", "stop").err == "No server is running.\n"


def test_jobs_go_on_without_the_server_and_are_found_again(alone):
    job = json.loads(alone("run", "-o", "json", "--", "bash", "-c", "until [ -e go ]; do sleep 0.05; done; exit 4").out)
    assert alone("server", "stop").code == 0
    again = json.loads(alone("jobs", "status", job["id"], "-o", "json").out)
    assert again["status"] in ("pending", "running")
    alone("jobs", "stop", job["id"])


def test_a_server_that_was_killed_is_started_by_the_next_command(alone):
    alone("server", "start")
    os.kill(json.loads(alone("server", "status", "-o", "json").out)["pid"], signal.SIGKILL)
    again = alone("volumes", "list")
    assert again.code == 0
    assert again.err.startswith("Started the local Penstock server")


def test_a_port_that_is_taken_is_told(alone):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = alone("server", "start", "--port", str(port))
    assert started.code == 0, started.err
    assert started.err.startswith("Note: ")
    assert str(port) in started.err


def test_a_wrong_setting_names_file_key_and_what_is_allowed(alone):
    config = Path(alone.environ["XDG_CONFIG_HOME"]) / "penstock" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('auth = "none"\n')
    refused = alone("jobs", "list")
    assert refused.code == 2
    assert f'  {config}: auth: must be "token" or "header", not \'none\'\n' in refused.err
    examined = alone("doctor")
    assert examined.code == 1
    assert examined.out.count("must be") == 1
    config.unlink()


def test_the_doctor_says_why_a_server_cannot_start(alone):
    data = Path(alone.environ["PENSTOCK_DATA_DIR"])
    data.write_text("not a directory")
    examined = alone("doctor")
    assert examined.code == 1
    assert f"server       missing  The server cannot keep its data in {data}: File exists." in examined.out
    assert "    fix: choose another directory: PENSTOCK_DATA_DIR, or data_dir in config.toml" in examined.out
    data.unlink()


def test_the_doctor_cuts_nothing_where_the_terminal_is_narrow(alone):
    data = Path(alone.environ["PENSTOCK_DATA_DIR"])
    data.write_text("not a directory")
    narrow = alone("doctor", COLUMNS="60")
    assert "…" not in narrow.out
    assert max(len(line) for line in narrow.out.splitlines() if "/" not in line) <= 60
    assert narrow.out.split() == alone("doctor").out.split()
    assert alone("doctor", "-o", "name").out.split()[:2] == ["python", "platform"]
    data.unlink()


def test_a_machines_server_that_is_down_is_not_replaced_by_ones_own(alone):
    path = Path(alone.environ["PENSTOCK_SYSTEM_SOCKET"])
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    refused = alone("jobs", "list")
    assert refused.code == 1
    assert refused.err == (
        "Error: The machine's server is down.\n"
        f"Hint: sudo penstock server start --system (if it is gone for good: sudo rm {path})\n"
    )
    assert alone("server", "status").err.startswith("The machine's server is down.\n")
    assert not Path(alone.environ["PENSTOCK_DATA_DIR"]).exists()
    path.unlink()


def test_a_server_for_everyone_needs_root(alone):
    script = (
        "import os, sys, penstock.cli.main, penstock.cli.server, penstock.cli.launch\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "sys.argv = ['penstock', 'server', 'start', '--system']\n"
        "sys.exit(penstock.cli.main.main())"
    )
    done = subprocess.run([sys.executable, "-c", script], env=alone.environ, capture_output=True, text=True)
    said = "Error: --system needs root.\nHint: sudo penstock server start --system\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_the_doctor_is_content_with_a_server_that_works(alone):
    examined = alone("doctor", "-o", "json")
    checks = {check["name"]: check for check in json.loads(examined.out)["checks"]}
    assert {"python", "platform", "settings", "credentials", "server"} <= set(checks)
    assert checks["server"]["ok"]


def test_the_server_logs_of_a_machine_without_one(alone):
    missing = alone("server", "logs")
    assert missing.code == 1
    assert missing.err.endswith("Hint: penstock server start\n")
