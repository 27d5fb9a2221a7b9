"""What a job, or another account on the machine, might try. Each was possible once."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.domain.states import State
from penstock.domain.users import Account
from penstock.domain.workloads import Resources
from penstock.engines.base import Presence
from penstock.engines.local.engine import LocalEngine
from penstock.engines.local.gpus import find_locked, lock_directory_check, lock_gpus
from penstock.engines.shared.logfile import segment_name
from penstock.engines.shared.logstore import TAIL_REACH, LogReader
from penstock.errors import Conflict, Invalid, Unavailable
from penstock.settings import Settings
from tests.engines.contract.exec import running, told
from tests.engines.contract.nodes import opened
from tests.engines.launches import a_launch, a_volume, ended, log_of, outcome, printed, run_of, the_account

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
ANN = Account(uid=54321, gid=54321, user="ann")


@pytest.fixture
def in_opt() -> Iterator[Path]:
    """A directory in a part of the system that every job sees."""
    path = Path(tempfile.mkdtemp(prefix="ps-", dir="/opt"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


_hooks: list[Callable[[str, tuple[object, ...]], None]] = []
sys.addaudithook(lambda event, details, hooks=_hooks: [hook(event, details) for hook in list(hooks)] and None)


@pytest.fixture
def watched() -> Iterator[Callable[[Callable[[str, tuple[object, ...]], None]], None]]:
    """Something done at the very moment Python is about to act: the worst moment for it."""
    yield _hooks.append
    _hooks.clear()


def an_environment(path: Path, home: Path | str) -> Path:
    (path / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (path / "pyvenv.cfg").write_text(f"home = {home}\n")
    return path


# -- what a job sees ---------------------------------------------------------------------------------------------


async def test_an_environment_does_not_bring_the_servers_data_that_lies_beside_its_interpreter(place: Path) -> None:
    local = place / ".local"
    (local / "bin").mkdir(parents=True)
    (local / "bin" / "python3").symlink_to("/usr/bin/python3")
    venv = an_environment(place / "venv", local / "bin")
    async with opened(Settings(data_dir=local / "share" / "penstock", gpu_lock_dir=place / "locks")) as engine:
        _, log = await outcome(engine, a_launch(f"ls -A {local}; ls -A {venv}", venv=venv))
    assert log.split() == ["bin", "lib", "pyvenv.cfg"]


@pytest.mark.parametrize("prefix", ["", "/proc/1/root", "/proc/self/root"])
async def test_an_environment_does_not_bring_what_is_never_shown(engine: LocalEngine, place: Path, prefix: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="ps-") as shared:
        (Path(shared) / "bin").mkdir()
        (Path(shared) / "socket").touch()
        venv = an_environment(place / "venv", f"{prefix or shared}/bin")
        _, log = await outcome(engine, a_launch("ls -A /dev/shm", venv=venv))
    assert log == f"[penstock] the virtual environment {venv} cannot be used; the system's Python is\n"


@pytest.mark.parametrize("part", ["bin", "lib/python3.11"])
async def test_an_interpreter_made_of_links_does_not_bring_where_they_lead(
    engine: LocalEngine, settings: Settings, place: Path, part: str
) -> None:
    prefix = place / "prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    if part == "bin":
        (prefix / "bin").rmdir()
    (prefix / part).symlink_to(settings.data_dir)
    venv = an_environment(place / "venv", prefix / "bin")
    _, log = await outcome(engine, a_launch(f"find {place} -name runs 2>/dev/null; echo end", venv=venv))
    assert log.endswith("the system's Python is\nend\n")


@needs_root
@pytest.mark.parametrize("account", [the_account(), ANN], ids=["roots", "anns"])
async def test_data_in_a_system_directory_is_not_seen(in_opt: Path, place: Path, account: Account) -> None:
    settings = Settings(
        data_dir=in_opt / "data",
        mode="system",
        system_socket=in_opt / "socket" / "s",
        storage_classes={"fast": str(in_opt / "fast"), "closed": str(in_opt / "closed" / "x")},
        gpu_lock_dir=place / "locks",
    )
    (in_opt / "socket").mkdir()
    (in_opt / "closed").mkdir(mode=0o700)
    (in_opt / "closed" / "x").mkdir()
    async with opened(settings) as engine:
        volume, fast = a_volume(), a_volume("fast", storage_class="fast")
        for made in (volume, fast):
            await engine.create_volume(made, account)
        (in_opt / "socket" / "s").touch()
        script = (
            f"cd {in_opt}; ls -A data fast socket; touch data/x socket/x; touch /data/mine; ls /data {in_opt}/data/in"
        )
        mounts = {"/data": volume, f"{in_opt}/data/in": fast}
        _, log = await outcome(engine, a_launch(script, mounts, account=account))
    shown = [line for line in log.splitlines() if "Read-only file system" not in line]
    assert len(log.splitlines()) - len(shown) == 2
    assert shown == ["data:", "in", "", "fast:", "", "socket:", "/data:", "mine", "", f"{in_opt}/data/in:"]


@needs_root
async def test_a_mount_inside_a_closed_directory_does_not_open_it(engine: LocalEngine, in_opt: Path) -> None:
    closed = in_opt / "closed"
    closed.mkdir(mode=0o700)
    (closed / "secret").write_text("hunter2")
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    _, log = await outcome(engine, a_launch(f"cat {closed}/secret", {f"{closed}/new": volume}))
    assert "hunter2" not in log
    assert "Permission denied" in log


@needs_root
@pytest.mark.parametrize("account", [the_account(), ANN], ids=["roots", "anns"])
async def test_a_job_sees_its_own_control_groups_and_no_other_jobs(place: Path, account: Account) -> None:
    async with opened(Settings(data_dir=place / "data", mode="system", gpu_lock_dir=place / "locks")) as engine:
        if not (await engine.nodes())[0].limits_enforced:
            pytest.skip("limits cannot be enforced here")
        look = "ls -R /sys/fs/cgroup; cat /proc/self/cgroup"
        limits = "cd /sys/fs/cgroup; cat memory.max memory/memory.limit_in_bytes 2>/dev/null; touch x y/z 2>/dev/null"
        asked = Resources(memory_bytes=64 << 20)
        script = f"({limits}); {look}; echo up; sleep 600"
        async with running(engine) as other, running(engine, script, account=account, resources=asked) as launch:
            printed_by_run = (await log_of(engine, run_of(launch))).decode()
            _, printed_by_exec, _ = await told(engine, run_of(launch), f"{limits}; {look}")
            for said in (printed_by_run, printed_by_exec):
                assert other.workload_id not in said
                assert "penstock" not in said
                assert said.splitlines()[0] == str(64 << 20)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the system call's number is x86-64's")
async def test_the_servers_keyring_is_not_the_jobs(engine: LocalEngine) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(250, 1, None) < 0 or libc.syscall(248, b"user", b"penstock-test", b"hunter2", 7, -3) < 0:
        pytest.skip("keyrings cannot be used here")
    program = "import ctypes; print(ctypes.CDLL(None).syscall(249, b'user', b'penstock-test', None, 0))"
    _, log = await outcome(engine, a_launch(f'/usr/bin/python3 -c "{program}"'))
    assert log == "-1\n"
    assert libc.syscall(249, b"user", b"penstock-test", None, 0) > 0  # ours is still ours


NAMESPACES = """
import ctypes, mmap, os, struct
libc = ctypes.CDLL(None)
USER = 0x10000000

