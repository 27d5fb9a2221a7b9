"""What a Docker host does as a whole: its network, its processes, and what the container that looks may do there."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.machine import read_activity
from penstock.wire import NodeMeasure, ProcessMeasure
from tests.engines.docker.held import HELPER, held
from tests.engines.docker.opening import IMAGE, answering, opened, settings_for
from tests.engines.executing import running, session, told
from tests.engines.launching import run_of
from tests.engines.looking import BUSY
from tests.hosts import denying
from tests.hosts.host import Host
from tests.hosts.lot import BUSYBOX, Hosts
from tests.rig import system

SECONDS = 90
MIB = 1 << 20
BURNS = "import ctypes; ctypes.CDLL(None).prctl(15, b') o\\nd (name', 0, 0, 0)\nwhile True: pass"
SENDS = """
import socket, sys, time
with socket.socket(type=socket.SOCK_DGRAM) as here:
    while True:
        here.sendto(bytes(1400), (sys.argv[1], 9))
        time.sleep(0.001)
"""


@contextmanager
def program(host: Host, name: str, *words: str | Path) -> Iterator[None]:
    """On the host itself, in no container."""
    host.processes.start(name, *words)
    try:
        yield
    finally:
        host.processes.stop(name)


async def measured(engine: DockerEngine, holds: Callable[[NodeMeasure], object], host: str = "host-1") -> NodeMeasure:
    """What the host does, once it is so: a machine may have other things to do for a while."""
    async with asyncio.timeout(SECONDS):
        while True:
            [node] = await engine.activity([host])
            if holds(node):
                return node


def named(node: NodeMeasure, command: str) -> list[ProcessMeasure]:
    return [each for each in node.processes or () if each.command == command]


# -- what is shown -------------------------------------------------------------------------------------------------


async def test_what_goes_over_the_cable_of_a_host_is_shown(engine: DockerEngine, hosts: Hosts) -> None:
    first, second = hosts.hosts
    sends = [sys.executable, "-c", SENDS]
    with program(first, "sends", *sends, second.address), program(second, "answers", *sends, first.address):
        node = await measured(
            engine, lambda node: min(node.received_per_second or 0, node.sent_per_second or 0) > 50_000
        )
    assert node.message is None
    assert node.disk_read_per_second is not None
    assert node.disk_written_per_second is not None


async def test_a_busy_process_of_the_host_is_named_though_it_is_in_no_container(
    engine: DockerEngine, hosts: Hosts
) -> None:
    words = ("setpriv", "--reuid=4242", "--regid=4242", "--clear-groups", sys.executable, "-c", BURNS)
    with program(hosts.hosts[0], "burns", *words):
        node = await measured(engine, lambda node: named(node, ") o\\nd (name"))
    [found] = named(node, ") o\\nd (name")
    assert (found.user, found.workload) == ("4242", None)
    assert found.cpu_percent > 0
    assert found.memory_bytes > MIB
    assert node.processes
    assert len(node.processes) == 5
    assert list(node.processes) == sorted(node.processes, key=lambda each: (-each.cpu_percent, each.pid))
    assert not {"sh", "sleep", "cat", "head", "awk", "busybox"} & {each.command for each in node.processes}


async def test_a_busy_process_of_a_job_names_its_workload_also_one_that_came_later(engine: DockerEngine) -> None:
    burns = ["python3", "-c", BURNS.replace("o\\n", "ne")]
    async with (
        running(engine, BUSY) as launch,
        running(engine) as other,
        session(engine, run_of(other), burns),
    ):
        node = await measured(engine, lambda node: named(node, "bash") and named(node, ") ned (name"))
    assert {each.workload for each in named(node, "bash")} == {launch.workload_id}
    [later] = named(node, ") ned (name")
    assert (later.workload, later.user) == (other.workload_id, "root")


async def test_only_what_is_busy_now_counts(engine: DockerEngine) -> None:
    """`ps` would tell what it has used in all its life."""
    used = "timeout 2 bash -c 'while :; do :; done'; echo up; exec sleep 600"
    async with running(engine, used) as launch:
        [node] = await engine.activity(["host-1"])
    assert sum(each.cpu_percent for each in node.processes or () if each.workload == launch.workload_id) < 5


async def test_an_image_with_other_tools_will_do(hosts: Hosts, tmp_path: Path) -> None:
    settings = settings_for(hosts, tmp_path, docker_helper_image=IMAGE)
    async with opened(settings, hosts.hosts[:1]) as engine:
        await answering(engine)
        [node] = await engine.activity(["host-1"])
    assert node.message is None
    assert node.received_per_second is not None
    assert "dockerd" in {each.command for each in node.processes or ()}


# -- what is not ---------------------------------------------------------------------------------------------------


async def test_an_image_that_lacks_a_tool_shows_less_and_says_which(hosts: Hosts, tmp_path: Path) -> None:
    host = hosts.hosts[0]
    host.docker("run", "--name", "lacking", IMAGE, "rm", "/usr/bin/awk")
    host.docker("commit", "lacking", "lacking:1")
    try:
        async with opened(settings_for(hosts, tmp_path, docker_helper_image="lacking:1"), [host]) as engine:
            await answering(engine)
            [node] = await engine.activity([host.name])
    finally:
        host.docker("rm", "lacking")
        host.docker("rmi", "lacking:1")
    assert node.message == "its network and the processes of others cannot be seen: sh: 1: awk: not found"
    assert (node.received_per_second, node.processes) == (None, ())
    assert node.memory_used_bytes


@pytest.fixture
def alone(own_hosts: Callable[..., Hosts]) -> Hosts:
    """One host that nobody else uses."""
    return own_hosts(number=1)


async def test_a_host_that_refuses_it_shows_less_and_says_why(alone: Hosts, tmp_path: Path) -> None:
    [host] = alone.hosts
    host.processes.start("denying", sys.executable, "-m", "tests.hosts.denying")
    host.configure(authorization_plugins=[denying.NAME])
    host.restart()
    async with opened(settings_for(alone, tmp_path), [host]) as engine:
        await answering(engine)
        async with running(engine, BUSY) as launch:
            node = await measured(engine, lambda node: node.processes and node.processes[0].cpu_percent)
    said = "its network and the processes of others cannot be seen: authorization denied by plugin denying: "
    assert node.message == said + denying.SAID
    assert (node.received_per_second, node.sent_per_second) == (None, None)
    assert {each.workload for each in node.processes or ()} == {launch.workload_id}
    assert node.memory_used_bytes
    assert node.cpu_percent is not None
    assert node.disk_written_per_second is not None


async def test_a_host_that_gives_containers_users_of_their_own_is_seen_as_well(alone: Hosts, tmp_path: Path) -> None:
    [host] = alone.hosts
    for name in ("subuid", "subgid"):
        (host.home / name).write_text("admin:200000:65536\n")
        host.processes.run("mount", "--bind", host.home / name, f"/etc/{name}")
    host.configure(userns_remap="admin:docker")
    host.restart()
    assert "name=userns" in host.docker("info", "--format", "{{.SecurityOptions}}")
    host.load(system.standard()[system.BUSYBOX], BUSYBOX)
    async with opened(settings_for(alone, tmp_path), [host]) as engine:
        await answering(engine)
        [node] = await engine.activity([host.name])
    assert node.message is None
    assert node.received_per_second is not None
    assert {(each.command, each.user) for each in node.processes or ()} >= {("dockerd", "root")}


# -- how it is read ------------------------------------------------------------------------------------------------

LOOK = """\
cpu  1 2 3 4 5 6 7 8 9 9
{at}.00 9.00
 254       0 vda 1 0 {read} 0 1 0 0 0 0 0 0
