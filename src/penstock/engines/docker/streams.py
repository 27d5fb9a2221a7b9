"""The two outputs of a program on one connection, as Docker mixes them: each piece behind its number and length."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

from penstock.engines.docker.wires import Wire

_HEADER = struct.Struct(">BxxxL")


class Frames:
    """Takes the mixture apart, whatever pieces it comes in."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Whole frames only."""
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


class Stream:
    """A connection that has become the input and the outputs of a program; a terminal has only one output."""

    def __init__(self, wire: Wire, first: bytes, *, tty: bool) -> None:
        self._wire, self._first = wire, first
        self._frames = None if tty else Frames()

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
