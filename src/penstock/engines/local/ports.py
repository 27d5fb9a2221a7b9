"""Connect to a program of a run that listens on this machine.

Jobs share the machine's network, so a port alone does not say whose it is: nobody must reach other people's programs,
or the machine's own, through the server. We connect only where every socket that could take the connection is held open
by a process of that run, and look again afterwards: a socket keeps its number for as long as it exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.engines.base import Terminal
from penstock.engines.local.state.parts import RunningPart, find_part, part_processes
from penstock.engines.shared.processes import sockets_of, tcp_sockets
from penstock.errors import Conflict, Unavailable

LISTENING = "0A"
PIECE = 1 << 16
PATIENCE = 10.0
ANY4, LOCAL4 = "00000000", "0100007F"
ANY6, LOCAL6, LOCAL4_IN_6 = "0" * 32, "0" * 24 + "01000000", "0" * 16 + "FFFF0000" + LOCAL4


class Loopback(NamedTuple):
    host: str
    takers: frozenset[str]
    """The addresses, as the kernel writes them, that take a connection to this host."""


WAYS = (
    Loopback("127.0.0.1", frozenset({ANY4, LOCAL4, ANY6, LOCAL4_IN_6})),
    Loopback("::1", frozenset({ANY6, LOCAL6})),
)


async def connect(run_dir: Path, part: int, port: int) -> PortConnection:
    """Connect to a part; raises Conflict if nothing of it listens there."""
    for way in WAYS:
        allowed = await asyncio.to_thread(_allowed, run_dir, part, port, way)
        if not allowed:
            continue
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(way.host, port, limit=PIECE)
        except ConnectionRefusedError:  # a socket for both families may be closed to one of them
            continue
        except (OSError, TimeoutError) as error:
            raise Unavailable(f"Port {port} does not answer: {error or 'no answer in time'}.") from error
        connected = PortConnection(reader, writer)
        if await asyncio.to_thread(_takers, port, way) == allowed:
            return connected
        await connected.close()
    raise Conflict(f"Nothing of it listens on port {port} of 127.0.0.1.")


def _allowed(run_dir: Path, part: int, port: int, way: Loopback) -> set[int]:
    """Return the sockets that would take the connection, if all of them belong to the part; else none."""
    takers = _takers(port, way)
    return takers if takers and takers <= _sockets(find_part(run_dir, part)) else set()


def _takers(port: int, way: Loopback) -> set[int]:
    """Return the numbers of the sockets on this machine that would take the connection."""
    found = set()
    for fields in tcp_sockets():
        address, _, number = fields[1].rpartition(":")
        if fields[3] == LISTENING and int(number, 16) == port and address in way.takers:
            found.add(int(fields[9]))
    return found


def _sockets(part: RunningPart) -> set[int]:
    return {socket for process in part_processes(part) for socket in sockets_of(process.pid)}


class PortConnection:
    """A connection in the form of a session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        with suppress(ConnectionError):  # what is read tells that it has ended
            self._writer.write(data)
            await self._writer.drain()

    async def end_input(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    async def resize(self, size: Terminal) -> None:
        """A connection has no size."""

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        with suppress(ConnectionError):
            while data := await self._reader.read(PIECE):
                yield 1, data

    async def exit_code(self) -> int:
        return 0

    async def close(self) -> None:
        """Close at once: what was not taken by now is not wanted."""
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()
