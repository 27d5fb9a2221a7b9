"""A server whose work runs on Docker hosts: from a Node document to a workload's log, and nothing left over."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.host import Host
from tests.hosts.lot import Hosts
from tests.running import RunningServer, start_server

NODE = "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, group: pwm.resource}}\nspec: {{address: '{address}'}}\n"
WORKLOAD = """apiVersion: v1
kind: Workload
metadata: {name: greeter}
spec:
  driver: pwm.docker
  selectors: {cpu: {product_name: pwm.all}}
  image: {image: "busybox:1"}
  config: {cmd: sh, startMode: -itd}
"""
TASK = """name: writes
resources: {image_id: "busybox:1"}
volumes: {/data: kept}
run: [sh, -c, "date >> /data/runs; wc -l < /data/runs"]
"""
SLEEPS = """name: sleeps
resources: {image_id: "penstock-test:1"}
run: sleep 600
"""
PATIENCE = 90


@pytest.fixture
def server(place: Path, hosts: Hosts) -> Iterator[RunningServer]:
    first, _ = hosts.hosts
    server = start_server(place, engine="docker")
    applied(server, NODE.format(name="lab-1", address=first.unix))
    until(lambda: any(node["ready"] for node in items(server, "/v1/nodes")))
    yield server
    if server.process.poll() is None:
        leave_nothing(server, first)
    first.clean()


def leave_nothing(server: RunningServer, host: Host) -> None:
    """Ends and deletes everything through the server, and sees that nothing stays on the host."""
    for thing in items(server, "/v1/workloads"):
        server.request("POST", f"/v1/workloads/{thing['id']}/stop")
        server.ended(thing["id"])
        server.request("DELETE", f"/v1/workloads/{thing['id']}")
    for thing in items(server, "/v1/volumes"):
        server.request("DELETE", f"/v1/volumes/{thing['id']}")
    until(lambda: not host.jobs("-a"))
    server.end()


def items(server: RunningServer, path: str) -> list[dict[str, Any]]:
    return list(server.request("GET", path)[1]["items"])


def applied(server: RunningServer, text: str) -> dict[str, Any]:
    status, answer = server.request("POST", "/v1/apply", {"text": text})
    assert status == 200, answer
    [result] = answer["results"]
    assert result["result"] == "created", result
    return dict(result)


def until(holds: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def penstock(server: RunningServer, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli", *words]
    return subprocess.run(command, env=server.environ, input=stdin, capture_output=True, text=True, timeout=PATIENCE)


def test_a_workload_runs_and_can_be_entered(server: RunningServer, hosts: Hosts) -> None:
    made = applied(server, WORKLOAD)
    until(lambda: server.request("GET", f"/v1/workloads/{made['id']}")[1]["state"] == "RUNNING")
    entered = penstock(server, "exec", "greeter", "--", "sh", "-c", "cat /proc/1/comm; exit 3")
    assert (entered.returncode, entered.stdout) == (3, "sh\n")
    shell = penstock(server, "shell", "wk", "greeter", stdin="echo in; exit 4\n")
    assert (shell.returncode, shell.stdout) == (4, "in\n")
    [container] = hosts.hosts[0].jobs()
    shown = "{{.HostConfig.Privileged}} {{.HostConfig.NetworkMode}}"
    privileged, network = hosts.hosts[0].docker("inspect", "-f", shown, container).split()
    assert privileged == "false"
    assert network not in ("host", "bridge", "default")


def test_what_runs_is_shown_with_its_container_and_read_back_as_it_was_written(
    server: RunningServer, hosts: Hosts
) -> None:
    host, _ = hosts.hosts
    made = applied(server, WORKLOAD)
    until(lambda: server.request("GET", f"/v1/workloads/{made['id']}")[1]["state"] == "RUNNING")
    [container] = host.jobs("--no-trunc")
    [row] = penstock(server, "get", "wk", "greeter").stdout.splitlines()[2:]
    assert f" lab-1  {container[:4]}  true    RUNNING " in row
    described = penstock(server, "describe", "wk", "greeter").stdout
    assert f" {container[:12]}\n" in described
    assert re.search(r"^Placed On: +lab-1$", described, re.MULTILINE)
    [node] = items(server, "/v1/nodes")
    assert node["version"] == host.docker("version", "--format", "{{.Server.Version}}").strip()
    for kind in ("wk", "node"):
        again = penstock(server, "apply", "-f", "-", stdin=penstock(server, "get", kind, "-o", "yaml").stdout)
        assert " not changed" in again.stdout, again


def test_each_node_says_why_a_workload_waits(server: RunningServer, hosts: Hosts) -> None:
    _, second = hosts.hosts
    closed = NODE.format(name="lab-2", address=second.unix).replace("spec: {", "spec: {maintenance: true, ")
    applied(server, closed)
    until(lambda: all(node["last_seen"] for node in items(server, "/v1/nodes")))
    [cpus] = [node["cpus"] for node in items(server, "/v1/nodes") if node["name"] == "lab-1"]
    whole = WORKLOAD.replace("product_name: pwm.all", f"count: {cpus}")
    takes = applied(server, whole.replace("greeter", "takes-all"))
    until(lambda: server.request("GET", f"/v1/workloads/{takes['id']}")[1]["state"] == "RUNNING")
    applied(server, whole)
    shown = penstock(server, "explain", "wk", "greeter").stdout
    nodes = {line.split()[0]: line.split(maxsplit=2)[1:] for line in shown.partition("NODE")[2].splitlines()[1:]}
    assert nodes["lab-1"] == ["no", f"has 0 of {cpus} CPUs free, needs {cpus}"], shown
    assert nodes["lab-2"][1].startswith("is in maintenance: what runs there goes on, nothing new comes"), shown


def test_a_volume_outlives_the_jobs_that_write_it(server: RunningServer) -> None:
    assert server.request("POST", "/v1/volumes", {"name": "kept", "size": "1Gi"})[0] == 201
    for count in ("1\n", "2\n"):
        job = server.ended(server.submit(TASK)["id"])
        assert (job["state"], job["exit_code"]) == ("EXITED", 0), job
        assert server.request("GET", f"/v1/workloads/{job['id']}/logs")[1] == count


def test_a_server_that_is_killed_finds_its_container_again(place: Path, server: RunningServer, hosts: Hosts) -> None:
    made = applied(server, WORKLOAD)
    until(lambda: server.request("GET", f"/v1/workloads/{made['id']}")[1]["state"] == "RUNNING")
    server.kill()
    again = start_server(place, server.environ)
    until(lambda: again.request("GET", f"/v1/workloads/{made['id']}")[1]["state"] == "RUNNING")
    ours = f"label=penstock.dev/workload={made['id']}"
    assert len(hosts.hosts[0].docker("ps", "-aq", "--filter", ours).split()) == 1
    again.request("POST", f"/v1/workloads/{made['id']}/stop")
    assert again.ended(made["id"])["state"] == "STOPPED"
    leave_nothing(again, hosts.hosts[0])


@pytest.mark.parametrize("kind", ["Workload", "task"])
def test_a_server_that_was_killed_leaves_no_program_that_was_started_through_it(
    place: Path, server: RunningServer, hosts: Hosts, kind: str
) -> None:
    """What such a program has left in the background is a part of the job and stays."""
    host, _ = hosts.hosts
    made = applied(server, WORKLOAD) if kind == "Workload" else server.submit(SLEEPS)
    until(lambda: server.request("GET", f"/v1/workloads/{made['id']}")[1]["state"] == "RUNNING")
    [container] = host.jobs()
    penstock(server, "exec", made["id"], "--", "sh", "-c", "sleep 598 </dev/null >/dev/null 2>&1 &")
    line = [sys.executable, "-m", "penstock.cli", "exec", made["id"], "--", "sh", "-c", "echo in; sleep 599"]
    with subprocess.Popen(line, env=server.environ, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"in\n"
        server.kill()
        assert program.wait(PATIENCE) == 125
    assert "sleep 599" in host.docker("top", container)
    again = start_server(place, server.environ)
    until(lambda: "sleep 599" not in host.docker("top", container))
    assert "sleep 598" in host.docker("top", container)
    assert again.request("GET", f"/v1/workloads/{made['id']}")[1]["state"] == "RUNNING"
    leave_nothing(again, host)


@pytest.mark.parametrize("words", [("echo", "a  b", "$HOME"), ("true",)], ids=" ".join)
def test_the_words_of_a_command_need_no_shell_in_the_image(server: RunningServer, words: tuple[str, ...]) -> None:
    done = penstock(server, "run", "--image", "busybox:1", "--", *words)
    assert done.returncode == 0, done.stderr
    assert ("a  b $HOME\n" in done.stdout) == (words[0] == "echo")


def test_the_log_of_an_attempt_that_never_had_a_container_ends_after_a_restart(place: Path, hosts: Hosts) -> None:
    first, _ = hosts.hosts
    settings = {"engine": "docker", "pull_patience": "1s"}
    server = start_server(place, **settings)
    applied(server, NODE.format(name="lab-1", address=first.unix))
    until(lambda: any(node["ready"] for node in items(server, "/v1/nodes")))
    made = server.submit("name: rr\nresources: {image_id: '127.0.0.1:1/none:1'}\nrun: [echo, hi]\n")
    assert server.ended(made["id"])["reason"] == "PULL_FAILED"
    assert server.request("POST", f"/v1/workloads/{made['id']}/retry", {})[0] == 200
    until(lambda: server.request("GET", f"/v1/workloads/{made['id']}")[1]["attempt"] == 2)
    server.ended(made["id"])
    server.kill()
    server = start_server(place, **settings)
    told = penstock(server, "logs", "rr")
    assert "[penstock] attempt 2" in told.stdout
    leave_nothing(server, first)
