"""Scratch and limits on the disk, as this machine has them."""

from __future__ import annotations

import json
import marshal
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Medium, Mount, Resources, Scratch, Spec
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.supervisor.disk import amount, exceeded
from penstock.settings import Settings
from tests.engines.contract.nodes import opened
from tests.engines.launches import a_launch, a_volume, an_array, ended, outcome, printed, run_of, the_account

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
MEBIBYTE = 1 << 20
SCRATCH = (Scratch(path="/scratch", size_bytes=4 * MEBIBYTE),)
FILL = "dd if=/dev/zero of=/scratch/file bs=1M count=12 2>/dev/null"


@pytest.fixture
def settings(place: Path) -> Settings:
    return Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", disk_scan="1s")


@pytest.fixture
async def bare(place: Path) -> AsyncIterator[LocalEngine]:
    """Without a sandbox."""
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", sandbox="none", disk_scan="1s")
    async with opened(settings) as engine:
        yield engine


# -- where it is -------------------------------------------------------------------------------------------------


async def test_scratch_and_volumes_are_mounted_inside_each_other(engine: LocalEngine) -> None:
    outer, inner = a_volume("outer"), a_volume("inner")
    for volume in (outer, inner):
        await engine.create_volume(volume, the_account())
    scratch = (Scratch(path="/data/deep/scratch"), Scratch(path="/data/ram", medium=Medium.memory))
    mounts = {"/data": outer, "/data/deep/scratch/kept": inner}
    run = "touch /data/x /data/ram/y /data/deep/scratch/z /data/deep/scratch/kept/k; find /data | sort"
    _, log = await outcome(engine, a_launch(run, mounts, scratch=scratch))
    places = ["", "/deep", "/deep/scratch", "/deep/scratch/kept", "/deep/scratch/kept/k", "/deep/scratch/z"]
    assert log.split() == [f"/data{path}" for path in (*places, "/ram", "/ram/y", "/x")]
    _, log = await outcome(engine, a_launch("find /outer /inner -type f | sort", {"/outer": outer, "/inner": inner}))
    assert log.split() == ["/inner/k", "/outer/x"]


async def test_scratch_inside_a_volume_goes_through_no_link(engine: LocalEngine) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    await outcome(engine, a_launch("ln -s /etc /data/link", {"/data": volume}))
    with pytest.raises(Exception, match="goes through"):
        await engine.start(a_launch("true", {"/data": volume}, scratch=(Scratch(path="/data/link/x"),)))


@pytest.mark.parametrize("path", ["/home", f"/home/{the_account().user}", "/var/tmp", "/usr/fast", "/opt"])
async def test_scratch_may_cover_what_a_job_has_anyway(engine: LocalEngine, path: str) -> None:
    run = f"touch {path}/mine ~/dot; ls {path}"
    report, log = await outcome(engine, a_launch(run, scratch=(Scratch(path=path),)))
    assert (report.units[0].state, log) == (State.EXITED, "mine\n")


async def test_nothing_of_it_is_left(engine: LocalEngine, settings: Settings) -> None:
    await outcome(engine, a_launch("mkdir -p /scratch/a/b; touch /scratch/a/b/c; chmod 0 /scratch/a", scratch=SCRATCH))
    assert not list(settings.data_dir.glob("runs/*/rank-*"))


async def test_without_a_memory_limit_memory_is_half_the_machines(engine: LocalEngine) -> None:
    scratch = Scratch(path="/ram", medium=Medium.memory)
    run = "stat -f -c '%b %S' /ram /dev/shm"
    _, log = await outcome(engine, a_launch(run, scratch=(scratch,)))
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    for line in log.splitlines():
        blocks, size = map(int, line.split())
        assert abs(blocks * size - half) < half // 10


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_scratch_in_memory_counts_against_the_memory_limit(engine: LocalEngine) -> None:
    if not (await engine.nodes())[0].limits_enforced:
        pytest.skip("control groups cannot be written here")
    scratch = Scratch(path="/ram", medium=Medium.memory)
    asked = Resources(memory_bytes=64 * MEBIBYTE)
    launch = a_launch("dd if=/dev/zero of=/ram/file bs=1M count=100", scratch=(scratch,), resources=asked)
    report, _ = await outcome(engine, launch)
    assert report.units[0].exit_code != 0
    assert (report.units[0].peak_memory_bytes or 0) > 60 * MEBIBYTE


# -- over the limit ----------------------------------------------------------------------------------------------


