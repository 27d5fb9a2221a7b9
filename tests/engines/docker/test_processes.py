"""What each process of a job uses now, whatever it calls itself, and what the container that looks may do there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.engines.base import Presence, Run, Terminal
from penstock.engines.docker import processes
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.processes import read_used
from penstock.errors import Conflict
from penstock.wire import Measure, ProcessMeasure
from tests.engines.docker.held import HELPER, held
from tests.engines.docker.opening import IMAGE, answering, left_behind, opened, settings_for
from tests.engines.executing import running, session, told
from tests.engines.launching import a_launch, log_of, outcome, printed, run_of
from tests.hosts.host import Host
from tests.hosts.lot import BUSYBOX, Hosts

SECONDS = 90
MIB = 1 << 20
WHOLE_LIFE = "what its processes use is over their whole life: "
WAS_BUSY = """python3 -c "
import time
until = time.monotonic() + 2
while time.monotonic() < until: pass
print('up', flush=True)
time.sleep(600)"
"""
ODD_NAME = """
import ctypes, os
os.setuid(4242)
ctypes.CDLL(None).prctl(15, b') Z 1\\nbusy 1 9', 0, 0, 0)
print('up', flush=True)
while True: pass"""
ODD_WORDS = "a\nbusy 1 999999\nName:\tmine\nUid:\t0\nall 7\nwords /proc/1\n 41 42\n9.99 9.99\ncpu  1 2"
ODD = f"""
(exec -a '{ODD_WORDS}' sleep 601) &
(exec -a '' cat) < <(sleep 602) &
exec python3 -c "$ODD_NAME"
"""
HOLDS = 'sleep 600 & exec python3 -c "$HOLDS"'
HOLDS_ALL = """
import os, signal
print('up', flush=True)
held = {1, os.getpid()}
while True:
    for pid in {int(each) for each in os.listdir('/proc') if each.isdecimal()} - held:
        try:
            if open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1] == '0':
                os.kill(pid, signal.SIGSTOP)
                print('held', flush=True)
        except OSError:
            pass
