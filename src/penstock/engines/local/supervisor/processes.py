"""Fork, signal and end processes. `penstock.engines.shared.processes` reads them."""

# ruff: noqa: PTH106, PTH115
from __future__ import annotations

import os
import time

from penstock.engines.shared.files import complain
from penstock.engines.shared.processes import all_processes, first_child, read_values, with_descendants

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it is slow
    from collections.abc import Callable

TERM, KILL, CONT, STOP = 15, 9, 18, 19
SAYS = 3
"""The descriptor at which a child of `fork_child` finds the one it was given."""


def fork_child(work: Callable[[], None], says: int = -1) -> int:
    """Do slow work in a child process, so that the supervisor keeps watching; return its process id.

    The child holds none of our descriptors but the one it is given: no lock and no end of a pipe lives on in it when we
    are killed. What it does can be done again, or is of no use without us.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if says >= 0:
            os.dup2(says, SAYS, inheritable=False)
        os.closerange(SAYS + (says >= 0), 1 << 20)
        work()
        code = 0
    except OSError as error:
        complain(error)
    finally:
        os._exit(code)


def descendants(pid: int, *, sandboxed: bool = False) -> list[int]:
    """Return every process below `pid`, parents first, but not the first process of a sandbox."""
    top = first_child(pid) if sandboxed else pid
    return with_descendants([top], all_processes())[1:] if top else []


def exit_code(status: int) -> int:
    """Return the code that a shell would have for what `waitpid` says."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)


def signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def terminate_tree(pid: int, *, sandboxed: bool) -> bool:
    """Send TERM to all, twice: a process may fork while we look. Parents first, so that a shell starts no further line.

    The end of a pipe is spared, and True returned: `tee` would die at once, and then the program before it could not
    even say that it saves its work. It ends by itself when no more comes, or by `terminate_rest`.
    """
    told: set[int] = set()
    spared = False
    for _ in range(2):
        for member in descendants(pid, sandboxed=sandboxed):
            if member in told:
                continue
            if _only_reads_a_pipe(member):
                spared = True
                continue
            told.add(member)
            _terminate(member)
    return spared


def terminate_rest(pid: int, *, sandboxed: bool) -> bool:
    """Send TERM to the ends of pipes that were spared, once nothing else is left; return whether that was so."""
    members = descendants(pid, sandboxed=sandboxed)
    if not all(map(_only_reads_a_pipe, members)):
        return False
    for member in members:
        _terminate(member)
    return True


def _terminate(pid: int) -> None:
    signal(pid, TERM)
    signal(pid, CONT)  # a stopped one would not hear it


def _only_reads_a_pipe(pid: int) -> bool:
    """Has it no handler for TERM, no children, and a pipe as its input?"""
    try:
        if not os.readlink(f"/proc/{pid}/fd/0").startswith("pipe:"):
            return False
    except OSError:
        return False
    caught = int(read_values(f"/proc/{pid}/status").get("SigCgt", "0"), 16)
    return not caught & 1 << TERM - 1 and first_child(pid) is None


def kill_tree(pid: int) -> None:
    """Send KILL until nothing is left below `pid`, which is this process and reaps them."""
    while members := descendants(pid):
        for member in members:
            signal(member, KILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def remove_group(path: str) -> None:
    """Remove a control group, whose last process may still be on its way out."""
    for _ in range(50):
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
