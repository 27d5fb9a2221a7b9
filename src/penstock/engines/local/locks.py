"""Lock files: whoever has one open and locked is alive."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def take(fd: int, patience: float) -> bool:
    """Tried for so many seconds: one who only looks whether it is free has it for an instant."""
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
    """KILL whoever has the file open, ourselves excepted."""
    try:
        wanted = path.stat()
    except FileNotFoundError:
        return
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid() and _has_open(process / "fd", wanted):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(process.name), signal.SIGKILL)


def _has_open(descriptors: Path, wanted: os.stat_result) -> bool:
    with suppress(OSError):
        for descriptor in descriptors.iterdir():
            with suppress(OSError):
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    return False


def is_free(fd: int) -> bool:
    """Does nobody hold it? The descriptor was opened to ask, and is closed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
