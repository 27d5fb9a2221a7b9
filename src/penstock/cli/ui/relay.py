"""Relay bytes between two descriptors and a connection to a program in a job.

Neither direction waits for the other: what cannot be passed on yet is kept, a little of it, and no more is read
until it is gone.
"""

from __future__ import annotations

import json
import os
import select
from time import monotonic

from penstock.client.websocket import Closed, WebSocket
from penstock.errors import PenstockError, Unreachable, from_body

SENT, CAME, RESULT, CLOSE = 0, 1, 3, 255
PIECE = 64 * 1024
AHEAD = 256 * 1024
"""Bytes buffered in either direction."""
SILENCE_SECONDS = 90.0
"""The server sends something every 20 seconds."""
GONE = select.POLLERR | select.POLLHUP
LOST = "The connection to the server broke, and what went through it has ended."


class Relay:
    def __init__(self, there: WebSocket, source: int, sink: int) -> None:
        """`source` and `sink` must be non-blocking."""
        self._there = there
        self._source, self._sink = source, sink
        self._reading = True
        self._kept = bytearray()
        """Bytes received that could not be written yet."""
        self._ended: PenstockError | bool = False
        self._heard_at = monotonic()

    def run(self) -> None:
        """Relay until the program has ended the connection; raise if something else did."""
        try:
            self._hear()  # what came along with the server's answer: of that the socket tells nothing any more
            while not (self._ended and not self._kept):
                self._turn()
        except Closed as error:
            raise Unreachable(LOST) from error
        except (BrokenPipeError, ConnectionError):
            return  # whoever wanted it here has gone
        finally:
            self._there.close()
        if isinstance(self._ended, PenstockError):
            raise self._ended

    def _turn(self) -> None:
        if not self._ended:
            self._there.flush()
        ready = self._ready()
        if ready.get(self._sink, 0) & GONE and not self._reading:
            raise BrokenPipeError
        if self._there.fileno() in ready and not self._ended:
            self._hear()
        if self._source in ready and self._reading:
            self._read()
        if self._kept:
            self._write()

    def _ready(self) -> dict[int, int]:
        """Poll the descriptors; the sink always, to learn when its reader is gone."""
        wanted = {self._sink: select.POLLOUT if self._kept else 0}
        if not self._ended:
            more = select.POLLIN if len(self._kept) < AHEAD else 0
            wanted[self._there.fileno()] = more | (select.POLLOUT if self._there.unsent else 0)
        if self._reading and not self._ended and self._there.unsent < AHEAD:
            wanted[self._source] = wanted.get(self._source, 0) | select.POLLIN
        poll = select.poll()
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        left = self._heard_at + SILENCE_SECONDS - monotonic()
        found = dict(poll.poll(max(left, 0.05) * 1000))
        if not found and left <= 0 and len(self._kept) < AHEAD:
            raise Closed("the server says nothing any more")
        return found

    def _read(self) -> None:
        try:
            data = os.read(self._source, PIECE)
        except BlockingIOError:
            return
        if data:
            self._there.send(bytes([SENT]) + data)
        else:
            self._reading = False
            self._there.send(bytes([CLOSE, SENT]))

    def _hear(self) -> None:
        for message in self._there.receive():
            channel, data = message[0] if message else CAME, message[1:]
            if channel == RESULT:
                found = json.loads(data)
                self._ended = True if "exit_code" in found else from_body(500, found.get("error"))
                break
            if channel == CAME:
                self._kept += data
        self._heard_at = monotonic()

    def _write(self) -> None:
        try:
            written = os.write(self._sink, self._kept[:PIECE])
        except BlockingIOError:
            return
        del self._kept[:written]
