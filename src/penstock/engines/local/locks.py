"""Lock files: whoever has one open and locked is alive."""

from __future__ import annotations

import fcntl
import os
import time


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


def is_free(fd: int) -> bool:
    """Does nobody hold it? The descriptor was opened to ask, and is closed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
