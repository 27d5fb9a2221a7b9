"""Start, stop and remove runs. To start one: take its locks, write the plan and hand both to a supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from penstock.engines.base import Launch
from penstock.engines.local import layout
from penstock.engines.local.gpus import lock_gpus
from penstock.engines.local.layout import disk_errors
from penstock.engines.local.spec.identity import new_session_keyring
from penstock.engines.local.spec.plan import Machine, write_plan
from penstock.engines.local.state.snapshot import LOCKS, has_begun, has_ended, is_held, read_began
from penstock.engines.local.supervisor.directories import erase
from penstock.engines.local.supervisor.processes import remove_group
from penstock.engines.shared.files import overwrite, replace, reserve
from penstock.errors import StorageFull, Unavailable

log = logging.getLogger(__name__)
BOOT = "import sys; sys.path.append(sys.argv[1]); from penstock.engines.local.supervisor.main import main; main()"
"""The program is imported rather than run as a file, so that its compiled form is used."""
PACKAGES = Path(__file__).parents[3]
"""Where `penstock` is imported from: last, so that nothing beside it stands in for the standard library."""
REMOVED = ".removed-"
"""The beginning of the name of a directory that is being removed."""
STOP_SIZE = 8
"""Bytes that are reserved for the file `stop`, so that a full disk cannot prevent a stop."""
PATIENCE = 1.0
"""Seconds in which the lock of a run must become free."""
SPAWNING = ThreadPoolExecutor(2, "penstock-spawn")


def start_supervisor(run_dir: Path, launch: Launch, machine: Machine) -> subprocess.Popen[bytes] | None:
    """Start the supervisor's parent, and write the plan while its interpreter starts: each takes some milliseconds.

    None if the run has begun, or someone is just starting it. `await_began` says whether it began.
    """
    with disk_errors(run_dir), ExitStack() as held:
        run_dir.mkdir(mode=machine.layout.mode, exist_ok=True)
        reserve(str(run_dir / "stop"), STOP_SIZE)
        lock, tree = (_lock_file(run_dir / name, held) for name in LOCKS)
        if not layout.take_lock(lock, PATIENCE) or has_begun(run_dir) or has_ended(run_dir):
            return None
        if not layout.take_lock(tree, PATIENCE):  # nobody supervises it, and it never began: what is left of a start
            layout.kill_holders(run_dir / LOCKS[1])
            if not layout.take_lock(tree, PATIENCE):
                return None
        uuids = [uuid for rank in launch.gpus for uuid in rank]
        devices = lock_gpus(machine.settings.gpu_lock_dir, uuids, held)
        process = SPAWNING.submit(_popen, run_dir, [lock, tree, *devices]).result()
        assert process.stdin
        try:
            write_plan(run_dir, launch, machine)
        except BaseException:
            process.stdin.close()  # it ends, and gives up the lock
            process.wait()
            raise
        with suppress(BrokenPipeError), process.stdin as go_pipe:
            go_pipe.write(b"1")
        return process


def _lock_file(path: Path, held: ExitStack) -> int:
    """Open a lock for reading only, which is enough: a job can see the tree's lock among the descriptors of its PID
    1."""
    fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    held.callback(os.close, fd)
    return fd


def _popen(run_dir: Path, held: list[int]) -> subprocess.Popen[bytes]:
    handle = os.open(run_dir / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "ab") as errors:
        words = [str(PACKAGES), str(run_dir), *map(str, held)]
        return spawn(BOOT, words, held, subprocess.PIPE, errors.fileno())


def spawn(
    boot: str,
    words: Sequence[str],
    held: Sequence[int],
    stdin: int = subprocess.DEVNULL,
    errors: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start an interpreter with a session and a keyring of its own, and nothing of the server's but these descriptors.

    To be called in a thread of SPAWNING: a keyring belongs to a thread, and the server keeps its own.
    """
    new_session_keyring()
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", boot, *words],
        bufsize=0,
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=held,
        start_new_session=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
    )


async def await_began(process: subprocess.Popen[bytes], run_dir: Path) -> None:
    """Return once the run has begun on disk: what we started is not the supervisor but its parent, which ends then."""
    if await asyncio.to_thread(process.wait):
        said = _last_line(run_dir / "supervisor.log")
        if "No space left" in said:
            raise StorageFull(f"There is no room left on the disk of {run_dir}.", hint="free some space there")
        raise Unavailable(f"The workload's supervisor could not start: {said}")


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def request_stop(run_dir: Path, mode: int, grace: int) -> None:
    """Write `stop` into the room that was reserved with the run; a second time, in place."""
    path, word = str(run_dir / "stop"), f"{grace:<{STOP_SIZE}}"
    with disk_errors(run_dir):
        run_dir.mkdir(mode=mode, exist_ok=True)
        if not overwrite(path, word):
            replace(path, word)
    wake_supervisor(run_dir)


def wake_supervisor(run_dir: Path) -> None:
    """Tell the supervisor to look for `stop`; if none listens, it looks for it when it begins."""
    with suppress(OSError):
        fd = os.open(run_dir / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, b"!")
        finally:
            os.close(fd)


def end_leftovers(run_dir: Path) -> None:
    """End what a supervisor has started that is gone itself.

    A sandbox dies with its supervisor, but for an instant while it is made: bubblewrap's child waits for its parent
    before it asks the kernel to be killed with it, and a parent that dies just then leaves it waiting for ever.
    """
    lock, tree = (run_dir / name for name in LOCKS)
    if not is_held(lock) and is_held(tree):
        layout.kill_holders(tree)


def clean_up(run_dir: Path) -> None:
    """Remove what a killed supervisor could not: its control groups and the private directories of its nodes."""
    _remove_groups(run_dir)
    for path in run_dir.glob("rank-*"):
        _try_to_erase(path)


def remove_run(run_dir: Path) -> None:
    if not run_dir.is_dir():
        return
    with disk_errors(run_dir):
        _remove_groups(run_dir)
        grave = run_dir.with_name(f"{REMOVED}{run_dir.name}")
        erase(str(grave))
        run_dir.rename(grave)
        erase(str(grave))


def finish_removals(runs: Path) -> None:
    """Finish the removals that a crash cut short."""
    for path in runs.glob(f"{REMOVED}*"):
        _try_to_erase(path)


def _remove_groups(run_dir: Path) -> None:
    for path in (read_began(run_dir) or {}).get("cgroups", ()):
        remove_group(path)


def _try_to_erase(path: Path) -> None:
    try:
        erase(str(path))
    except OSError as error:
        log.warning("%s could not be removed: %s", path, error)
