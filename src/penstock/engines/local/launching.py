"""Starting a supervisor: take the locks, write the plan, and hand both over."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from penstock.engines.base import Launch
from penstock.engines.local.gpus import lock_gpus
from penstock.engines.local.layout import disk_errors
from penstock.engines.local.plans import Machine, write_plan
from penstock.engines.local.records import ended, read_began
from penstock.errors import StorageFull, Unavailable

BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from supervisor.main import main; main()"
"""Imported rather than run as a file, so that the compiled form is used."""
PACKAGE = Path(__file__).parent
"""Where `supervisor` is imported from."""
PATIENCE = 1.0


def prepare(run_dir: Path, launch: Launch, machine: Machine) -> list[int]:
    """Descriptors that hold the run's lock and its GPUs' locks; empty if it has begun, or someone is just at it."""
    with disk_errors(run_dir):
        run_dir.mkdir(mode=machine.layout.mode, exist_ok=True)
        held = [os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)]
        try:
            if not _take(held[0]) or read_began(run_dir) is not None or ended(run_dir):
                os.close(held.pop())
                return []
            held += lock_gpus(machine.settings.gpu_lock_dir, [uuid for rank in launch.gpus for uuid in rank])
            write_plan(run_dir, launch, machine)
        except BaseException:
            for fd in held:
                os.close(fd)
            raise
        return held


def _take(fd: int) -> bool:
    """Tried for a moment: one who only looks whether it is held has it for an instant."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)


async def spawn(run_dir: Path, held: list[int]) -> None:
    """Return once the run has begun on disk. What we start is not the supervisor but its parent, which ends then."""
    argv = [sys.executable, "-I", "-S", "-c", BOOT, str(PACKAGE), str(run_dir), *map(str, held)]
    with disk_errors(run_dir), (run_dir / "supervisor.log").open("ab") as errors:
        process = subprocess.Popen(  # noqa: ASYNC220 (a vfork: a millisecond)
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=held,
            start_new_session=True,
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
        )
    if await _ended(process):
        said = _last_line(run_dir / "supervisor.log")
        if "No space left" in said:
            raise StorageFull(f"There is no room left on the disk of {run_dir}.", hint="free some space there")
        raise Unavailable(f"The workload's supervisor could not start: {said}")


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


async def _ended(process: subprocess.Popen[bytes]) -> int:
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    pidfd = os.pidfd_open(process.pid)
    loop.add_reader(pidfd, done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    return process.wait()


def poke(run_dir: Path) -> None:
    """Tell the supervisor to look for `stop`; if none listens, it looks for it when it begins."""
    with suppress(OSError):
        fd = os.open(run_dir / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, b"!")
        finally:
            os.close(fd)
