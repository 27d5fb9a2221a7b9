"""What a job sees and may do on this machine."""

from __future__ import annotations

import io
import os
import shutil
import socket
import tarfile
import tempfile
from pathlib import Path
from typing import Literal

import pytest

from penstock.domain.states import Reason, State
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Conflict, Forbidden
from penstock.settings import Settings
from tests.engines.contract.nodes import opened
from tests.engines.launches import a_launch, a_volume, outcome, the_account

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


async def said(engine: LocalEngine, run: str, **fields: object) -> str:
    report, log = await outcome(engine, a_launch(run, **fields))  # type: ignore[arg-type]
    assert report.units[0].state is State.EXITED, (report.units[0].message, log)
    return log


async def test_it_runs_as_the_account_and_never_as_root(engine: LocalEngine) -> None:
    log = await said(engine, "id -u; id -g; [ -O $HOME ] && echo mine")
    assert log == f"{the_account().uid}\n{the_account().gid}\nmine\n"
    assert the_account().uid != 0
    root = the_account().model_copy(update={"uid": 0, "gid": 0})
    with pytest.raises(Forbidden, match="never runs as root"):
        await engine.start(a_launch("id", account=root))


async def test_it_has_no_capabilities_and_cannot_get_any(engine: LocalEngine) -> None:
    log = await said(engine, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status")
    values = dict(line.split(":\t") for line in log.splitlines())
    assert values.pop("NoNewPrivs") == "1"
    assert {int(value, 16) for value in values.values()} == {0}


async def test_the_system_cannot_be_written(engine: LocalEngine) -> None:
    paths = "/ /usr /etc /bin /opt /sys /run"
    log = await said(engine, f"for p in {paths}; do touch $p/penstock-was-here 2>/dev/null && echo $p; done; true")
    assert log == ""
    assert not Path("/usr/penstock-was-here").exists()


async def test_homes_sockets_and_the_servers_data_are_not_there(engine: LocalEngine, settings: Settings) -> None:
    log = await said(
        engine, f"ls -A /run /home; ls {settings.data_dir} /root /var/run /var/lib 2>&1 | grep -v 'No such'; true"
    )
    assert log.split() == ["/home:", the_account().user, "/run:", "penstock"]


async def test_it_sees_only_its_own_processes(engine: LocalEngine) -> None:
    log = await said(engine, "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done")
    assert "pytest" not in log
    assert len(log.splitlines()) < 6


async def test_its_first_process_names_no_place_of_the_server_and_holds_nothing_to_write(
    engine: LocalEngine, settings: Settings
) -> None:
    script = "tr '\\0' '\\n' < /proc/1/cmdline; for f in /proc/1/fdinfo/5; do cat $f 2>/dev/null; done; true"
    log = await said(engine, script)
    assert "bwrap" in log
    assert str(settings.data_dir) not in log
    flags = [int(line.split()[1], 8) for line in log.splitlines() if line.startswith("flags:")]
    assert all(flag & os.O_ACCMODE == os.O_RDONLY for flag in flags)


async def test_tmp_and_home_are_private_and_gone_afterwards(engine: LocalEngine, settings: Settings) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="penstock-") as outside:
        script = "touch /tmp/x /var/tmp/y ~/z; mkdir -p ~/a/b; chmod 0 ~/a /tmp; ls /var/tmp | wc -l"
        assert await said(engine, f"[ ! -e {outside.name} ]; {script}") == "1\n"
    assert not list(settings.data_dir.glob("runs/*/rank-*"))


async def test_shared_memory_and_a_host_name_work(engine: LocalEngine) -> None:
    program = (
        "from multiprocessing import Lock, shared_memory as m; Lock(); m.SharedMemory(create=True, size=9).unlink()"
    )
    log = await said(engine, f'/usr/bin/python3 -c "{program}" && uname -n')
    assert log == f"{socket.gethostname()}\n"


@pytest.mark.parametrize(
    "path", ["/data", "/usr/datasets/deep", "/bin/tools", "/home", "/etc/models", "/tmp/x y/z", "/opt"]
)
async def test_a_volume_can_be_mounted_at_any_path(engine: LocalEngine, path: str) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    script = f"echo kept > '{path}/file' && cat '{path}/file' && ls /usr/bin/env /etc/passwd && touch ~/ok"
    assert await said(engine, script, mounts={path: volume}) == "kept\n/etc/passwd\n/usr/bin/env\n"


async def test_a_volume_inside_another_is_mounted_there_but_never_through_a_link(engine: LocalEngine) -> None:
    outer, inner = a_volume("outer"), a_volume("inner")
    for volume in (outer, inner):
        await engine.create_volume(volume, the_account())
    mounts = {"/data": outer, "/data/in/side": inner}
    assert await said(engine, "touch /data/in/side/x; ln -s / /data/root; ls /data", mounts=mounts) == "in\nroot\n"
    with pytest.raises(Conflict, match="goes through"):
        await engine.start(a_launch("true", {"/data": outer, "/data/root/etc": inner}))


