"""A WebSocket client, as much of it as the input and output of a program need.

Nothing waits here. What cannot be sent yet is kept until `flush`; `receive` gives what has come.
"""

from __future__ import annotations

import os
import socket
from binascii import b2a_base64
from collections.abc import Iterator

from penstock.client.http import PIECE, SWITCHED, Response

PROTOCOL = "v1.channel.penstock"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
LARGEST = 16 << 20
NORMAL = 1000


class Closed(ConnectionError):
    """The other side has closed it, or is gone."""


class Handshake:
    def __init__(self, protocol: str = PROTOCOL) -> None:
        self._protocol = protocol
        self._key = b2a_base64(os.urandom(16), newline=False)
        self.headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": self._key.decode(),
            "Sec-WebSocket-Protocol": protocol,
        }

    def accepted(self, answer: Response) -> bool:
        from hashlib import sha1

        proof = b2a_base64(sha1(self._key + GUID, usedforsecurity=False).digest(), newline=False).decode()
        said = answer.headers.get
        proven = said("sec-websocket-accept") == proof and said("sec-websocket-protocol") == self._protocol
        return answer.status == SWITCHED and proven


class WebSocket:
    def __init__(self, connection: socket.socket, data: bytes = b"") -> None:
        self._connection = connection
        self._in = bytearray(data)
        self._out = bytearray()
        self._message = bytearray()
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def unsent(self) -> int:
        return len(self._out)

    def send(self, message: bytes) -> None:
        self._frame(BINARY, message)

    def flush(self) -> None:
        """Send what can be sent without waiting."""
        while self._out:
            try:
                sent = self._connection.send(self._out[:PIECE])
            except OSError as error:
                if _would_block(error):
                    return
                raise Closed(str(error)) from error
            del self._out[:sent]

    def receive(self) -> Iterator[bytes]:
        """Yield the messages that have come; raise Closed once there will be no more."""
        ended = not self._fill()
        while (frame := self._next_frame()) is not None:
            yield from self._take(*frame)
        if ended:
            raise Closed("the server closed the connection")

    def close(self) -> None:
        """Close without waiting for the other side to agree."""
        try:
            self._frame(CLOSE, NORMAL.to_bytes(2))
            self.flush()
        except OSError:
            pass
        finally:
            self._connection.close()

    def _fill(self) -> bool:
        """Read once, with what TLS has buffered. False at the end."""
        while True:
            try:
                data = self._connection.recv(PIECE)
            except OSError as error:
                if _would_block(error):
                    return True
                raise Closed(str(error)) from error
            self._in += data
            if not data or not getattr(self._connection, "pending", int)():
                return bool(data)

    def _next_frame(self) -> tuple[bool, int, bytes] | None:
        if len(self._in) < 2:
            return None
        final, opcode, length, start = bool(self._in[0] & 0x80), self._in[0] & 0x0F, self._in[1], 2
        if length >= 126:
            start = 4 if length == 126 else 10
            if len(self._in) < start:
                return None
            length = int.from_bytes(self._in[2:start])
        if length > LARGEST:
            raise Closed("the server sent something that is no message of ours")
        if len(self._in) < start + length:
            return None
        data = bytes(self._in[start : start + length])
        del self._in[: start + length]
        return final, opcode, data

    def _take(self, final: bool, opcode: int, data: bytes) -> Iterator[bytes]:
        if opcode == CLOSE:
            raise Closed(data[2:].decode(errors="replace") or "the server closed the connection")
        if opcode == PING:
            self._frame(PONG, data)
        elif opcode in (CONTINUED, TEXT, BINARY):
            self._message += data
            if final:
                yield bytes(self._message)
                self._message.clear()

    def _frame(self, opcode: int, data: bytes) -> None:
        length = len(data)
        if length < 126:
            size = bytes([0x80 | length])
        else:
            size = b"\xfe" + length.to_bytes(2) if length < 1 << 16 else b"\xff" + length.to_bytes(8)
        key = os.urandom(4)
        self._out += bytes([0x80 | opcode]) + size + key + _masked(data, key)


def _masked(data: bytes, key: bytes) -> bytes:
    """Mask data as the protocol requires of clients, as one large number: a loop over bytes takes far
    longer."""
    length = len(data)
    mask = (key * (length // 4 + 1))[:length]
    return (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(length)


def _would_block(error: OSError) -> bool:
    """Tell whether the call would block; TLS has exceptions of its own, from a module that is imported only if used."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")
