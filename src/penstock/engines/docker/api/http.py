"""HTTP/1.1 as a Docker engine speaks it: calls, endless answers, and upgraded connections."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Self

import h11

from penstock.engines.docker.api.transport import Transport

CLOSED = "the connection was closed"
UPGRADE = ((b"Connection", b"Upgrade"), (b"Upgrade", b"tcp"))


class ConnectionBroken(Exception):
    """The connection ended before the answer did."""


@dataclass(frozen=True)
class HttpBody:
    """The body of a request, sent piece by piece."""

    size: int
    pieces: AsyncIterator[bytes]
    kind: str = "application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @classmethod
    def of(cls, data: bytes, kind: str = "application/json", headers: tuple[tuple[bytes, bytes], ...] = ()) -> Self:
        async def once() -> AsyncIterator[bytes]:
            yield data

        return cls(len(data), once(), kind, headers)


class HttpConnection:
    """One connection, with one request at a time."""

    def __init__(self, wire: Transport) -> None:
        self.wire = wire
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self.status = 0
        self.used = False
        """It has answered before, so Docker may have closed it meanwhile."""

    async def ask(self, method: str, target: str, body: HttpBody | None = None, *, upgrade: bool = False) -> int:
        """Send a request and return the status of the answer; 101: the connection is a stream now."""
        headers = [(b"Host", b"docker"), *(UPGRADE if upgrade else ())]
        if body is not None or method != "GET":
            headers.append((b"Content-Length", str(body.size if body else 0).encode()))
        if body is not None:
            headers += [(b"Content-Type", body.kind.encode()), *body.headers]
        await self._send(h11.Request(method=method, target=target, headers=headers))
        if body is not None:
            async for piece in body.pieces:
                await self._send(h11.Data(data=piece))
        await self._send(h11.EndOfMessage())
        return await self._answer()

    async def _send(self, event: Any) -> None:
        data = self._http.send(event)
        try:
            if data:
                await self.wire.write(data)
        except OSError as error:
            if said := await self.wire.trouble():
                raise ConnectionBroken(said) from error
            raise

    async def _answer(self) -> int:
        while True:
            event = await self._next()
            if isinstance(event, h11.InformationalResponse) and event.status_code != 101:
                continue
            if isinstance(event, (h11.Response, h11.InformationalResponse)):
                self.status = event.status_code
                return self.status

    async def _next(self) -> Any:
        data = b"?"
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise ConnectionBroken(str(error) if data else CLOSED) from error
            if event is not h11.NEED_DATA:
                return event
            data = await self.wire.read()
            if not data and self._http.their_state in (h11.SEND_RESPONSE, h11.IDLE):
                raise ConnectionBroken(await self.wire.trouble() or CLOSED)
            self._http.receive_data(data)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the answer's body as it comes."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                return

    async def all(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    def left(self) -> bytes:
        """Return what came behind a 101 already."""
        return bytes(self._http.trailing_data[0])

    def again(self) -> bool:
        """Get ready for the next request, and say whether the connection can have one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self.used = True
        return True

    async def close(self) -> None:
        await self.wire.close()


_HEADER = struct.Struct(">BxxxL")


class FrameReader:
    """Takes the two outputs of a program apart that come mixed, in whatever pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that are whole by now."""
        found = []
        rest = self._rest + data
        while len(rest) >= _HEADER.size:
            number, length = _HEADER.unpack_from(rest)
            if len(rest) < _HEADER.size + length:
                break
            found.append((int(number), rest[_HEADER.size : _HEADER.size + length]))
            rest = rest[_HEADER.size + length :]
        self._rest = rest
        return found


class ProgramStream:
    """A connection that has become the input and the outputs of a program; a terminal has only one output."""

    def __init__(self, wire: Transport, first: bytes, *, tty: bool) -> None:
        self._wire, self._first = wire, first
        self._frames = None if tty else FrameReader()

    async def send(self, data: bytes) -> None:
        await self._wire.write(data)

    async def end_input(self) -> None:
        await self._wire.end_input()

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        data, self._first = self._first, b""
        while True:
            if data:
                for number, piece in self._frames.feed(data) if self._frames else [(1, data)]:
                    if piece:
                        yield (2 if number == 2 else 1), piece
            data = await self._wire.read()
            if not data:
                return

    async def close(self) -> None:
        await self._wire.close()