async def test_a_users_preload_does_not_reach_the_sandbox_itself(engine: LocalEngine) -> None:
    log = await said(engine, "true; echo fine", envs={"LD_PRELOAD": "/tmp/evil.so", "BASH_ENV": "/tmp/evil.sh"})
    assert "evil.so' from LD_PRELOAD cannot be preloaded" in log or log == "fine\n"
    assert log.endswith("fine\n")


# -- workdir -----------------------------------------------------------------------------------------------------


def packed(place: Path, members: dict[str, bytes | str]) -> Path:
    """An archive; text is the target of a link."""
    path = place / "code.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size, entry.mode = len(content), 0o755
                archive.addfile(entry, io.BytesIO(content))
    path.chmod(0o600)
    return path


async def test_code_sent_along_is_each_nodes_own_copy(engine: LocalEngine, place: Path) -> None:
    archive = packed(place, {"go.sh": b"#!/bin/sh\necho went\n", "sub/data": b"x"})
    script = "pwd; ./go.sh; echo more >> sub/data; cat sub/data"
    launch = a_launch(script, nodes=2, workdir="./code", workdir_archive=archive)
    report, log = await outcome(engine, launch)
    assert [unit.exit_code for unit in report.units] == [0, 0]
    assert log == "/workdir\nwent\nxmore\n"


@pytest.mark.parametrize("members", [{"../out": b"x"}, {"link": "/home", "link/../../out": b"x"}])
async def test_an_archive_that_climbs_out_does_not_run(
    engine: LocalEngine, place: Path, members: dict[str, bytes | str]
) -> None:
    launch = a_launch("echo ran", workdir="./code", workdir_archive=packed(place, members))
    report, log = await outcome(engine, launch)
    assert report.units[0].reason is Reason.LAUNCH_FAILED
    assert report.units[0].message == "The workdir could not be unpacked; the log says why."
    assert "ran\n" not in log


@pytest.mark.parametrize("path", ["/workspace/deep", "/tmp/here", "/usr/mine"])
async def test_an_absolute_workdir_is_made_if_it_is_not_there(engine: LocalEngine, path: str) -> None:
    assert await said(engine, "pwd; touch file; ls", workdir=path) == f"{path}\nfile\n"


async def test_a_workdir_that_cannot_be_says_so(engine: LocalEngine) -> None:
    report, _ = await outcome(engine, a_launch("echo ran", workdir="/proc/nothing"))
    assert report.units[0].reason is Reason.LAUNCH_FAILED
    assert report.units[0].message == "The workdir '/proc/nothing' is not there and cannot be made in this job."


# -- other machines ----------------------------------------------------------------------------------------------


@needs_root
async def test_roots_data_may_lie_where_nobody_else_can_look(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    async with opened(Settings(data_dir=closed / "data", gpu_lock_dir=place / "locks")) as engine:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        assert await said(engine, "touch /data/x; ls /data", mounts={"/data": volume}) == "x\n"


@needs_root
async def test_another_account_cannot_mount_what_it_cannot_reach(place: Path) -> None:
    settings = Settings(
        data_dir=place / "data", gpu_lock_dir=place / "locks", mode="system", storage_classes={"x": str(place / "x")}
    )
    (place / "x").mkdir(mode=0o700)
    async with opened(settings) as engine:
        volume = a_volume(storage_class="x")
        account = the_account().model_copy(update={"uid": 54321, "gid": 54321, "user": "ann"})
        await engine.create_volume(volume, account)
        report, _ = await outcome(engine, a_launch("echo ran", {"/data": volume}, account=account))
        assert report.units[0].reason is Reason.LAUNCH_FAILED
        assert "Permission denied" in (report.units[0].message or "")
        assert (report.units[0].message or "").endswith(". Fix: penstock doctor tells more.")


async def test_without_a_sandbox_it_is_a_plain_process_with_its_volumes_in_variables(place: Path) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", sandbox="none", mode="system")
    async with opened(settings) as engine:
        volume = a_volume("my-data")
        await engine.create_volume(volume, the_account())
        script = (
            "(setsid sleep 600 &) ; id -u; echo x > $PENSTOCK_VOLUME_MY_DATA/f; ls $PENSTOCK_VOLUME_MY_DATA; exit 3"
        )
        report, log = await outcome(engine, a_launch(script, {"/data": volume}))
        assert report.units[0].exit_code == 3
        assert log == f"{the_account().uid}\nf\n"


@pytest.mark.parametrize("mode", ["user", "system"])
async def test_without_a_sandbox_home_workdir_and_programs_are_within_reach(
    place: Path, mode: Literal["user", "system"]
) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", sandbox="none", mode=mode)
    async with opened(settings) as engine:
        archive = packed(place, {"go.sh": b"#!/bin/sh\necho went\n"})
        script = "./go.sh; touch ~/x; ls ~; python -c 'print(1)'"
        assert await said(engine, script, workdir="./code", workdir_archive=archive) == "went\nx\n1\n"
