"""Identify the process at the other end of a connection, by the kernel.

On a Unix socket the kernel tells the uid (SO_PEERCRED). On loopback TCP it can be found out, too: /proc/net/tcp has the
uid and the inode of the other socket, and processes of this PID namespace must hold that inode, and they alone. A job
has a PID namespace of its own, so whatever is held by another than our own processes is not believed.
"""

# ruff: noqa: PTH115, PTH208
from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from penstock.domain.names import shorten
from penstock.engines.shared.processes import pids, read_text, read_values, sockets_of, tcp_sockets
from penstock.errors import HeadTooLarge, PenstockError, TooSlow
from penstock.server.limits import BODY_SECONDS, HEAD_BYTES, HEAD_SECONDS, Connections, Holder, address_of, refusal
from penstock.services.people.accounts import user_name


@dataclass(frozen=True)
class Peer:
    """`uid` where the kernel says it; `local` and `remote` are TCP addresses."""

    uid: int | None = None
    gid: int | None = None
    local: tuple[str, int] | None = None
    remote: tuple[str, int] | None = None

    @property
    def holder(self) -> Holder | None:
        """Return who the connection counts for; the server's own account is not counted."""
        if self.uid is not None:
            return None if self.uid == os.geteuid() else self.uid
        return address_of(self.remote[0]) if self.remote else None


class PeerProtocol(HttpToolsProtocol):
    """Puts the peer of the connection into each request's state, and keeps one peer from taking all there is."""

    counted: ClassVar[Connections]
    """Set once the settings are known."""
    ticks: ClassVar[int] = 0
    """Seconds that were counted by `close_stalled`."""
    _holder: Holder | None = None
    _deadline: int | None = None
    """The tick until which more of the request must come; None while nothing of one is being read."""
    _beside = 0
    """Bytes since the last that belonged to a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = peer_of(transport)
        self.app_state = self.app_state | {"peer": peer}
        self._deadline = self.ticks + HEAD_SECONDS
        self._holder = peer.holder
        if self._holder is not None and (refused := self.counted.take(self._holder)):
            transport.write(refusal(refused))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._holder is not None:
            self.counted.give_back(self._holder)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._deadline is None:
            self._deadline = self.ticks + HEAD_SECONDS
        self._beside += len(data)
        super().data_received(data)
        if self._beside > HEAD_BYTES and not self.transport.is_closing():
            self._refuse(_too_large())

    def on_headers_complete(self) -> None:
        if self._beside > HEAD_BYTES and _size(self.url, self.headers) > HEAD_BYTES:
            raise _too_large()  # data_received answers with send_400_response
        self._beside = 0
        self._deadline = self.ticks + BODY_SECONDS
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._beside = 0
        self._deadline = self.ticks + BODY_SECONDS
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._beside = 0
        self._deadline = None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._beside > HEAD_BYTES:
            self._refuse(_too_large())
        else:
            super().send_400_response(msg)

    def close_if_stalled(self) -> None:
        """Refuse a request that stalls; a peer is not blamed while the server itself does not read."""
        if self._deadline is None or self.ticks <= self._deadline or self.flow.read_paused:
            return
        self._refuse(TooSlow("The rest of the request did not come in time."))

    def _refuse(self, error: PenstockError) -> None:
        begun = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not begun and not self.transport.get_write_buffer_size():
            self.transport.write(refusal(error))
            self.transport.close()
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # nobody takes what was written: closing would wait for that
        else:
            self.transport.close()


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(f"What comes beside the body of a request is limited to {HEAD_BYTES // 1024} KiB.")


def _size(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """Return the head's size as sent: each header has a colon, a space and the end of its line."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def close_stalled(connections: Iterable[object]) -> None:
    """Check the deadlines; call it once a second."""
    PeerProtocol.ticks += 1
    for connection in list(connections):
        if isinstance(connection, PeerProtocol):
            connection.close_if_stalled()


