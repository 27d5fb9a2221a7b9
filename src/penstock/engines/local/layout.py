"""The paths below the data directory, and the locks there."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.engines.base import Run
from penstock.engines.shared.processes import descriptors, pids
from penstock.errors import StorageFull, Unavailable
from penstock.settings import Settings


class Layout:
    def __init__(self, settings: Settings) -> None:
        self.data_dir = settings.data_dir
        self.runs = settings.data_dir / "runs"
        self.volumes = settings.data_dir / "volumes"
        self.programs = settings.data_dir / "bin"
        self.shared = settings.mode == "system" or (settings.sandbox == "none" and os.geteuid() == 0)
        """Other accounts than ours must be able to reach what is theirs below it: to search, but not to list."""

    @property
    def mode(self) -> int:
        return 0o711 if self.shared else 0o700

    def make(self) -> None:
        with disk_errors(self.data_dir):
            for path in (self.data_dir, self.runs, self.volumes):
                path.mkdir(mode=self.mode, parents=True, exist_ok=True)
                if self.shared:
                    path.chmod(self.mode)

    def run_dir(self, run: Run) -> Path:
        return self.runs / f"{run.workload_id}-{run.attempt}"

    def all_runs(self) -> list[Run]:
        with os.scandir(self.runs) as entries:
            found = [run_of(entry.name) for entry in entries]
        return sorted((run for run in found if run), key=lambda run: (run.workload_id, run.attempt))


def run_of(name: str) -> Run | None:
    """Return the run a directory is named for; None for others, such as those on their way out, which begin with a
    dot."""
    workload_id, _, attempt = name.rpartition("-")
    return Run(workload_id, int(attempt)) if workload_id and attempt.isdigit() and name[0] != "." else None


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an error of the disk into one that a person can act on."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"There is no room left on the disk of {path}.", hint="free some space there") from error
        raise Unavailable(f"{error.filename or path}: {error.strerror or error}.") from error


def take_lock(fd: int, patience: float) -> bool:
    """Lock a file within so many seconds: whoever only asks whether it is free holds it for an instant."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)


def kill_holders(path: Path) -> None:
    """KILL all processes that have the file open, except this one."""
    try:
        wanted = path.stat()
    except FileNotFoundError:
        return
    for pid in pids():
        if pid != os.getpid() and any(_is_same(open_file, wanted) for open_file in descriptors(pid)):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _is_same(path: str, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), wanted)  # noqa: PTH116
    except OSError:
        return False


def is_unlocked(fd: int) -> bool:
    """Is the file unlocked? The descriptor was opened to ask, and is closed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