"""
"""Holds whatever comes from outside, before it has begun."""


async def seen(engine: DockerEngine, run: Run, holds: Callable[[Measure], object]) -> Measure:
    """What it uses, once it is so: a machine may have other things to do for a while."""
    async with asyncio.timeout(SECONDS):
        while not holds(found := await engine.top(run, 0)):
            pass
    return found


def named(found: Measure, text: str) -> list[ProcessMeasure]:
    return [each for each in found.processes if text in each.command]


# -- what is shown -------------------------------------------------------------------------------------------------


async def test_one_that_was_busy_is_not_any_more(engine: DockerEngine) -> None:
    async with running(engine, WAS_BUSY) as launch:
        found = await engine.top(run_of(launch), 0)
    assert found.message is None
    assert [each for each in found.processes if each.cpu_percent > 10] == []
    assert named(found, "python3 -c")


async def test_one_that_is_busy_has_the_number_and_the_user_that_it_has_inside(engine: DockerEngine) -> None:
    async with running(engine, "(exec yes >/dev/null) & echo pid $! pid; echo up; sleep 600") as launch:
        found = await seen(engine, run_of(launch), lambda found: found.processes[0].cpu_percent > 10)
        said = re.search(rb"pid (\d+) pid", await log_of(engine, run_of(launch)))
    busiest = found.processes[0]
    assert said
    assert (busiest.command, busiest.user, busiest.pid) == ("yes", "root", int(said[1]))
    assert busiest.cpu_percent < 200
    assert found.message is None
    assert not [each for each in found.processes if re.match(r"(awk|od|head|cat) ", each.command)]


async def test_programs_beside_the_job_are_shown_too(engine: DockerEngine) -> None:
    size = Terminal(columns=80, rows=24)
    async with (
        running(engine, terminal=True) as launch,
        session(engine, run_of(launch), ["sleep", "601"]),
        session(engine, run_of(launch), ["sleep", "602"], terminal=size),
    ):
        found = await seen(engine, run_of(launch), lambda found: len(named(found, "sleep 60")) == 3)
    assert sorted(each.command for each in named(found, "sleep 60")) == ["sleep 600", "sleep 601", "sleep 602"]
    assert found.message is None


async def test_an_image_needs_nothing_for_it(engine: DockerEngine) -> None:
    run = ("sh", "-c", "cp /bin/busybox /sleep; rm -r /bin; echo up; exec /sleep 600")
    async with running(engine, run, resources={"image": BUSYBOX}) as launch:
        found = await engine.top(run_of(launch), 0)
    assert [(each.pid, each.command) for each in found.processes] == [(1, "/sleep 600")]
    assert found.message is None


async def test_of_many_the_busiest_are_shown_and_of_those_alike_the_largest(engine: DockerEngine) -> None:
    large = "python3 -c 'import time; time.sleep(600)'"
    run = f"for i in {{1..500}}; do sleep {'600'.zfill(400)} & done; (exec yes >/dev/null) & {large} & echo up; wait"
    async with running(engine, run) as launch:
        found = await seen(engine, run_of(launch), lambda found: found.processes[0].cpu_percent > 0)
    assert len(found.processes) == 200
    assert re.fullmatch(r"50\d processes, of which the busiest are shown", found.message or "")
    assert found.processes[0].command == "yes"
    assert named(found, "python3 -c")
    assert found.processes[-1].command == f"sleep {'600'.zfill(400)}"[:300]


async def test_whatever_processes_call_themselves_each_is_shown_as_it_is(engine: DockerEngine) -> None:
    async with running(engine, ODD, envs={"ODD_NAME": ODD_NAME}) as launch:
        found = await seen(engine, run_of(launch), lambda found: found.processes[0].cpu_percent > 10)
        _, inside, _ = await told(engine, run_of(launch), "echo /proc/[0-9]*")
    assert found.message is None
    assert (found.processes[0].user, found.processes[0].command) == ("4242", f"python3 -c {ODD_NAME}".strip())
    commands = [each.command for each in found.processes]
    assert {f"{ODD_WORDS} 601", "[cat]", "sleep 602"} <= set(commands)
    assert {f"/proc/{each.pid}" for each in found.processes} <= set(inside.split())
    assert len({each.pid for each in found.processes}) == len(commands)


async def test_an_image_with_other_tools_will_do(hosts: Hosts, tmp_path: Path) -> None:
    async with opened(settings_for(hosts, tmp_path, docker_helper_image=IMAGE), hosts.hosts[:1]) as engine:
        await answering(engine)
        async with running(engine, ODD, envs={"ODD_NAME": ODD_NAME}) as launch:
            found = await engine.top(run_of(launch), 0)
    assert found.message is None
    assert {f"{ODD_WORDS} 601", "[cat]", "sleep 602"} <= {each.command for each in found.processes}


# -- what is not ---------------------------------------------------------------------------------------------------


async def none_looks(host: Host) -> None:
    """Return once nothing is left of those that looked."""
    async with asyncio.timeout(SECONDS):
        while host.docker("ps", "--all", "--quiet", "--filter", HELPER):
            await asyncio.sleep(0.1)


async def test_a_job_that_ends_who_looks_is_shown_as_docker_sees_it(engine: DockerEngine, hosts: Hosts) -> None:
    async with running(engine, "sleep 600 & echo up; while :; do pkill -KILL -u 65533; sleep 0.02; done") as launch:
        found = await engine.top(run_of(launch), 0)
        await none_looks(hosts.hosts[0])
    assert (found.message or "").startswith(WHOLE_LIFE)
    assert named(found, "sleep 600")


async def test_a_job_that_holds_who_looks_holds_one_and_nothing_waits_for_it(
    engine: DockerEngine, hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 4.0)
    host = hosts.hosts[0]
    async with running(engine, HOLDS, envs={"HOLDS": HOLDS_ALL}) as launch:
        looks = [asyncio.create_task(engine.top(run_of(launch), 0)) for _ in range(3)]
        await printed(engine, run_of(launch), "held")
        async with asyncio.timeout(20):
            assert (await outcome(engine, a_launch("echo hello")))[1] == "hello\n"
            async with left_behind(settings_for(hosts, tmp_path / "another"), host) as another:
                await answering(another)
                assert (await another.observe(run_of(launch))).presence is Presence.running
        for found in await asyncio.gather(*looks):
            assert found.message == f"{WHOLE_LIFE}they could not be read within 4 seconds"
            assert named(found, "sleep 600")
        assert len(host.docker("ps", "--all", "--quiet", "--filter", HELPER).split()) == 1
    await none_looks(host)


async def test_an_image_that_lacks_a_tool_tells_which(hosts: Hosts, tmp_path: Path) -> None:
    host = hosts.hosts[0]
    host.docker("run", "--name", "lacking", IMAGE, "rm", "/usr/bin/od")
    host.docker("commit", "lacking", "lacking:1")
    try:
        async with opened(settings_for(hosts, tmp_path, docker_helper_image="lacking:1"), [host]) as engine:
            await answering(engine)
            async with running(engine) as launch:
                found = await engine.top(run_of(launch), 0)
    finally:
        host.docker("rm", "lacking")
        host.docker("rmi", "lacking:1")
    assert found.message == f"{WHOLE_LIFE}sh: 1: od: not found"
    assert [each.user for each in named(found, "sleep 600")] == ["root"]


async def test_one_that_ends_meanwhile_has_just_ended(engine: DockerEngine, hosts: Hosts) -> None:
    host = hosts.hosts[0]
    async with running(engine) as launch, held(host, lambda: engine.top(run_of(launch), 0)) as (_, look):
        host.docker("kill", *host.jobs())
        with pytest.raises(Conflict, match="It has just ended"):
            await look
    await none_looks(host)


# -- what the one that looks may do --------------------------------------------------------------------------------


async def test_the_container_that_looks_may_do_nothing_else(engine: DockerEngine, hosts: Hosts) -> None:
    host = hosts.hosts[0]
    tries = ("kill -0 1", "cat /proc/1/environ", "ls /proc/1/root/", "touch /x")
    async with running(engine) as launch:
        [job] = host.jobs("--no-trunc")
        async with held(host, lambda: engine.top(run_of(launch), 0)) as (found, _):
            [about] = json.loads(host.docker("inspect", found))
            said = {each: host.docker("exec", found, "sh", "-c", f"{each} 2>&1; true") for each in tries}
            status = host.docker("exec", found, "sh", "-c", "id -u; id -g; grep ^Cap /proc/self/status")
            networks = host.docker("exec", found, "ls", "/sys/class/net")
    config = about["HostConfig"]
    assert (config["PidMode"], config["NetworkMode"], config["Privileged"]) == (f"container:{job}", "none", False)
    assert (config["CapDrop"], config["CapAdd"] or [], config["ReadonlyRootfs"]) == (["ALL"], [], True)
    assert (config["Memory"], config["NanoCpus"], about["Mounts"]) == (64 * MIB, 10**9, [])
    assert "no-new-privileges" in config["SecurityOpt"]
    denied = ("Operation not permitted", "Permission denied", "Read-only file system")
    assert all(text.strip().endswith(denied) for text in said.values()), said
    uid, gid, *capabilities = status.split("\n")[:-1]
    assert (uid, gid, networks.split()) == ("65533", "65533", ["lo"])
    assert {line.split()[1] for line in capabilities} == {"0" * 16}


# -- how it is read ------------------------------------------------------------------------------------------------

LOOKED = """\
cpu  1 2 3
7.50 9.00
cpu  1 2 3
9.50 9.00
busy 8 50
busy 9 20
Name:\tx
Uid:\t7\t0\t0\t0
VmRSS:\t  12 kB
busy 10 20
Name:\tkept
Uid:\t0\t0\t0\t0
all 1201
words /proc/8
words /proc/9
 c3 a4 00 0a 62 00 c3
