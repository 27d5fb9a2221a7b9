"""Listening sockets that somebody opened before this process began, as systemd hands them over (`LISTEN_FDS`).

A server that restarts hands its own to itself in the same way: it becomes the new program by exec, so that nobody can
take the port in between, and callers wait instead of being refused.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import StartRefused

FIRST = 3
VARIABLES = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


def inherited_listeners() -> list[socket.socket]:
    """Those meant for this process, each checked to be what we serve. Asked once: children inherit none of it."""
    count, meant = (os.environ.get(name, "") for name in VARIABLES[:2])
    for name in VARIABLES:
        os.environ.pop(name, None)
    if not count.isdigit() or meant != str(os.getpid()):
        return []
    return [_inherited_listener(number) for number in range(FIRST, FIRST + int(count))]


def _inherited_listener(number: int) -> socket.socket:
    try:
        os.set_inheritable(number, False)
        found = socket.socket(fileno=number)
    except OSError as error:
        raise StartRefused(f"Descriptor {number} of LISTEN_FDS is not a socket: {error.strerror}.") from None
    streams = found.family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
    if not streams or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise StartRefused(
            f"Descriptor {number} of LISTEN_FDS is not a listening TCP or Unix socket.",
            hint="The socket unit has ListenStream= lines only; see docs/server.md.",
        )
    return found


def unix_of(found: Sequence[socket.socket], path: Path) -> socket.socket | None:
    """The Unix socket among them, which must lie where every command looks for it."""
    ours = [each for each in found if each.family == socket.AF_UNIX]
    wrong = [each.getsockname() for each in ours if each.getsockname() != str(path)]
    if wrong or len(ours) > 1:
        raise StartRefused(f"A Unix socket was handed over that is not {path}: {', '.join(map(str, wrong))}.")
    return ours[0] if ours else None


def become_anew(kept: Sequence[socket.socket]) -> None:
    """Does not return: this process is the new server, with these sockets."""
    high = [fcntl.fcntl(each.fileno(), fcntl.F_DUPFD_CLOEXEC, FIRST + len(kept) + 1) for each in kept]
    for number, source in enumerate(high, FIRST):
        os.dup2(source, number, inheritable=True)
    handed = {"LISTEN_FDS": str(len(kept)), "LISTEN_PID": str(os.getpid())} if kept else {}
    os.execve(sys.executable, [sys.executable, "-P", "-m", "penstock.server"], os.environ | handed)  # noqa: S606
