"""Start the supervisor: detach, read the plan, start the sandboxes.

Only modules that are built into the interpreter are imported before that. All others are imported while the sandboxes
are made, which takes longer.
"""

# ruff: noqa: PTH123
from __future__ import annotations

import marshal
import posix
import sys

from .start import start_node

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it is slow
    from typing import Any

    from .start import Started


def main() -> None:
    """`RUN_DIR LOCK_FD TREE_LOCK_FD DEVICE_LOCK_FD…`: the server holds the locks and passes them on, without a gap.

    It writes the plan while the interpreter starts, and says so on stdin; end of file means that it failed.
    """
    posix.chdir(sys.argv[2])
    tree = int(sys.argv[4])
    for fd in map(int, sys.argv[3:]):
        posix.set_inheritable(fd, False)
    if not posix.read(0, 1):
        posix._exit(1)
    hear, say = posix.pipe()
    if posix.fork():
        posix.close(say)
        posix._exit(0 if posix.read(hear, 1) else 1)
    posix.close(hear)
    posix.setsid()
    with open("plan", "rb") as file:
        plan = marshal.load(file)  # noqa: S302 (written a moment ago by the server that started us)
    _supervise(plan, tree, say)


def _supervise(plan: dict[str, Any], tree: int, say: int) -> None:
    control = _open_control()
    if _exists("began"):
        posix.write(say, b"1")
        return
    started: list[Started] = []
    failure = None
    stopped = _exists("stop")
    if not stopped:
        try:
            for number, rank in enumerate(plan["ranks"]):
                started.append(start_node(rank, tree, plan["array"][number] if plan["array"] else None))
        except OSError as error:
            failure = error
    from .life import Supervisor

    supervisor = Supervisor(plan, control, say, tree, started)
    if failure:
        supervisor.give_up(failure)
    elif stopped:
        supervisor.never_ran()
    else:
        supervisor.run()


def _open_control() -> int:
    """Open it before looking for `stop`: a stop that comes later finds someone listening. Read-write, so it never
    ends."""
    if not _exists("control"):
        posix.mkfifo("control", 0o600)
    return posix.open("control", posix.O_RDWR | posix.O_NONBLOCK | posix.O_CLOEXEC)


def _exists(path: str) -> bool:
    try:
        posix.stat(path)
    except FileNotFoundError:
        return False
    return True
