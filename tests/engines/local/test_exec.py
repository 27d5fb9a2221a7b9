"""`exec` on this machine: into sandboxes of every kind, and nothing more than the job itself has."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from penstock.domain.users import Account
from penstock.domain.workloads import Array
from penstock.engines.base import Terminal
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Conflict, Unavailable
from penstock.settings import Settings
from tests.engines.contract.exec import Executing, result, running, session, shown, told
from tests.engines.contract.nodes import opened, processes_with
from tests.engines.launches import a_launch, a_volume, log_of, printed, run_of, the_account
from tests.running import processes_naming

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
ANN = Account(uid=54321, gid=54321, user="ann")
SIZE = Terminal(columns=80, rows=24)


class TestInASandbox(Executing):
    @pytest.fixture
    def engine(self, engine: LocalEngine) -> LocalEngine:
        return engine


class TestWithoutASandbox(Executing):
    workdir = "/var/tmp"

    @pytest.fixture
    async def engine(self, place: Path) -> AsyncIterator[LocalEngine]:
        settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", sandbox="none")
        async with opened(settings) as engine:
            yield engine


# -- what it may do ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["roots", "anns"])
def account(request: pytest.FixtureRequest) -> Account:
    if request.param == "anns" and os.geteuid() != 0:
        pytest.skip("needs root")
    return the_account() if request.param == "roots" else ANN


@pytest.fixture
async def system(place: Path) -> AsyncIterator[LocalEngine]:
    mode = "system" if os.geteuid() == 0 else "user"
    async with opened(Settings(data_dir=place / "data", mode=mode, gpu_lock_dir=place / "locks")) as engine:
        yield engine


FACTS = (
    "id -u; id -g; id -G; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; cat /proc/self/cgroup; umask;"
    "for each in user mnt pid ipc net uts cgroup; do readlink /proc/self/ns/$each; done;"
    "cat /proc/self/mountinfo; ls /; grep -c . /proc/keys; sort /proc/self/limits; cat /proc/self/oom_score_adj"
)


async def test_it_is_in_nothing_different_from_the_job(system: LocalEngine, account: Account) -> None:
    job = f"({FACTS}) >/tmp/facts 2>&1; echo up; sleep 600"
    async with running(system, job, account=account) as launch:
        _, facts, _ = await told(system, run_of(launch), f"cat /tmp/facts; echo ======; ({FACTS}) 2>&1")
    before, after = facts.split("======\n")
    assert after == before
    assert f"{account.uid}\n" in after
    assert "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000" in after


async def test_it_has_no_descriptor_but_its_own_three(system: LocalEngine, account: Account) -> None:
    async with running(system, account=account) as launch:
        _, out, _ = await told(system, run_of(launch), "ls /proc/$$/fd")
        assert out.split() == ["0", "1", "2"]
        async with session(system, run_of(launch), ["sh", "-c", "ls /proc/$$/fd"], terminal=SIZE) as opened:
            _, shown_, _ = await result(opened)
        assert shown_.split() == [b"0", b"1", b"2"]


async def test_a_terminal_is_one_of_the_nodes_own(system: LocalEngine, account: Account) -> None:
    async with running(system, account=account) as launch:
        script = "tty; stat -c %u $(tty); echo still here >$(tty); locale charmap; stty -a"
        async with session(system, run_of(launch), ["sh", "-c", script], terminal=SIZE) as opened:
            _, out, _ = await result(opened)
    tty, owner, written, charmap, *modes = out.decode().splitlines()
    assert (tty, owner, written, charmap) == ("/dev/pts/0", str(account.uid), "still here", "UTF-8")
    assert " iutf8" in " ".join(modes)


PLANTED = """
rm -f /dev/ptmx && mkfifo /dev/ptmx
echo up; sleep 600
"""


@needs_root
async def test_what_a_job_puts_in_place_of_the_terminals_is_not_opened(system: LocalEngine) -> None:
    test = ["test", "-t", "0"]
    async with (
        running(system, PLANTED, account=ANN) as launch,
        session(system, run_of(launch), test, terminal=SIZE) as opened,
    ):
        assert (await result(opened))[0] == 0


SPY = r"""
python3 - <<'END'
import os, sys
seen = set()
print("up", flush=True)
while not os.path.exists("/tmp/enough"):
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) <= 3 or int(name) == os.getpid():
            continue
        for what in ("exe", "root", "cwd", "fd/3", "fd/4", "fd/5", "fd/6", "fd/7"):
            try:
                seen.add(os.readlink(f"/proc/{name}/{what}"))
            except OSError:
                pass
        for what in ("environ", "maps"):
            try:
                with open(f"/proc/{name}/{what}") as file:
                    seen.update(file.read().split())
            except OSError:
                pass