def old_call():
    # unshare, by the system call of 32-bit programs
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex("53b836010000bb00000010cd805bc3"))
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()

def clone(number, *words):
    pid = libc.syscall(number, *words)
    if pid == 0:
        os._exit(0)
    return -1 if pid < 0 else 0

def tried(work):
    child = os.fork()
    if child == 0:
        os._exit(0 if work() == 0 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

ways = {
    "unshare": lambda: libc.unshare(USER),
    "clone": lambda: clone(56, USER | 17, 0, 0, 0, 0),
    "x32": lambda: libc.syscall(0x40000000 | 272, USER),
    "clone3": lambda: clone(435, struct.pack("11Q", USER, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88),
    "32 bits": old_call,
}
print("made:", [name for name, way in ways.items() if tried(way)])
"""


@needs_root
@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls of x86_64")
@pytest.mark.parametrize("older", [False, True], ids=["", "by an older bubblewrap"])
@pytest.mark.parametrize("account", [the_account(), ANN], ids=["roots", "anns"])
async def test_a_job_cannot_make_user_namespaces_nor_can_what_enters_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, account: Account, older: bool
) -> None:
    if older:
        program = place / "bwrap"
        program.write_text(
            f'#!/bin/sh\ncase "$*" in *--disable-userns*) exit 1; esac\nexec {shutil.which("bwrap")} "$@"'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    async with opened(Settings(data_dir=place / "data", mode="system", gpu_lock_dir=place / "locks")) as engine:
        script = f"cat > /tmp/try.py <<'END'\n{NAMESPACES}\nEND\n/usr/bin/python3 /tmp/try.py; echo up; sleep 600"
        async with running(engine, script, account=account) as launch:
            assert await log_of(engine, run_of(launch)) == b"made: []\nup\n"
            assert (await told(engine, run_of(launch), "python3 /tmp/try.py"))[1] == "made: []\n"
            _, _, said = await told(engine, run_of(launch), "unshare -Urm true; bash -c 'echo a | cat >&2'")
            assert said.endswith("Operation not permitted\na\n") or said.endswith("No space left on device\na\n")


@needs_root
def test_an_ordinary_users_server_shows_no_more(in_opt: Path) -> None:
    home = in_opt / "home"
    home.mkdir()
    os.chown(home, 54322, 54322)
    command = [sys.executable, "-m", "tests.engines.as_user", "attacks", "54322", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"beside": ["bin", "share"], "data": [], "made": False, "key": "-1"}


# -- what a job leaves in a volume -------------------------------------------------------------------------------


async def test_nothing_but_a_volume_is_mounted_inside_a_volume(
    engine: LocalEngine, settings: Settings, place: Path
) -> None:
    volume, target = a_volume(), place / "made-by-root"
    await engine.create_volume(volume, the_account())
    around = place / "around"
    venv = an_environment(around / "deep" / "venv", "/usr/bin")
    (settings.data_dir / "volumes" / volume.object_name / "deep").symlink_to(f"/oldroot{target}")
    with pytest.raises(Invalid, match="would cover"):
        await engine.start(a_launch("true", {str(around): volume}, venv=venv))
    assert not target.exists()


@needs_root
async def test_a_volume_inside_another_by_a_link_of_the_systems_goes_through_no_link_of_a_job(
    engine: LocalEngine, settings: Settings, in_opt: Path, place: Path
) -> None:
    (in_opt / "real").mkdir()
    (in_opt / "link").symlink_to("real")
    outer, inner = a_volume("outer"), a_volume("inner")
    for volume in (outer, inner):
        await engine.create_volume(volume, the_account())
    target = place / "made-by-root"
    (settings.data_dir / "volumes" / outer.object_name / "x").symlink_to(f"/oldroot{place}")
    with pytest.raises(Conflict, match="goes through"):
        await engine.start(a_launch("true", {f"{in_opt}/real": outer, f"{in_opt}/link/x/made-by-root": inner}))
    assert not target.exists()


@needs_root
async def test_what_is_put_in_place_of_a_new_mount_point_is_not_given_away(
    engine: LocalEngine, settings: Settings, place: Path, watched: Callable[..., None]
) -> None:
    outer, inner = a_volume("outer"), a_volume("inner")
    for volume in (outer, inner):
        await engine.create_volume(volume, the_account())
    precious, point = place / "precious", settings.data_dir / "volumes" / outer.object_name / "point"
    precious.touch(mode=0o600)

    def swap(event: str, details: tuple[object, ...]) -> None:
        if event in ("os.chown", "open") and details[0] == "point" and point.is_dir():
            point.rmdir()
            os.link(precious, point)

    watched(swap)
    with pytest.raises(Conflict, match="goes through"):
        await engine.start(a_launch("true", {"/data": outer, "/data/point": inner}))
    assert precious.stat().st_uid == 0


async def test_a_directory_exchanged_for_a_link_is_not_measured(
    engine: LocalEngine, settings: Settings, place: Path, watched: Callable[..., None]
) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    inner = settings.data_dir / "volumes" / volume.object_name / "inner"
    inner.mkdir()
    (place / "outside").mkdir()
    (place / "outside" / "file").write_bytes(b"x" * 1_000_000)

    def swap(event: str, details: tuple[object, ...]) -> None:
        if event in ("os.scandir", "open") and str(details[0]).endswith("inner") and not inner.is_symlink():
            inner.rmdir()
            inner.symlink_to(place / "outside")

    watched(swap)
    assert await engine.volume_usage(volume) < 1_000_000
    assert inner.is_symlink()


async def test_a_directory_above_a_volume_exchanged_for_a_link_is_not_measured(
    place: Path, watched: Callable[..., None]
) -> None:
    async with opened(Settings(data_dir=place / "data", storage_classes={"zfs": str(place / "zfs")})) as engine:
        volume = a_volume(storage="zfs", storage_class="zfs", sub_path="a/b")
        await engine.create_volume(volume, the_account())
        above = place / "zfs" / "ann" / "a"
        (place / "outside" / "b").mkdir(parents=True)
        (place / "outside" / "b" / "file").write_bytes(b"x" * 1_000_000)

        def swap(event: str, details: tuple[object, ...]) -> None:
            if event == "open" and str(details[0]) in (f"{above}/b", "b") and not above.is_symlink():
                above.rename(place / "away")
                above.symlink_to(place / "outside")

        watched(swap)
        assert await engine.volume_usage(volume) < 1_000_000
        assert above.is_symlink()


async def test_a_very_deep_volume_is_measured_with_few_descriptors(engine: LocalEngine, settings: Settings) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    here = os.open(settings.data_dir / "volumes" / volume.object_name, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.write(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here), b"x" * 100_000)
    os.close(here)
    assert await engine.volume_usage(volume) >= 100_000
    await engine.delete_volume(volume)


# -- what takes all there is -------------------------------------------------------------------------------------


async def test_a_volume_asked_for_many_times_is_measured_once_and_not_in_the_threads_of_others(
    engine: LocalEngine, watched: Callable[..., None]
) -> None:
    volume = a_volume()
    await engine.create_volume(volume, the_account())
    scans: list[str] = []
    watched(lambda event, _: scans.append(threading.current_thread().name) if event == "os.scandir" else None)
    found = await asyncio.gather(*(engine.volume_usage(volume) for _ in range(50)))
    assert len(set(found)) == 1
    assert [name.split("_")[0] for name in scans] == ["penstock-scan"]


def test_a_million_lines_are_not_looked_for_in_the_whole_log(place: Path) -> None:
    (place / "logs").mkdir()
    with (place / "logs" / segment_name(0, 0)).open("wb") as file:
        file.truncate(2 << 30)
    reader = LogReader(place, 0)
    reader.refresh()
    assert (2 << 30) - reader.tail(1_000_000) == TAIL_REACH


async def test_the_last_lines_are_looked_for_in_a_thread(engine: LocalEngine, watched: Callable[..., None]) -> None:
    launch = a_launch("seq 1 100000")
    await outcome(engine, launch)
    readers: list[str] = []

    def note(event: str, details: tuple[object, ...]) -> None:
        if event == "open" and str(details[0]).endswith(".log"):
            readers.append(threading.current_thread().name)

    watched(note)
    assert (await log_of(engine, run_of(launch), tail=50_000)).startswith(b"50001\n")
    assert readers[0].startswith("penstock-tail")
    assert (await log_of(engine, run_of(launch), tail=1)) == b"100000\n"


@needs_root
async def test_a_job_that_forks_without_end_stops_only_itself(place: Path) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", max_processes=100)
    async with opened(settings) as engine:
        if not (await engine.nodes())[0].limits_enforced:
            pytest.skip("limits cannot be enforced here")
        bomb = (
            "import os, time\nfor count in range(1000):\n"
            "    try:\n        os.fork() or time.sleep(600)\n"
            "    except OSError as error:\n        print(count, error.strerror, flush=True)\n        break\n"
            "while True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
        )
        launch = a_launch(f"exec /usr/bin/python3 -c '{bomb}'")
        await engine.start(launch)
        await printed(engine, run_of(launch), "Resource temporarily unavailable")
        count = int((await log_of(engine, run_of(launch))).split()[0])
        assert 80 < count < 100
        report, log = await outcome(engine, a_launch("echo fine | cat"))
        assert (report.units[0].state, log) == (State.EXITED, "fine\n")
        await engine.stop(run_of(launch), 0)
        await ended(engine, run_of(launch))


# -- the locks of GPUs -------------------------------------------------------------------------------------------


def _owned_by_another(path: Path) -> None:
    path.mkdir(mode=0o777)
    os.chown(path, 54321, 54321)
    path.chmod(0o1777)


def _open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def _a_link(path: Path) -> None:
    path.with_name("elsewhere").mkdir()
    path.symlink_to(path.with_name("elsewhere"))


@needs_root
@pytest.mark.parametrize("plant", [_owned_by_another, _open_to_all, _a_link])
def test_locks_that_others_could_exchange_are_none(place: Path, plant: Callable[[Path], None]) -> None:
    directory = place / "locks"
    plant(directory)
    with pytest.raises(Unavailable, match="The GPUs cannot be locked"):
        lock_gpus(directory, ["GPU-1"], ExitStack())
    assert find_locked(directory, ["GPU-1"]) == ["GPU-1"]
    check = lock_directory_check(directory)
    assert check
    assert not check.ok
    assert check.fix


def test_a_lock_that_is_a_pipe_or_a_link_holds_nobody_up(place: Path) -> None:
    directory = place / "locks"
    with ExitStack() as held:
        lock_gpus(directory, ["GPU-1"], held)
        assert find_locked(directory, ["GPU-1"]) == ["GPU-1"]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o1777
    (place / "outside").touch()
    (directory / "penstock-GPU-2").symlink_to(place / "outside")
    os.mkfifo(directory / "penstock-GPU-3", 0o666)
    assert find_locked(directory, ["GPU-1", "GPU-2", "GPU-3"]) == ["GPU-2"]
    with pytest.raises(Unavailable):
        lock_gpus(directory, ["GPU-2"], ExitStack())


# -- what a job says to its supervisor ---------------------------------------------------------------------------

LET_GO = """
python3 - <<'END'
import ctypes, fcntl
libc = ctypes.CDLL(None, use_errno=True)
init = libc.syscall(434, 1, 0)
taken = [libc.syscall(438, init, fd, 0) for fd in range(3, 20)]
for fd in taken:
    if fd >= 0:
        fcntl.flock(fd, fcntl.LOCK_UN)
print("let go of", sum(fd >= 0 for fd in taken), flush=True)
END
sleep 60
"""


@needs_root
@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls of x86_64")
async def test_a_job_that_lets_go_of_its_lock_is_still_watched(place: Path) -> None:
    settings = Settings(data_dir=place / "data", mode="system", gpu_lock_dir=place / "locks")
    async with opened(settings) as engine:
        launch = a_launch(LET_GO, account=ANN)
        await engine.start(launch)
        await printed(engine, run_of(launch), "let go of")
        assert (await engine.observe(run_of(launch))).presence is Presence.running
        await engine.stop(run_of(launch), 0)
        report = await ended(engine, run_of(launch))
        assert report.units[0].state is State.STOPPED


async def test_a_flood_from_setup_is_not_kept(place: Path) -> None:
    async with opened(Settings(data_dir=place / "data", gpu_lock_dir=place / "locks")) as engine:
        flood = "for fd in {3..20}; do { printf 'failed '; head -c 500000 /dev/zero | tr '\\0' x; echo; } >&$fd; done"
        report, _ = await outcome(engine, a_launch("true", setup=f"({flood}) 2>/dev/null || true"))
        assert report.presence is Presence.ended
        assert len(report.units[0].message or "") < 500
