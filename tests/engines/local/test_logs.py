"""Logs that outgrow their limit, disks that fill up, and crowds that follow."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.engines.base import Presence, Run
from penstock.engines.local.engine import LocalEngine
from penstock.engines.shared.logfile import LogFile, cut_name
from penstock.errors import StorageFull
from penstock.settings import Settings
from tests.engines.contract.nodes import opened, processes_with
from tests.engines.launches import a_launch, ended, log_of, outcome, printed, run_of

needs_bwrap = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


@needs_bwrap
async def test_a_log_over_its_limit_keeps_both_ends_and_states_the_gap(place: Path) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", log_limit="64Ki")
    async with opened(settings) as engine:
        launch = a_launch("seq 1 100000")
        _, log = await outcome(engine, launch)
        assert log.startswith("1\n2\n3\n")
        assert log.endswith("\n99999\n100000\n")
        stated = re.search(r"\n\[penstock\] (\d+) bytes not kept: log_limit is 64Ki\n", log)
        assert stated
        whole = sum(len(str(number)) + 1 for number in range(1, 100001))
        assert len(log) - len(stated[0]) + int(stated[1]) == whole
        assert sum(path.stat().st_size for path in settings.data_dir.glob("runs/*/logs/*.log")) <= 64 << 10
        assert await log_of(engine, run_of(launch), tail=2) == b"99999\n100000\n"
        assert await log_of(engine, run_of(launch), tail=10**6) == log.encode()


@needs_bwrap
async def test_a_follower_of_a_flood_gets_the_end_of_it(place: Path) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", log_limit="64Ki")
    async with opened(settings) as engine:
        launch = a_launch("yes | head -c 20000000; echo end")
        following = asyncio.create_task(log_of(engine, run_of(launch), follow=True))
        await engine.start(launch)
        log = await asyncio.wait_for(following, 60)
        assert log.endswith(b"end\n")


@needs_bwrap
async def test_the_limit_stated_is_the_one_the_run_had(place: Path) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", log_limit="64Ki")
    launch = a_launch("seq 1 100000")
    first = LocalEngine(settings)
    await first.open()
    await outcome(first, launch)
    await first.close()
    async with opened(dataclasses.replace(settings, log_limit="256Mi")) as second:
        assert b"not kept: log_limit is 64Ki\n" in await log_of(second, run_of(launch))


@needs_bwrap
async def test_a_line_reaches_a_thousand_followers_while_the_job_goes_on(engine: LocalEngine) -> None:
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await asyncio.gather(*(printed(engine, run_of(launch), "up") for _ in range(1000)))
    assert (await engine.observe(run_of(launch))).presence is Presence.running


@needs_bwrap
async def test_a_follower_of_a_removed_run_is_let_go(engine: LocalEngine) -> None:
    launch = a_launch("echo up; sleep 600")
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    following = asyncio.create_task(log_of(engine, run_of(launch), follow=True))
    await asyncio.sleep(0)
    await engine.remove(run_of(launch))
    assert await asyncio.wait_for(following, 10) == b"up\n"


async def test_a_follower_is_let_go_once_the_end_is_recorded_whenever_the_supervisor_ends(
    engine: LocalEngine, settings: Settings
) -> None:
    run = Run("abcd2345")
    run_dir = settings.data_dir / "runs" / "abcd2345-1"
    (run_dir / "logs").mkdir(parents=True)
    following = asyncio.create_task(log_of(engine, run, follow=True))
    await asyncio.sleep(0)
    (run_dir / "result.json").write_text('{"units": []}')
    await engine.settle(run, 0)
    assert await asyncio.wait_for(following, 10) == b""


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    disk = place / "disk"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size={size} tmpfs {disk}") != 0:
        pytest.skip("nothing can be mounted here")
    try:
        yield disk
    finally:
        os.system(f"umount {disk}")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_full_disk_costs_output_but_not_the_job_and_is_stated(place: Path) -> None:
    with small_disk(place, "64k") as disk:
        log = LogFile(str(disk), 0, 1 << 20)
        log.write(b"kept\n", 1.0)
        (disk / "filler").write_bytes(b"x" * _room(disk))
        for second in range(3):
            log.write(b"y" * 5000, 2.0 + second)
        assert (disk / cut_name(0)).exists()
        (disk / "filler").unlink()
        log.write(b"back\n", 9.0)
        log.close()
        assert not (disk / cut_name(0)).exists()
        text = b"".join(path.read_bytes() for path in sorted(disk.glob("*.log")))
    assert text.startswith(b"kept\n")
    assert re.search(rb"\[penstock\] \d+ bytes of output could not be kept: the disk was full\n", text)
    assert text.endswith(b"back\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_last_of_a_disk_is_left_to_others(place: Path) -> None:
    with small_disk(place, "20m") as disk:
        log = LogFile(str(disk), 0, 1 << 30)
        for second in range(400):
            log.write(b"y" * (1 << 16), float(second))
        left = _room(disk)
        log.close()
    assert 0 < left <= 2 << 20


def _room(disk: Path) -> int:
    about = os.statvfs(disk)
    return about.f_bavail * about.f_frsize


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@needs_bwrap
async def test_on_a_full_disk_a_start_is_refused_with_the_reason_and_can_be_repeated(place: Path) -> None:
    disk = place / "disk"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size=512k,mode=711 tmpfs {disk}") != 0:
        pytest.skip("nothing can be mounted here")
    try:
        async with opened(Settings(data_dir=disk / "data", gpu_lock_dir=place / "locks")) as engine:
            (disk / "filler").write_bytes(b"x" * _room(disk))
            launch = a_launch("echo ran")
            with pytest.raises(StorageFull):
                await engine.start(launch)
            (disk / "filler").unlink()
            report, log = await outcome(engine, launch)
            assert (report.units[0].exit_code, log) == (0, "ran\n")
            running = a_launch("echo up; sleep 600")
            await engine.start(running)
            await printed(engine, run_of(running), "up")
            (disk / "filler").write_bytes(b"x" * _room(disk))
            os.kill(await _payload(running.workload_id), 9)
            report = await ended(engine, run_of(running))
            assert report.units[0].exit_code is not None
            (disk / "filler").unlink()
    finally:
        os.system(f"umount {disk}")


async def _payload(mark: str) -> int:
    """The job's `sleep`, once it is there."""
    while True:
        for pid in processes_with(mark):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep"):
                return pid
        await asyncio.sleep(0.01)
