"""HTTP/1.1 over one socket, as much of it as a command needs: importing http.client would slow every command.

One connection carries one request. An answer is read by its length, by chunks, or until the server closes;
it can be read whole or followed as it comes.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator, Mapping

HEAD_LIMIT = 64 * 1024
PIECE = 64 * 1024
SWITCHED = 101
"""The connection speaks another protocol from here on."""

SendPiece = Callable[[bytes], None]
BodyWriter = Callable[[SendPiece], None]
"""Writes a body of unknown length with a function that sends the next piece."""


class NotHttp(ConnectionError):
    """Something answered, but not in HTTP."""


class Response:
    """A response with its status and headers read, and the body still to come."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""
        self.status, self.headers = self._read_head()
        while 100 <= self.status < 200 and self.status != SWITCHED:
            self.status, self.headers = self._read_head()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the body's bytes as they come; raise ConnectionError if the response ends too early."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            yield from self._chunked()
        elif (length := self.headers.get("content-length")) is not None:
            yield from self._exactly(int(length))
        else:
            yield from self._until_closed()

    def read(self) -> bytes:
        return b"".join(self)

    def ready(self, seconds: float) -> bool:
        """Wait this long for something to read, and tell whether there is."""
        held = getattr(self._connection, "pending", int)()  # bytes that TLS has read but not handed on
        return bool(self._buffer or held or select.select([self._connection], [], [], seconds)[0])

    def detach(self) -> tuple[socket.socket, bytes]:
        """Return the connection for another protocol, and the bytes of it that have come already."""
        return self._connection, self._buffer

    def close(self) -> None:
        self._connection.close()

    def _more(self) -> None:
        data = self._connection.recv(PIECE)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data

    def _line(self) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > HEAD_LIMIT:
                raise NotHttp("the answer has no end of line")
            self._more()
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.rstrip(b"\r")

    def _read_head(self) -> tuple[int, dict[str, str]]:
        version, _, rest = self._line().partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise NotHttp("the answer is not HTTP")
        headers = {}
        while line := self._line():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(rest[:3]), headers

    def _exactly(self, length: int) -> Iterator[bytes]:
        while length:
            if not self._buffer:
                self._more()
            piece, self._buffer = self._buffer[:length], self._buffer[length:]
            length -= len(piece)
            yield piece

    def _chunked(self) -> Iterator[bytes]:
        while size := self._chunk_size():
            yield from self._exactly(size)
            self._line()
        while self._line():
            pass

    def _chunk_size(self) -> int:
        try:
            return int(self._line().split(b";")[0], 16)
        except ValueError:
            raise NotHttp("a chunk has no length") from None

    def _until_closed(self) -> Iterator[bytes]:
        yield self._buffer
        while data := self._connection.recv(PIECE):
            yield data


def exchange(
    connection: socket.socket, method: str, target: str, headers: Mapping[str, str], body: bytes | BodyWriter | None
) -> Response:
    """Send one request and read the head of its response, which owns the connection from here on."""
    lines = [f"{method} {target} HTTP/1.1", *(() if "Connection" in headers else ("Connection: close",))]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if callable(body):
        lines.append("Transfer-Encoding: chunked")
    elif body is not None or method != "GET":
        lines.append(f"Content-Length: {len(body or b'')}")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    try:
        if callable(body):
            connection.sendall(head)
            body(lambda piece: _send_chunk(connection, piece))
            connection.sendall(b"0\r\n\r\n")
        else:
            connection.sendall(head + (body or b""))
    except (BrokenPipeError, ConnectionResetError):
        pass  # a server that refuses a body answers before it has read it all: the answer says why
    return Response(connection)


def _send_chunk(connection: socket.socket, piece: bytes) -> None:
    if piece:  # an empty chunk would end the body
        connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