Inter-|   Receive
  eth0: {received} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
"""
BEFORE, AFTER = LOOK.format(at=7, read=1, received=10), LOOK.format(at=9, read=3, received=50)
FIRST, SECOND = "ab" * 32, "cd" * 32


def test_what_is_shown_is_of_the_seconds_that_passed() -> None:
    found = read_activity(f"0.1 0.2 0.3 1/2 3\nMemTotal: 9 kB\nMemAvailable: 4 kB\n{BEFORE}{AFTER}", 2000)
    assert (found["load"], found["memory_used_bytes"]) == ((0.1, 0.2, 0.3), 5120)
    assert (found["received_per_second"], found["disk_read_per_second"]) == (20, 512)
    assert found["processes"] == ()


@pytest.mark.parametrize(
    "groups",
    [
        f"12:pids:/docker/{FIRST}\n0::/system.slice/containerd.service",
        f"0::/system.slice/docker-{FIRST}.scope",
        f"0::/../{FIRST}",
        f"0::/../docker-{FIRST}.scope/inner",
        f"3:cpu:/docker/{SECOND}/docker/{FIRST}",
    ],
)
def test_whose_a_process_is_stands_in_its_control_group_and_one_that_has_ended_tells_nothing(groups: str) -> None:
    told = f"busy 8 50\nbusy 9 20\nName:\tcpu  1\nUid:\t7\t0\t0\t0\n{groups}\nbusy 10 0\n"
    assert read_activity(f"{BEFORE}{AFTER}{told}", 2000, {FIRST: "mine"})["processes"] == (
        ProcessMeasure(pid=9, user="7", cpu_percent=10.0, memory_bytes=0, command="cpu  1", workload="mine"),
    )
    [stranger] = read_activity(f"{BEFORE}{AFTER}{told}", 2000, {"ef" * 32: "other"})["processes"]
    assert stranger.workload is None


def test_one_that_calls_itself_nothing_is_shown_too() -> None:
    told = "busy 9 20\nName:\t  \nUid:\t7\t0\t0\t0\n"
    [found] = read_activity(f"{BEFORE}{AFTER}{told}", 2000)["processes"]
    assert (found.pid, found.user, found.command.strip()) == (9, "7", "")


# -- what the one that looks may do --------------------------------------------------------------------------------


async def test_the_container_that_looks_may_do_nothing_else(engine: DockerEngine, hosts: Hosts) -> None:
    host = hosts.hosts[0]
    tries = ("kill -0 1", "kill -0 $(pidof dockerd)", "cat /proc/1/environ", "ls /proc/1/root/", "touch /x")
    async with held(host, lambda: engine.activity([host.name])) as (found, _):
        [about] = json.loads(host.docker("inspect", found))
        said = {each: host.docker("exec", found, "sh", "-c", f"{each} 2>&1; true") for each in tries}
        seen = host.docker("exec", found, "sh", "-c", "id -u; id -g; grep ^Cap /proc/self/status; ls /sys/class/net")
    config = about["HostConfig"]
    assert (config["PidMode"], config["NetworkMode"], config["Privileged"]) == ("host", "none", False)
    assert (config["CapDrop"], config["CapAdd"] or []) == (["ALL"], [])
    assert "no-new-privileges" in config["SecurityOpt"]
    assert (config["ReadonlyRootfs"], about["Mounts"], about["Config"]["User"]) == (True, [], "65533:65533")
    denied = ("Operation not permitted", "Permission denied", "Read-only file system")
    assert all(text.strip().endswith(denied) for text in said.values()), said
    uid, gid, *capabilities, network = seen.split("\n")[:-1]
    assert (uid, gid, network) == ("65533", "65533", "lo")
    assert {line.split()[1] for line in capabilities} == {"0" * 16}
    assert host.docker("ps", "--all", "--quiet", "--filter", HELPER) == ""


async def test_a_job_sees_nothing_of_the_host_all_the_same(engine: DockerEngine, hosts: Hosts) -> None:
    host = hosts.hosts[0]
    async with running(engine) as launch:
        [about] = json.loads(host.docker("inspect", *host.docker("ps", "--quiet").split()))
        _, seen, _ = await told(engine, run_of(launch), "cat /proc/[0-9]*/comm")
    config = about["HostConfig"]
    assert (config["PidMode"], config["UsernsMode"], config["IpcMode"]) == ("", "", "private")
    assert config["NetworkMode"] != "host"
    assert "sleep" in seen.split()
    assert "dockerd" not in seen