class PeerSocket(WSProtocol):
    """A connection that has become a WebSocket. Its peer comes with the state of the request it began as, and so does
    its place in the count: it is given back here.

    `lost` in its state is set when the other end has hung up, even while nothing is read from it because the program
    behind it takes nothing: a client that is gone must not have to wait for that.
    """

    _holder: Holder | None = None
    _hangup: select.epoll | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = _quiet  # it would write down every command line
        peer, self._lost = peer_of(transport), asyncio.Event()
        self.app_state = self.app_state | {"peer": peer, "lost": self._lost}
        self._holder = peer.holder
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
        if self._holder is not None:
            PeerProtocol.counted.give_back(self._holder)

    def shutdown(self) -> None:
        """Close only what routes are done with when the server stops: they tell their clients why."""
        if self.close_sent or not self.handshake_complete:
            super().shutdown()


_quiet = logging.getLogger(f"{__name__}.websocket")
_quiet.setLevel(logging.WARNING)
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}


def _notice_dead_peers(connection: Any) -> None:
    """Detect dead peers by the kernel's keepalive: an answer to a ping may be stuck behind data that is read slowly."""
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
    """Tell whether the other end of this loopback connection belongs to our own uid and PID namespace (so: not to a
    job), and to nobody else."""
    if peer.remote is None or peer.local is None:
        return False
    found = _socket_of(peer.remote, peer.local)
    return found is not None and found[0] == os.geteuid() and _held_here_alone(found[1])


def _socket_of(address: tuple[str, int], towards: tuple[str, int]) -> tuple[int, str] | None:
    """Return uid and inode of the socket bound to `address` and connected to `towards`."""
    for fields in tcp_sockets():
        if _is(fields[1], address) and _is(fields[2], towards):
            return int(fields[7]), fields[9]
    return None


def _is(text: str, address: tuple[str, int]) -> bool:
    """Tell whether `0100007F:1F90` is this address; IPv4 addresses may be mapped into IPv6."""
    raw, port = text.split(":")
    if int(port, 16) != address[1]:
        return False
    host = address[0].removeprefix("::ffff:")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    words = b"".join(bytes.fromhex(raw[i : i + 8])[::-1] for i in range(0, len(raw), 8))
    return words == packed or words == b"\0" * 10 + b"\xff\xff" + packed


def _held_here_alone(inode: str) -> bool:
    """Tell whether all holders of a socket are our own: it can be handed on, also out of a job."""
    ours = os.readlink("/proc/self/ns/pid")
    held = False
    for pid in pids():
        holding = _holds(pid, inode)
        if holding is None and _is_a_job_of_ours(pid):
            return False
        if holding and _namespace(pid) != ours:
            return False
        held = held or bool(holding)
    return held


def _is_a_job_of_ours(pid: int) -> bool:
    """Tell whether a process runs as this account in a PID namespace below ours, which everybody may see of it."""
    status = read_values(f"/proc/{pid}/status")
    return str(os.geteuid()) in status.get("Uid", "").split() and len(status.get("NSpid", "").split()) > 1


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def _holds(pid: int, inode: str) -> bool | None:
    """Tell whether a process holds a socket; None if that may not be seen."""
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):
                if os.readlink(f"/proc/{pid}/fd/{number}") == f"socket:[{inode}]":
                    return True
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    except OSError:
        return None
    return False


LISTENS = "0A"


def who_listens(port: int) -> str:
    """Say who holds a TCP port."""
    for fields in tcp_sockets():
        if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
            found = next((pid for pid in pids() if int(fields[9]) in sockets_of(pid)), None)
            named = shorten((read_text(f"/proc/{found}/comm") or "ended").strip())
            who = f"process {found} ({named})" if found else "a process that cannot be seen from here"
            return f"Port {port} is held by {who} of {user_name(int(fields[7]))} (uid {fields[7]})"
    return f"Port {port} is held by a process that cannot be seen from here"
