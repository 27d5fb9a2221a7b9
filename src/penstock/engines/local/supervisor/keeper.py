"""Stands where bubblewrap stands when there is no sandbox: the parent that leaves no process of a node behind.

Orphans of the node come to it (a subreaper), so everything the node started is below it. When the node's first process
has ended, or the supervisor is gone (hang-up on stdin), it kills what is left and reaps it.
"""

from __future__ import annotations

import os
import select

from .processes import kill_tree

PR_SET_CHILD_SUBREAPER = 36
_KEPT_DESCRIPTORS = 6


def adopt_orphans() -> None:
    import ctypes  # loaded before the account is changed: the account may not be able to read our interpreter

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


def keep(argv: list[str], env: dict[str, str]) -> None:
    """Run the command and exit as it does. Never returns."""
    os.closerange(_KEPT_DESCRIPTORS, 65536)
    child = os.fork()
    if child == 0:
        os.close(5)
        os.setsid()
        os.execve(argv[0], argv, env)  # noqa: S606
    os.closerange(1, 5)  # the log and the status pipe belong to the node alone; stdin and the lock stay
    code = _watch(child)
    kill_tree(os.getpid())
    os._exit(code)


def _watch(child: int) -> int:
    leash = select.poll()
    leash.register(0, 0)  # nothing but the hang-up
    leash.register(os.pidfd_open(child), select.POLLIN)
    while True:
        events = leash.poll(1000)
        code = _reap(child)
        if code is not None:
            return code
        if any(fd == 0 for fd, _ in events):
            return 137


def _reap(child: int) -> int | None:
    """Reap whoever has ended; the exit code if it was the first process."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return None
        if pid == child:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)