async def test_the_sentence_says_what_holds_how_much(engine: LocalEngine) -> None:
    report, _ = await outcome(engine, a_launch(f"{FILL}; sleep 600", scratch=SCRATCH))
    assert report.units[0].message == "/scratch holds 12Mi, more than its size 4Mi."


async def test_the_sentence_about_all_of_it_says_where_most_is(engine: LocalEngine) -> None:
    run = "head -c 3M /dev/zero >/tmp/file; head -c 9M /dev/zero >~/file; sleep 600"
    report, _ = await outcome(engine, a_launch(run, resources=Resources(disk_bytes=10 * MEBIBYTE)))
    said = report.units[0].message or ""
    assert said.startswith("It holds 12Mi outside its volumes, more than its disk_size 10Mi; most is in ")
    assert said.endswith(f"/home/{the_account().user}.")


async def test_a_node_over_its_limit_ends_the_others(engine: LocalEngine) -> None:
    launch = a_launch(f"[ $NODE_RANK = 0 ] || {FILL}; sleep 600", scratch=SCRATCH, nodes=2)
    report, _ = await outcome(engine, launch)
    assert [unit.reason for unit in report.units] == [Reason.ANOTHER_NODE_ENDED, Reason.DISK_LIMIT]
    assert report.units[0].message == "Node 1 went over its disk limit; the others were stopped."


async def test_an_index_over_its_limit_leaves_the_others_alone(engine: LocalEngine) -> None:
    launch = an_array(f"[ $JOB_COMPLETION_INDEX = 1 ] && {{ {FILL}; sleep 600; }}; sleep 3", 3, 2, scratch=SCRATCH)
    report, _ = await outcome(engine, launch)
    assert [unit.reason for unit in report.units] == [Reason.FINISHED, Reason.DISK_LIMIT, Reason.FINISHED]


async def test_what_fills_the_disk_has_a_second_to_end(engine: LocalEngine) -> None:
    launch = a_launch(f"trap 'echo full' TERM; {FILL}; while :; do sleep 0.05; done", scratch=SCRATCH, stop_grace=600)
    report, log = await outcome(engine, launch)
    assert (report.units[0].reason, report.units[0].exit_code) == (Reason.DISK_LIMIT, 137)
    assert "full\n" in log


async def test_nothing_is_looked_at_where_no_limit_was_asked_for(engine: LocalEngine, settings: Settings) -> None:
    launch = a_launch("echo up; sleep 600", scratch=(Scratch(path="/scratch"),))
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    plan = marshal.loads((settings.data_dir / "runs" / f"{launch.workload_id}-1" / "plan").read_bytes())
    assert plan["ranks"][0]["disk"] is None


@pytest.mark.parametrize(
    ("size", "unlike", "shown"),
    [(5, "", "5B"), (1536, "", "1.5Ki"), (12 << 20, "", "12Mi"), ((1 << 30) + (40 << 20), "1Gi", "1.04Gi"),
     ((1 << 30) + 1, "1Gi", "1073741825B")],
)  # fmt: skip
def test_an_amount_over_a_limit_never_reads_as_the_limit(size: int, unlike: str, shown: str) -> None:
    assert amount(size, unlike) == shown


def test_the_limit_that_is_exceeded_is_named() -> None:
    folders = [
        {"name": "home", "shown": "/home/x", "limit": None, "limit_text": ""},
        {"name": "scratch-0", "shown": "/s", "limit": 10, "limit_text": "10B"},
    ]
    whole = {"limit": 30, "limit_text": "30B", "folders": folders}
    assert exceeded(whole, [20, 10]) is None
    assert exceeded(whole | {"limit": None}, [2000, 10]) is None
    assert exceeded(whole, [0, 11]) == "/s holds 11B, more than its size 10B."
    said = "It holds 31B outside its volumes, more than its disk_size 30B; most is in /home/x."
    assert exceeded(whole, [21, 10]) == said


# -- without a sandbox -------------------------------------------------------------------------------------------


async def test_without_a_sandbox_a_variable_says_where_scratch_is(bare: LocalEngine) -> None:
    run = 'touch "$PENSTOCK_SCRATCH_MY_FAST_DISK/x"; ls "$PENSTOCK_SCRATCH_MY_FAST_DISK"'
    launch = a_launch(run, scratch=(Scratch(path="/my/fast-disk", size_bytes=4 * MEBIBYTE),))
    assert await bare.notices(launch.spec) == [
        'volumes: with sandbox = "none" nothing is mounted; PENSTOCK_SCRATCH_MY_FAST_DISK says where /my/fast-disk is'
    ]
    assert await bare.refusals(launch.spec) == []
    _, log = await outcome(bare, launch)
    assert log == "x\n"


