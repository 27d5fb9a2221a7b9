"""Sockets that processes hold, and what their TCP connections have moved.

Jobs share the machine's network, whose counters are everyone's. But the kernel counts for each connection, too, for as
long as it is open, and tells everyone who asks by netlink (`man 7 sock_diag`).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple

from penstock.engines.local.inside import Process

SOCK_DIAG, BY_FAMILY, DUMP = 4, 20, 0x301
ERROR, DONE = 2, 3
INFO = 2
"""The attribute with what was counted."""
STATES = sum(1 << state for state in (1, 2, 4, 5, 8, 9, 11))
"""Those of a connection that a process may hold, not of one that is over or of a socket that only listens."""
HEADER, ATTRIBUTE, CODE = struct.Struct("=IHHII"), struct.Struct("=HH"), struct.Struct("=i")
ASKED, ANSWER = struct.Struct("=BBBxI48x"), struct.Struct("=68xI")
COUNTED = struct.Struct("=120xQQ")
"""Bytes that have arrived over there, and here; Linux counts them since 4.1."""
PIECE = 1 << 16
PATIENCE = 5.0


class Moved(NamedTuple):
    """Bytes, by connections that are open; where that cannot be seen, why."""

    received: int | None = None
    sent: int | None = None
    trouble: str | None = None


class _Count(NamedTuple):
    sent: int
    received: int


def moved_by(processes: Iterable[Process]) -> Moved:
    """A connection that several of them hold counts once."""
    held: set[int] = set()
    here = _network("self")
    try:
        for process in processes:
            if _network(str(process.pid)) not in (here, None):
                return Moved(trouble="it has made a network of its own")
            held |= sockets_of(process.pid)
        counts = dict(_counts(held)) if held else {}
    except OSError as error:
        return Moved(trouble=error.strerror or str(error))
    return Moved(sum(count.received for count in counts.values()), sum(count.sent for count in counts.values()))


def sockets_of(pid: int) -> set[int]:
    """The numbers of those that a process holds; none once it has ended."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except (FileNotFoundError, ProcessLookupError):
        return set()
    links = (_link(f"{folder}/{name}") for name in names)
    return {int(link[8:-1]) for link in links if link and link.startswith("socket:[")}


def _network(process: str) -> str | None:
    return _link(f"/proc/{process}/ns/net")


def _link(path: str) -> str | None:
    """None if it is not there any more."""
    try:
        return os.readlink(path)  # noqa: PTH115
    except (FileNotFoundError, ProcessLookupError):
        return None


def _counts(held: Set[int]) -> Iterator[tuple[int, _Count]]:
    """Of each of these sockets that is a connection."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
        kernel.settimeout(PATIENCE)
        for family in (socket.AF_INET, socket.AF_INET6):
            asked = ASKED.pack(family, socket.IPPROTO_TCP, 1 << INFO - 1, STATES)
            kernel.send(HEADER.pack(HEADER.size + len(asked), BY_FAMILY, DUMP, 0, 0) + asked)
            for answer in _answers(kernel):
                inode = int(ANSWER.unpack_from(answer)[0])
                if inode in held and (count := _count(answer)):
                    yield inode, count


def _answers(kernel: socket.socket) -> Iterator[memoryview]:
    while True:
        rest = memoryview(kernel.recv(PIECE))
        while len(rest) >= HEADER.size:
            size, kind, *_ = HEADER.unpack_from(rest)
            answer, rest = rest[HEADER.size : size], rest[size + 3 & ~3 :]
            if kind in (ERROR, DONE):
                if code := CODE.unpack_from(answer)[0]:
                    raise OSError(-code, os.strerror(-code))
                return
            yield answer


def _count(answer: memoryview) -> _Count | None:
    """None for one that counts nothing."""
    rest = answer[ANSWER.size :]
    while len(rest) >= ATTRIBUTE.size:
        size, kind = ATTRIBUTE.unpack_from(rest)
        if kind == INFO:
            if size < ATTRIBUTE.size + COUNTED.size:
                raise OSError(errno.EOPNOTSUPP, "this kernel does not count it for each connection")
            return _Count(*COUNTED.unpack_from(rest, ATTRIBUTE.size))
        rest = rest[size + 3 & ~3 :]
    return None