words /proc/10
"""


def test_what_is_shown_is_of_the_seconds_that_passed() -> None:
    assert read_used(LOOKED) == (
        (
            ProcessMeasure(pid=9, user="7", cpu_percent=10.0, memory_bytes=12 << 10, command="\u00e4 \nb"),
            ProcessMeasure(pid=10, user="root", cpu_percent=10.0, memory_bytes=0, command="[kept]"),
        ),
        "1,201 processes, of which the busiest are shown",
    )


@pytest.mark.parametrize(
    "text",
    [
        LOOKED.replace("busy 9 20", "busy 9 2" + "0" * 400),
        LOOKED.replace("busy 9 20", "busy 9" + "9" * 5000 + " 20"),
        LOOKED.replace("Uid:\t7", "Uid:\t"),
    ],
)
def test_what_cannot_be_is_left_out(text: str) -> None:
    assert [each.pid for each in read_used(text).processes] == [10]


@pytest.mark.parametrize(
    "text",
    [
        "",
        LOOKED.replace("9.50 ", ""),
        LOOKED.replace("all 1201\n", ""),
        LOOKED.replace("c3 a4", "c3 zz"),
        LOOKED.replace("9.50 ", "9" * 400 + ".50 "),
    ],
)
def test_what_somebody_else_has_written_is_not_believed(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whichever it is
        read_used(text)
