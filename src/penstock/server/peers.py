"""Who is at the other end of a connection: by the kernel, never by what they say.

On a Unix socket the kernel tells the uid (SO_PEERCRED). On loopback TCP it can be found out, too: /proc/net/tcp has the
uid and the inode of the other socket, and a process of this PID namespace must hold that inode. A job has a PID
namespace of its own, so whatever cannot be found among our own processes is not believed.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SHARE = 4
"""One account may hold a quarter of the descriptors there are."""


@dataclass(frozen=True)
class Peer:
    """`uid` where the kernel says it; `local` and `remote` are TCP addresses."""

    uid: int | None = None
    gid: int | None = None
    local: tuple[str, int] | None = None
    remote: tuple[str, int] | None = None


class PeerProtocol(HttpToolsProtocol):
    """Puts the peer of the connection into each request's state, and keeps one account from taking all there are."""

    open_by_uid: ClassVar[Counter[int]] = Counter()
    _counted: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = peer_of(transport)
        self.app_state = self.app_state | {"peer": peer}
        if peer.uid is None or peer.uid == os.geteuid():
            return
        self._counted = peer.uid
        self.open_by_uid[peer.uid] += 1
        if self.open_by_uid[peer.uid] > resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._counted is not None:
            self.open_by_uid[self._counted] -= 1
            self._counted = None


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    connection: Any = transport.get_extra_info("socket")
    if connection is not None and connection.family == socket.AF_UNIX:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, gid = struct.unpack("3i", raw)
        return Peer(uid=uid, gid=gid)
    local, remote = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return Peer(local=tuple(local[:2]) if local else None, remote=tuple(remote[:2]) if remote else None)


def is_own_process(peer: Peer) -> bool:
    """Is the other end of this loopback connection a process of our own uid and PID namespace (so: not a job)?"""
    if peer.remote is None or peer.local is None:
        return False
    found = _socket_of(peer.remote, peer.local)
    return found is not None and found[0] == os.geteuid() and _held_here(found[1])


def _socket_of(address: tuple[str, int], towards: tuple[str, int]) -> tuple[int, str] | None:
    """(uid, inode) of the socket bound to `address` and connected to `towards`."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if _is(fields[1], address) and _is(fields[2], towards):
                    return int(fields[7]), fields[9]
    return None


def _is(text: str, address: tuple[str, int]) -> bool:
    """Does `0100007F:1F90` mean this address? IPv4 addresses may also stand mapped into IPv6."""
    raw, port = text.split(":")
    if int(port, 16) != address[1]:
        return False
    host = address[0].removeprefix("::ffff:")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    words = b"".join(bytes.fromhex(raw[i : i + 8])[::-1] for i in range(0, len(raw), 8))
    return words == packed or words == b"\0" * 10 + b"\xff\xff" + packed


def _held_here(inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    ours = Path("/proc/self/ns/pid").readlink()
    return any(_holds(process, wanted) and _namespace(process) == ours for process in _processes())


def _processes() -> Iterator[Path]:
    return (Path("/proc", name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def _holds(process: Path, wanted: str) -> bool:
    with suppress(OSError):
        for number in os.listdir(process / "fd"):  # noqa: PTH208
            with suppress(OSError):
                if os.readlink(process / "fd" / number) == wanted:  # noqa: PTH115
                    return True
    return False


def _namespace(process: Path) -> Path | None:
    try:
        return (process / "ns/pid").readlink()
    except OSError:
        return None
