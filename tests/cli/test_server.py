"""The server of this machine: started when it is needed, once, and with words for what goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest


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
    assert alone("server", "start").err == "The server is already running; see: penstock server status\n"
    assert alone("server", "start", "--auth", "header").err == (
        "Error: The server is already running.\nHint: penstock server stop, then start it again\n"
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
        shown = alone("server", "status").out
    assert started.code == 0, started.err
    assert started.err.startswith(f"Note: Port {port} is held by process {os.getpid()} (")
    assert started.out.endswith(", no TCP port\n")
    assert f"Problem:   Port {port} is held by process {os.getpid()} (" in shown


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
    assert refused.code == 5
    assert refused.err == (
        "Error: The machine's server is down.\n"
        f"Hint: sudo penstock server start --system (if it is gone for good: sudo rm {path}; "
        "for a server of your own beside it: export PENSTOCK_MODE=user)\n"
    )
    assert alone("server", "status").err.startswith("The machine's server is down.\n")
    assert not Path(alone.environ["PENSTOCK_DATA_DIR"]).exists()
    path.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a server for everyone on the machine")
def test_a_machines_server_that_was_stopped_is_not_replaced_and_keeps_its_port(alone, place):
    path = alone.environ["PENSTOCK_SYSTEM_SOCKET"]
    systems = {"PENSTOCK_DATA_DIR": str(place / "systems")}
    assert alone("server", "start", "--system", **systems).code == 0
    stopped = alone("server", "stop")
    refused = alone("jobs", "list")
    assert (refused.code, refused.err.splitlines()[0]) == (5, "Error: The machine's server is down.")
    assert stopped.err.endswith(f"Commands on this machine wait for it; if it is gone for good: sudo rm {path}\n")
    asked = alone("server", "start", "--port", "8000")
    assert asked.out.endswith(", no TCP port\n"), asked.err
    assert "Note: Port 8000 is that of this machine's own server, so this one has no TCP port." in asked.err
    assert asked.err.endswith("Commands use yours with: export PENSTOCK_MODE=user\n")
    assert alone("jobs", "list").code == 5
    assert alone("jobs", "list", PENSTOCK_MODE="user").out == "No tasks found\n"
    assert alone("server", "stop", PENSTOCK_MODE="user").code == 0
    del alone.environ["PENSTOCK_PORT"]
    fresh = alone("jobs", "list", PENSTOCK_MODE="user")
    assert "Note: Port 8000 is the machine's own server's; using 80" in fresh.err
    assert alone("server", "stop", PENSTOCK_MODE="user").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: an /etc of its own")
def test_a_machine_configured_for_one_server_starts_no_other(alone, place):
    etc = place / "etc"
    (etc / "penstock").mkdir(parents=True)
    (etc / "penstock" / "config.toml").write_text('mode = "system"\n')
    for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
        shutil.copy(f"/etc/{name}", etc)
    script = (
        "import os, sys, tomllib, penstock.cli.main, penstock.cli.server\n"
        "os.seteuid(65534)\n"
        "sys.argv = ['penstock', 'jobs', 'list']\n"
        "sys.exit(penstock.cli.main.main())"
    )
    line = ["bwrap", "--dev-bind", "/", "/", "--bind", str(etc), "/etc", sys.executable, "-c", script]
    done = subprocess.run(line, env=alone.environ, capture_output=True, text=True, cwd="/")
    assert done.stderr == (
        "Error: The machine's server is down.\nHint: sudo penstock server start --system (if it is gone for good: "
        'take mode = "system" out of /etc/penstock/config.toml; '
        "for a server of your own beside it: export PENSTOCK_MODE=user)\n"
    )
    assert done.returncode == 5
    assert not Path(alone.environ["PENSTOCK_DATA_DIR"]).exists()


def test_a_restart_keeps_jobs_and_the_flags_of_the_start(alone):
    assert alone("server", "start", "--auth", "header").code == 0
    before = json.loads(alone("server", "status", "-o", "json").out)
    job = json.loads(alone("run", "-o", "json", "--", "sleep", "1000").out)
    again = alone("server", "restart")
    assert (again.code, again.err) == (0, f"Restarted the server: version {before['version']}.\n")
    after = json.loads(alone("server", "status", "-o", "json").out)
    assert after["started_at"] != before["started_at"]
    assert after | {"started_at": ""} == before | {"started_at": ""}
    assert json.loads(alone("jobs", "status", job["id"], "-o", "json").out)["status"] == "running"


def test_there_is_nothing_to_restart_where_no_server_runs(alone):
    assert alone("server", "restart").err == "Error: No server is running.\nHint: penstock server start\n"


def test_the_log_of_the_server_is_for_its_owner_alone(alone):
    log = Path(alone.environ["PENSTOCK_DATA_DIR"]) / "server.log"
    log.parent.mkdir()
    log.write_text("of an older version\n")
    log.chmod(0o644)
    assert alone("server", "start").code == 0
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.read_text().startswith("of an older version\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a server for everyone on the machine")
def test_of_a_system_servers_data_others_can_read_nothing_but_what_is_theirs(alone, place):
    systems = {"PENSTOCK_DATA_DIR": str(place / "systems")}
    assert alone("server", "start", "--system", **systems).code == 0
    assert alone("run", "--", "true").code == 0
    assert alone("server", "stop").code == 0
    Path(alone.environ["PENSTOCK_SYSTEM_SOCKET"]).unlink()
    data = place / "systems"
    readable = [path for path in data.rglob("*") if path.is_file() and path.stat().st_mode & 0o044]
    reached = [path for path in readable if all(each.stat().st_mode & 0o001 for each in path.parents)]
    assert [str(path.relative_to(data)) for path in reached if path.parent.name != "bin"] == []  # that is for jobs


def test_a_server_for_everyone_needs_root(alone):
    script = (
        "import os, sys, penstock.cli.main, penstock.cli.server\n"
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
    assert missing.code == 5
    assert missing.err.endswith("Hint: penstock server start\n")