print("\n".join(sorted(seen)), flush=True)
print("end", flush=True)
END
"""


async def test_a_job_sees_nothing_of_the_one_who_enters(system: LocalEngine, account: Account, place: Path) -> None:
    """While it is on its way in, it is a process of the server's among the job's."""
    async with running(system, SPY, account=account) as launch:
        for _ in range(20):
            assert (await told(system, run_of(launch), "true"))[0] == 0
        await told(system, run_of(launch), "touch /tmp/enough")
        await printed(system, run_of(launch), "\nend\n")
        log = (await log_of(system, run_of(launch))).decode()
    assert "/usr/bin/bash" in log  # it did look
    assert str(place) not in log
    assert "/python" not in log.replace("/usr/bin/python3", "").replace("/usr/lib/python3", "")
    for ours in ("memfd:", "pidfd", "mnt:[", "user:[", "pid:["):
        assert ours not in log


INNOCENT = """
mkdir -p ~/.local/bin; printf '#!/proc/self/exe\\nreadlink /proc/$$/exe\\n' > ~/.local/bin/innocent
chmod +x ~/.local/bin/innocent; echo up; sleep 600
"""


async def test_a_program_that_names_its_starter_as_interpreter_gets_only_the_shell(
    system: LocalEngine, account: Account
) -> None:
    async with running(system, INNOCENT, account=account) as it:
        code, out, _ = await told(system, run_of(it), "exec innocent")
        assert code == 0
        async with session(system, run_of(it), ["innocent"]) as opened:
            _, out_directly, _ = await result(opened)
    assert Path(out.strip()).name in ("sh", "dash", "bash")
    assert out_directly.decode().strip() == os.path.realpath(shutil.which("bash") or "")


@needs_root
async def test_a_shell_that_is_not_roots_is_copied(
    system: LocalEngine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = place / "bash"
    shutil.copy(shutil.which("bash") or "", own)
    os.chown(own, ANN.uid, ANN.gid)
    monkeypatch.setattr("penstock.engines.local.exec.BASH", str(own))
    async with running(system, INNOCENT, account=ANN) as it, session(system, run_of(it), ["innocent"]) as opened:
        assert await result(opened) == (0, b"/memfd:shell (deleted)\n", b"")


async def test_a_read_only_volume_stays_read_only(system: LocalEngine, account: Account) -> None:
    volume = a_volume()
    await system.create_volume(volume, account)
    launch = a_launch("echo up; sleep 600", {"/data": volume}, account=account)
    launch = launch.model_copy(update={"mounts": (launch.mounts[0].model_copy(update={"read_only": True}),)})
    await system.start(launch)
    await printed(system, run_of(launch), "up")
    code, _, errors = await told(system, run_of(launch), "touch /data/x || mount -o remount,rw /data; umount /data")
    assert code != 0
    assert "Read-only file system" in errors


@needs_root
def test_an_ordinary_users_server_enters_its_own(place: Path) -> None:
    home = place / "home"
    home.mkdir()
    os.chown(home, 54322, 54322)
    command = [sys.executable, "-m", "tests.engines.as_user", "enter", "54322", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "same": True,
        "uid": "54322",
        "tty": "/dev/pts/0",
        "descriptors": ["0", "1", "2"],
    }


# -- which one ---------------------------------------------------------------------------------------------------


async def test_one_index_of_an_array_can_be_entered(engine: LocalEngine) -> None:
    launch = a_launch(
        'if [ "$JOB_COMPLETION_INDEX" = 1 ]; then exit 0; fi; echo up; sleep 600',
        array=Array(count=4, parallelism=2),
        gpus=((), ()),
    )
    await engine.start(launch)
    for index in (0, 2):
        await printed(engine, run_of(launch), "up", index)
        assert await told(engine, run_of(launch), "echo $JOB_COMPLETION_INDEX", index) == (0, f"{index}\n", "")
    for index in (1, 3):  # one has ended, one waits
        with pytest.raises(Conflict):
            await engine.exec(run_of(launch), index, ["true"], None)


async def test_a_program_that_is_not_there_ends_with_127(engine: LocalEngine) -> None:
    async with running(engine) as launch:
        async with session(engine, run_of(launch), ["no-such-program", "-l"]) as opened:
            code, _, errors = await result(opened)
        assert code == 127
        assert b"no-such-program: not found" in errors
        async with session(engine, run_of(launch), ["/etc/passwd"]) as opened:
            assert (await result(opened))[0] == 126


# -- how it ends -------------------------------------------------------------------------------------------------

FAMILY = "sleep 600 & (nohup sleep 600 >/dev/null 2>&1 &); echo ready; exec sleep 600"


@pytest.mark.parametrize("terminal", [None, SIZE], ids=["pipes", "terminal"])
@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
async def test_who_goes_away_leaves_nothing_running(place: Path, sandbox: str, terminal: Terminal | None) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", sandbox=sandbox)
    async with opened(settings) as engine, running(engine, "echo up; exec sleep 600") as launch:
        before = _inside(launch.workload_id)
        mark = "600.12345"
        async with session(
            engine, run_of(launch), ["sh", "-c", FAMILY.replace("600", mark)], terminal=terminal
        ) as entered:
            await shown(entered, "ready")
            await _until(lambda: len(_sleeping(mark)) == 3)
        assert _sleeping(mark) == []
        assert _inside(launch.workload_id) == before


def _sleeping(mark: str) -> list[int]:
    return [pid for pid, line in processes_naming(f"sleep {mark}").items() if line == f"sleep {mark}"]


def _descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


def _inside(workload_id: str) -> set[int]:
    return set(processes_with(workload_id))


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
async def test_what_a_program_leaves_in_the_background_belongs_to_the_job(place: Path, sandbox: str) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", sandbox=sandbox)
    async with opened(settings) as engine:
        async with running(engine) as launch:
            script = "sleep 600.54321 & setsid sleep 600.54321 & echo started"
            assert (await told(engine, run_of(launch), script))[:2] == (0, "started\n")
            await _until(lambda: len(_sleeping("600.54321")) == 2)
        await _until(lambda: not _sleeping("600.54321"))


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
async def test_it_ends_with_its_job(place: Path, sandbox: str) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", sandbox=sandbox)
    async with opened(settings) as engine, running(engine) as launch:
        async with session(engine, run_of(launch), ["sh", "-c", "echo ready; sleep 600.777; :"]) as opened_:
            await shown(opened_, "ready")
            await engine.stop(run_of(launch), 0)
            assert (await result(opened_))[0] == 137
        assert _sleeping("600.777") == []


ABRUPT = """
import asyncio, os, sys
from pathlib import Path
from penstock.engines.base import Run, Terminal
from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings
async def main():
    engine = LocalEngine(Settings(data_dir=Path(sys.argv[1]) / "data", gpu_lock_dir=Path(sys.argv[1]) / "locks"))
    await engine.open()
    for _ in range(3):
        for terminal in (None, Terminal(columns=80, rows=24)):
            session = await engine.exec(Run(sys.argv[2]), 0, ["sh", "-c", sys.argv[3]], terminal)
            async for _, data in session.output():
                break
    print("ready", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_a_server_that_is_killed_leaves_nothing_running(engine: LocalEngine, place: Path) -> None:
    async with running(engine) as launch:
        script = FAMILY.replace("600", "600.888")
        command = [sys.executable, "-c", ABRUPT, str(place), launch.workload_id, script]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout
        assert await process.stdout.readline() == b"ready\n"
        await _until(lambda: len(_sleeping("600.888")) == 18)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await _until(lambda: not _sleeping("600.888"))


async def test_output_that_nobody_reads_stops_the_program(engine: LocalEngine) -> None:
    script = "while :; do printf %065536d 0; echo >>/tmp/written; done"
    async with running(engine) as launch, session(engine, run_of(launch), ["sh", "-c", script]) as opened_:
        async for _ in opened_.output():
            break
        seen: list[str] = []
        while len(seen) < 5 or len(set(seen[-5:])) > 1:  # until it is the same five times in a row
            seen.append((await told(engine, run_of(launch), "wc -l </tmp/written"))[1])
        assert int(seen[-1]) < 20


@pytest.mark.parametrize("terminal", [None, SIZE], ids=["pipes", "terminal"])
async def test_nothing_is_left_open(engine: LocalEngine, terminal: Terminal | None) -> None:
    async with running(engine) as launch:
        for number in range(6):
            async with session(engine, run_of(launch), ["cat"], terminal=terminal) as opened_:
                if number % 2:
                    await opened_.end_input()
                    await result(opened_)
            with pytest.raises(Conflict):
                await engine.exec(run_of(launch), 7, ["true"], None)
            if number == 1:
                before = _descriptors()  # the one who watched the program may just be on its way out
        await _until(lambda: _descriptors() <= before)


@needs_root
async def test_a_job_that_has_all_the_processes_it_may_have_says_so(place: Path) -> None:
    settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", max_processes=20)
    async with opened(settings) as engine:
        if not (await engine.nodes())[0].limits_enforced:
            pytest.skip("limits cannot be enforced here")
        launch = a_launch(f"exec /usr/bin/python3 -c '{FORKS}'")
        await engine.start(launch)
        await printed(engine, run_of(launch), "up")
        with pytest.raises(Unavailable, match="Resource temporarily unavailable"):
            await engine.exec(run_of(launch), 0, ["true"], None)


FORKS = """
import os, time
try:
    while os.fork():
        pass
    time.sleep(600)
except OSError:
    print("up", flush=True)
    time.sleep(600)
"""
