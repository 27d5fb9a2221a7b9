"""Directories that somebody exchanges while a sandbox is made of them."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.users import Account
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Medium, Scratch
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.spec.sandbox import can_bind_by_descriptor
from penstock.errors import Conflict
from penstock.settings import Settings
from tests.engines.contract.nodes import opened
from tests.engines.launches import a_launch, a_volume, an_array, log_of, outcome, printed, run_of, the_account

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
ANN = Account(uid=54321, gid=54321, user="ann")
ACCOUNTS = [the_account(), ANN] if os.geteuid() == 0 else [the_account()]

SWAP = """#!/bin/sh
# What somebody else does at the worst moment: all is checked, and bubblewrap is about to begin.
case "$*" in
--help) {bwrap} --help | grep -v '{without}'; exit ;;
*--args*) if [ -L {place}/link ]; then real=$(cat {place}/real); mv -T $real {place}/away; mv -T {place}/link $real; fi
esac
exec {bwrap} "$@"
"""
EXCHANGE = """
exec python3 - <<'END'
import ctypes
libc = ctypes.CDLL(None)
print("exchanging", flush=True)
while True:
    libc.syscall(316, -100, b"/a/b", -100, b"/a/link", 2)
    libc.usleep(2000)
END
"""


class Exchanged(NamedTuple):
    real: Path
    by_descriptor: bool


def settings_in(place: Path) -> Settings:
    (place / "zfs").mkdir(mode=0o711)
    storages = {"zfs": str(place / "zfs")}
    locks = place / "locks"
    return Settings(data_dir=place / "data", mode="system", storage_classes=storages, gpu_lock_dir=locks)


def on_storage(path: str) -> Volume:
    return a_volume(path.replace("/", "-"), storage="zfs", storage_class="zfs", sub_path=path)


def secret_in(place: Path) -> Path:
    """The home of whoever runs the server."""
    (place / "home").mkdir()
    (place / "home" / "secret").write_text("hunter2")
    return place / "home"


@pytest.fixture(params=["bind-fd", "nothing"], ids=["by path", "by descriptor"])
def exchanged(place: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Exchanged:
    """Just before bubblewrap looks, `link` is put in the place of the directory that the file `real` names. An older
    bubblewrap can only bind by path."""
    bwrap = str(shutil.which("bwrap"))
    by_descriptor = request.param == "nothing"
    if by_descriptor and not can_bind_by_descriptor(bwrap):
        pytest.skip("this bubblewrap cannot bind by descriptor")
    (place / "bin").mkdir()
    program = place / "bin" / "bwrap"
    program.write_text(SWAP.format(place=place, bwrap=bwrap, without=request.param))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")
    place.chmod(0o777)
    return Exchanged(place / "real", by_descriptor)


async def make(engine: LocalEngine, account: Account, *volumes: Volume) -> None:
    for volume in volumes:
        await engine.create_volume(volume, account)


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.user)
async def test_a_volume_that_is_exchanged_for_a_link_is_not_followed_out_of_the_sandbox(
    place: Path, exchanged: Exchanged, account: Account
) -> None:
    async with opened(settings_in(place)) as engine:
        outer, inner = on_storage("a"), on_storage("a/b")
        await make(engine, account, outer, inner)
        exchanged.real.write_text(f"{place}/zfs/ann/a/b")
        (place / "zfs" / "ann" / "a").chmod(0o777)
        (place / "link").symlink_to(secret_in(place))
        script = "cat /data/secret; touch /data/written"
        report, log = await outcome(engine, a_launch(script, {"/data": inner}, account=account))
        assert (place / "zfs" / "ann" / "a" / "b").is_symlink()
        assert "hunter2" not in log
        assert not (place / "home" / "written").exists()
        if exchanged.by_descriptor:  # what was opened is what is mounted, wherever it lies by now
            assert (place / "away" / "written").exists()
        else:
            said = "What lies at /data in the sandbox is not what was to be mounted there: it was exchanged meanwhile."
            assert (report.units[0].reason, report.units[0].message) == (Reason.LAUNCH_FAILED, said)


@pytest.mark.parametrize("real", ["venv", "prefix/bin"])
async def test_an_environment_that_is_exchanged_for_a_link_does_not_bring_what_that_leads_to(
    place: Path, exchanged: Exchanged, real: str
) -> None:
    (place / "prefix" / "bin").mkdir(parents=True)
    (place / "prefix" / "bin" / "python3").symlink_to("/usr/bin/python3")
    (place / "venv" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (place / "venv" / "pyvenv.cfg").write_text(f"home = {place}/prefix/bin\n")
    async with opened(settings_in(place)) as engine:
        exchanged.real.write_text(f"{place}/{real}")
        (place / "link").symlink_to(secret_in(place))
        report, log = await outcome(engine, a_launch(f"cat {place}/{real}/secret; echo ran", venv=place / "venv"))
        assert (place / real).is_symlink()
        assert "hunter2" not in log
        assert (report.units[0].reason is Reason.LAUNCH_FAILED) is not exchanged.by_descriptor


async def test_an_index_that_starts_later_is_not_led_out_of_the_sandbox_either(place: Path) -> None:
    async with opened(settings_in(place)) as engine:
        volume, home = on_storage("a/b"), secret_in(place)
        await make(engine, the_account(), volume)
        path = place / "zfs" / "ann" / "a" / "b"
        script = (
            "cat /data/secret; echo up; [ $JOB_COMPLETION_INDEX != 0 ] || while [ ! -e /data/go ]; do sleep .05; done"
        )
        launch = an_array(script, 2, 1, {"/data": volume})
        await engine.start(launch)
        await printed(engine, run_of(launch), "up", 0)
        path.rename(path.with_name("away"))
        path.symlink_to(home)
        (path.with_name("away") / "go").touch()
        report, _ = await outcome(engine, launch)
        assert [unit.state for unit in report.units] == [State.EXITED, State.CRASHED]
        assert report.units[1].reason is Reason.LAUNCH_FAILED
        assert b"hunter2" not in await log_of(engine, run_of(launch), 1)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of the system call is that of x86_64")
@pytest.mark.usefixtures("exchanged")
async def test_a_job_that_exchanges_a_directory_all_the_time_gets_no_other_job_out_of_its_sandbox(place: Path) -> None:
    async with opened(settings_in(place)) as engine:
        outer, inner, account = on_storage("a"), on_storage("a/b"), the_account()
        await make(engine, account, outer, inner)
        secret_in(place)
        (place / "zfs" / "ann" / "a" / "link").symlink_to(place / "home")
        attack = a_launch(EXCHANGE, {"/a": outer}, account=account)
        await engine.start(attack)
        await printed(engine, run_of(attack), "exchanging")
        for _ in range(15):
            launch = a_launch("cat /data/secret", {"/data": inner}, account=account)
            try:
                _, log = await outcome(engine, launch)
            except Conflict as error:
                assert "leads through a link" in error.message  # noqa: PT017
            else:
                assert "hunter2" not in log
        await engine.stop(run_of(attack), 0)


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.user)
async def test_nothing_is_made_or_mounted_through_a_link_that_took_the_place_of_a_mount_point(
    place: Path, exchanged: Exchanged, account: Account
) -> None:
    async with opened(settings_in(place)) as engine:
        outer, inner = on_storage("outer"), on_storage("inner")
        await make(engine, account, outer, inner)
        target = place / "target"
        target.mkdir(mode=0o777)
        target.chmod(0o777)
        exchanged.real.write_text(f"{place}/zfs/ann/outer/in")
        (place / "link").symlink_to(f"/oldroot{target}")
        launch = a_launch("echo ran", {"/data": outer, "/data/in/made": inner}, account=account)
        (place / "zfs" / "ann" / "outer").chmod(0o777)
        report, log = await outcome(engine, launch)
        assert (place / "zfs" / "ann" / "outer" / "in").is_symlink()
        assert list(target.iterdir()) == []
        assert report.units[0].reason is Reason.LAUNCH_FAILED
        assert "/data/in/made" in (report.units[0].message or "")
        assert "ran" not in log


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.user)
async def test_nested_and_equal_directories_and_mounts_inside_volumes_work(place: Path, account: Account) -> None:
    async with opened(settings_in(place)) as engine:
        outer, inner, other = on_storage("a"), on_storage("a/b"), on_storage("c")
        await make(engine, account, outer, inner, other)
        mounts = {"/one": outer, "/two": inner, "/three": outer, "/one/x/y": other, "/one/x/y/z": inner}
        scratch = (Scratch(path="/one/ram", medium=Medium.memory), Scratch(path="/one/disk"))
        script = (
            "echo 1 > /two/file; cat /one/b/file /three/b/file /one/x/y/z/file; touch /one/ram/r /one/disk/d;"
            "touch /one/x/y/k; ls /three/ram /three/disk /three/x/y; stat -c %u /one/x /one/x/y /one/disk"
        )
        report, log = await outcome(engine, a_launch(script, mounts, scratch=scratch, account=account))
        assert log.startswith("1\n1\n1\n/three/disk:\n\n/three/ram:\n\n/three/x/y:\n"), log
        assert report.units[0].state is State.EXITED, report.units[0].message
        assert sorted(path.name for path in (place / "zfs" / "ann" / "c").iterdir()) == ["k", "z"]


async def test_volumes_of_many_jobs_at_once_are_each_their_own(place: Path) -> None:
    async with opened(settings_in(place)) as engine:
        volumes = [on_storage(f"v{number}") for number in range(4)]
        await make(engine, the_account(), *volumes)
        for number, volume in enumerate(volumes):
            (place / "zfs" / "ann" / f"v{number}" / "name").write_text(volume.name)
        launches = [a_launch("cat /data/name", {"/data": volume}) for volume in volumes]
        found = await asyncio.gather(*(outcome(engine, launch) for launch in launches))
        assert [log for _, log in found] == [volume.name for volume in volumes]
