"""Who is at the other end of a connection: by the kernel, never by what they say.

On a Unix socket the kernel tells the uid (SO_PEERCRED). On loopback TCP it can be found out, too: /proc/net/tcp has the
uid and the inode of the other socket, and a process of this PID namespace must hold that inode. A job has a PID
namespace of its own, so whatever cannot be found among our own processes is not believed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import select
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

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


class PeerSocket(WSProtocol):
    """A connection that has become a WebSocket. Its peer comes with the state of the request it began as, and so does
    its place in the count: it is given back here.

    `lost` in its state is set when the other end has hung up, even while nothing is read from it because the program
    behind it takes nothing: a client that is gone must not have to wait for that.
    """

    _counted: int | None = None
    _hangup: select.epoll | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = _quiet  # it would write down every command line
        peer, self._lost = peer_of(transport), asyncio.Event()
        self.app_state = self.app_state | {"peer": peer, "lost": self._lost}
        self._counted = None if peer.uid == os.geteuid() else peer.uid
        connection: Any = transport.get_extra_info("socket")
        self._hangup = select.epoll()
        self._hangup.register(connection.fileno(), select.EPOLLRDHUP | select.EPOLLONESHOT)
        self.loop.add_reader(self._hangup.fileno(), self._lost.set)
        if peer.uid is None:
            _notice_dead_peers(connection)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost.set()
        if self._hangup:
            self.loop.remove_reader(self._hangup.fileno())
            self._hangup.close()
            self._hangup = None
        if self._counted is not None:
            PeerProtocol.open_by_uid[self._counted] -= 1
            self._counted = None

    def shutdown(self) -> None:
        """The server stops. Routes know, and tell their clients why; only what they are done with is closed here."""
        if self.close_sent or not self.handshake_complete:
            super().shutdown()


_quiet = logging.getLogger(f"{__name__}.websocket")
_quiet.setLevel(logging.WARNING)
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}


def _notice_dead_peers(connection: Any) -> None:
    """By the kernel: an answer to a ping of ours may be held up behind data that someone takes their time to read."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


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