async def test_without_a_sandbox_the_size_of_scratch_on_disk_still_holds(bare: LocalEngine) -> None:
    run = 'dd if=/dev/zero of="$PENSTOCK_SCRATCH_SCRATCH/file" bs=1M count=12; sleep 600'
    report, _ = await outcome(bare, a_launch(run, scratch=SCRATCH))
    assert report.units[0].message == "/scratch holds 12Mi, more than its size 4Mi."


async def test_without_a_sandbox_there_is_no_scratch_in_memory(bare: LocalEngine) -> None:
    launch = a_launch("true", scratch=(Scratch(path="/ram", medium=Medium.memory),))
    refusal = (await bare.refusals(launch.spec))[0]
    assert refusal.keys == ("volumes", "/ram")
    assert "no scratch in memory" in refusal.message


async def test_without_a_sandbox_shared_memory_is_the_machines(bare: LocalEngine) -> None:
    scratch = Scratch(path="/dev/shm", medium=Medium.memory, size_bytes=64 * MEBIBYTE)
    spec = Spec(run="true", scratch=(scratch,))
    assert await bare.refusals(spec) == []
    assert await bare.notices(spec) == ['volumes: with sandbox = "none", /dev/shm is the machine\'s own']


# -- an ordinary user's server -----------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_ordinary_users_server_has_scratch_and_limits_too(place: Path) -> None:
    home = place / "user"
    home.mkdir(mode=0o711)
    os.chown(home, 54322, 54322)
    command = [sys.executable, "-m", "tests.engines.as_user", "scratch", "54322", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["messages"] == [None, "/scratch holds 9Mi, more than its size 4Mi.", None]
    first, second, third = found["logs"]
    assert (first, third) == ("0\n", "2\n")
    assert "No space left on device" in second
    assert second.endswith(f"\n{1 << 20}\n")


# -- what is said beforehand -------------------------------------------------------------------------------------


async def test_a_queue_is_refused(engine: LocalEngine) -> None:
    refusal = (await engine.refusals(Spec(run="true", queue="gpus")))[0]
    assert refusal.keys == ("queue",)
    assert refusal.message == "is for Kubernetes with Kueue; here work starts as soon as there is room for it"


async def test_what_will_be_otherwise_is_said(engine: LocalEngine, bare: LocalEngine) -> None:
    scratch = Scratch(path="/ram", medium=Medium.memory, size_bytes=2 << 30)
    asked = Resources(image="pytorch:2", memory_bytes=1 << 30, disk_bytes=1 << 30)
    spec = Spec(run="true", resources=asked, scratch=(scratch,))
    image = "image_id: pytorch:2 is not used by this engine; the machine's own programs run"
    assert await engine.notices(spec) == [image, "volumes: /ram holds no more than the memory limit, 1Gi"]
    assert await engine.notices(Spec(run="true", mounts=(Mount(path="/data", volume="v"),))) == []
    said = await bare.notices(Spec(run="true", mounts=(Mount(path="/data", volume="v"),), resources=asked))
    assert "PENSTOCK_VOLUME_<NAME> says where each volume is" in said[1]
    assert said[2] == 'disk_size: with sandbox = "none", /tmp is the machine\'s own and not counted'


async def test_an_old_bubblewrap_refuses_memory_and_leaves_shared_memory_as_it_is(
    engine: LocalEngine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = place / "old"
    old.mkdir(mode=0o755)
    new = shutil.which("bwrap")
    script = f'#!/bin/sh\n[ "$1" != --help ] || exec sh -c "{new} --help | grep -v -e --size"\nexec {new} "$@"\n'
    (old / "bwrap").write_text(script)
    (old / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{old}:{os.environ['PATH']}")
    scratch = Scratch(path="/ram", medium=Medium.memory)
    refusal = (await engine.refusals(Spec(run="true", scratch=(scratch,))))[0]
    assert refusal.keys == ("volumes", "/ram")
    assert refusal.hint == "install bubblewrap 0.7 or later, or leave out medium: memory"
    launch = a_launch("echo x >/dev/shm/y; cat /dev/shm/y", resources=Resources(memory_bytes=64 * MEBIBYTE))
    await engine.start(launch)
    assert (await ended(engine, run_of(launch))).units[0].state is State.EXITED
