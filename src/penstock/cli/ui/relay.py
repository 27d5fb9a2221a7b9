"""Relay bytes between descriptors and a program in a job, over a WebSocket.

Neither direction waits for the other: what cannot be passed on yet is kept, a little of it, and no more is read
until it is gone.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator
from time import monotonic

from penstock.client.websocket import Closed, WebSocket
from penstock.errors import Unreachable, from_body

STDIN, STDOUT, STDERR, RESULT, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PIECE = 32 * 1024
AHEAD = 256 * 1024
"""Bytes buffered in either direction."""
SILENCE_SECONDS = 90.0
"""The server sends something every 20 seconds."""
GONE = select.POLLERR | select.POLLHUP
LOST = "The connection to the server broke, and what went through it has ended."


class Conversation:
    """A connection to a program, whose input is read from `source`; None where it has none (any more)."""

    def __init__(self, socket: WebSocket, source: int | None) -> None:
        self._socket = socket
        self._source = source
        self._heard_at = monotonic()

    def _ready(self, wanted: dict[int, int], *, hearing: bool = True) -> dict[int, int]:
        """Poll what is wanted, the connection, and the input if there is room for more of it."""
        events = select.POLLIN if hearing else 0
        wanted[self._socket.fileno()] = events | (select.POLLOUT if self._socket.unsent else 0)
        if self._source is not None and self._socket.unsent < AHEAD:
            wanted[self._source] = wanted.get(self._source, 0) | select.POLLIN
        poll = select.poll()
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        left = self._heard_at + SILENCE_SECONDS - monotonic()
        found = dict(poll.poll(max(left, 0.05) * 1000))
        if not found and left <= 0 and hearing:
            raise Closed("the server says nothing any more")
        return found

    def _messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield the channel and the data of each message that has come."""
        for message in self._socket.receive():
            if message:
                yield message[0], message[1:]
        self._heard_at = monotonic()

    def _read_input(self, source: int) -> None:
        try:
            data = os.read(source, PIECE)
        except BlockingIOError:
            return
        except OSError:  # whoever wrote it is gone
            data = b""
        if data:
            self._socket.send(bytes([STDIN]) + data)
        else:
            self._end_input()

    def _end_input(self) -> None:
        self._source = None
        self._socket.send(bytes([CLOSE, STDIN]))


def exit_code_of(result: bytes) -> int:
    """Return the program's exit code, or raise the error that ended the connection."""
    found = json.loads(result)
    if "exit_code" in found:
        return int(found["exit_code"])
    raise from_body(500, found.get("error"))


class Relay(Conversation):
    def __init__(self, socket: WebSocket, source: int, sink: int) -> None:
        """`source` and `sink` must be non-blocking."""
        super().__init__(socket, source)
        self._sink = sink
        self._kept = bytearray()
        """Bytes received that could not be written yet."""
        self._result: bytes | None = None

    def run(self) -> None:
        """Relay until the program has ended the connection; raise if something else did."""
        try:
            self._hear()  # what came along with the server's answer: of that the socket tells nothing any more
            while self._result is None:
                self._turn()
            while self._kept:
                select.select([], [self._sink], [])
                self._write()
        except Closed as error:
            raise Unreachable(LOST) from error
        except ConnectionError:
            return  # whoever wanted it here has gone
        finally:
            self._socket.close()
        exit_code_of(self._result)

    def _turn(self) -> None:
        self._socket.flush()
        wanted = {self._sink: select.POLLOUT if self._kept else 0}  # always, to learn when its reader is gone
        ready = self._ready(wanted, hearing=len(self._kept) < AHEAD)
        if ready.get(self._sink, 0) & GONE and self._source is None:
            raise BrokenPipeError
        if self._socket.fileno() in ready:
            self._hear()
        if self._source is not None and self._source in ready:
            self._read_input(self._source)
        if self._kept:
            self._write()

    def _hear(self) -> None:
        for channel, data in self._messages():
            if channel == RESULT:
                self._result = data
                return
            if channel == STDOUT:
                self._kept += data

    def _write(self) -> None:
        try:
            written = os.write(self._sink, self._kept[:PIECE])
        except BlockingIOError:
            return
        del self._kept[:written]
