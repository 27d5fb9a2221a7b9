"""The kernel's keyring of a login session is handed down to children; what is in the server's is not for jobs."""

from __future__ import annotations

import ctypes
import os
import sys

JOIN_SESSION_KEYRING = 1
KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
"""The number of the system call; the C library has no name for it."""

_libc = ctypes.CDLL(None)


def new_session_keyring() -> None:
    """An empty one for this thread and what it starts from now on. Where there are no keyrings, nothing happens."""
    number = KEYCTL.get(os.uname().machine)
    if number is not None and sys.maxsize > 2**32:
        _libc.syscall(ctypes.c_long(number), ctypes.c_long(JOIN_SESSION_KEYRING), None)
