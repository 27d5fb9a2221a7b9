"""The keeper: the parent of a node's processes where there is no sandbox, which leaves none of them behind.

Orphans of the node come to it (a subreaper), so everything the node started is below it. When the node's first process
has ended, or the supervisor is gone (hang-up on stdin), it kills what is left and reaps it. Told to stop (TERM), it
waits for the last process rather than the first: what the node started may still save its work.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself imports enum, which is slow
import fcntl
import os
import select

from .processes import TERM, exit_code, kill_tree

PR_SET_CHILD_SUBREAPER = 36
_KEPT_DESCRIPTORS = 6


def adopt_orphans() -> None:
    import ctypes  # loaded before the account is changed: the account may not be able to read our interpreter

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


def keep(argv: list[str], env: dict[str, str]) -> None:
    """Run the command and exit as it does. Never returns."""
    os.closerange(_KEPT_DESCRIPTORS, 65536)
    heard = _hear_signals()
    child = os.fork()
    if child == 0:
        os.close(5)
        os.setsid()
        os.execve(argv[0], argv, env)  # noqa: S606
    os.closerange(1, 5)  # the log and the status pipe belong to the node alone; stdin and the lock stay
    code = _watch(child, heard)
    kill_tree(os.getpid())
    os._exit(code)


def _hear_signals() -> int:
    """Return a descriptor from which the numbers of signals can be read as they come."""
    low = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    hear, say = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _KEPT_DESCRIPTORS) for fd in low)
    _signal.set_wakeup_fd(say, warn_on_full_buffer=False)
    for number in (_signal.SIGCHLD, _signal.SIGTERM):
        _signal.signal(number, lambda *_: None)
    return hear


def _watch(child: int, heard: int) -> int:
    leash = select.poll()
    leash.register(0, 0)  # nothing but the hang-up
    leash.register(heard, select.POLLIN)
    code, stopping = None, False
    while True:
        ready = {fd for fd, _ in leash.poll()}
        if heard in ready:
            stopping |= TERM in os.read(heard, 4096)
        ended, left = _reap(child)
        code = ended if code is None else code
        if code is not None and not (stopping and left):
            return code
        if 0 in ready:
            return 137


def _reap(child: int) -> tuple[int | None, bool]:
    """Reap children that have ended; return the exit code of the first process if it is one, and whether any is
    left."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code, False
        if pid == 0:
            return code, True
        if pid == child:
            code = exit_code(status)
