"""Connect this terminal to a program in a job, byte for byte.

A terminal is handed over whole (raw): every key, Ctrl-C too, is the program's. Whatever ends the conversation, the
terminal is given back as it was.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from penstock.cli.ui.output import note
from penstock.cli.ui.relay import RESIZE, RESULT, STDERR, STDOUT, Conversation, exit_code_of
from penstock.client.websocket import Closed, WebSocket
from penstock.errors import Unreachable

ENDING = (signal.SIGTERM, signal.SIGHUP)
BY_SIGNAL = 128
KILLED = BY_SIGNAL + signal.SIGKILL
LOST = "The connection to the server broke."
WHAT_BECOMES = "the program ends with it, on Docker hosts when the server is back; on Kubernetes it may go on"
PLAIN_SCREEN = b"\x1b7\x1b[?1049l\x1b[?1l\x1b>\x1b[?25h\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[0m"
"""Undoes what full-screen programs ask of a terminal: another screen, other keys, no cursor, pastes and clicks told,
colours. The place of the cursor is kept first: leaving a screen that was not entered would lose it."""


def size_of(*descriptors: int) -> tuple[int, int]:
    """Return the columns and rows of the first descriptor that is a terminal."""
    for descriptor in descriptors:
        try:
            columns, rows = os.get_terminal_size(descriptor)
        except OSError:
            continue
        if columns and rows:
            return columns, rows
    return 80, 24


@contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Put a terminal into raw mode, and restore it on every way out, including signals."""
    before = termios.tcgetattr(descriptor)

    def restore() -> None:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)

    atexit.register(restore)
    try:
        tty.setraw(descriptor, termios.TCSANOW)
        yield
    finally:
        restore()
        atexit.unregister(restore)


class TerminalSession(Conversation):
    def __init__(self, socket: WebSocket, *, terminal: bool, stdin: bool) -> None:
        super().__init__(socket, 0 if stdin else None)
        self._terminal = terminal

    def run(self) -> int:
        """Run until the program ends, and return its exit code."""
        raw_input = self._terminal and self._source is not None and os.isatty(0)
        with self._signals() as woken:
            try:
                if not raw_input:
                    return self._exchange(woken)
                with raw(0):
                    code = self._on_screen(woken)
                if code == KILLED:
                    note("The program was killed, or its job has ended.")
                return code
            except Closed as error:
                raise Unreachable(LOST, hint=WHAT_BECOMES) from error
            finally:
                self._socket.close()

    def _on_screen(self, woken: int) -> int:
        """Exchange data in raw mode; reset the screen if a program was killed and could not do it itself."""
        code = BY_SIGNAL
        try:
            code = self._exchange(woken, again=lambda: tty.setraw(0, termios.TCSANOW))
        finally:
            if code >= BY_SIGNAL and os.isatty(1):
                with suppress(OSError):  # it is gone itself
                    _write(1, PLAIN_SCREEN)
        return code

    def _exchange(self, woken: int, again: Any = None) -> int:
        if self._source is None:
            self._end_input()
        code = self._hear()  # what came along with the server's answer: of that the socket tells nothing any more
        while code is None:
            self._socket.flush()
            ready = self._ready({woken: select.POLLIN})
            if woken in ready:
                self._resize(os.read(woken, 4096), again)
            if self._source is not None and self._source in ready:
                self._read_input(self._source)
            if self._socket.fileno() in ready:
                code = self._hear()
        return code

    def _hear(self) -> int | None:
        """Print what has come; return the exit code once it is known."""
        for channel, data in self._messages():
            if channel == RESULT:
                return exit_code_of(data)
            if channel in (STDOUT, STDERR):
                _write(channel, data)
        return None

    def _resize(self, signals: bytes, again: Any) -> None:
        if not self._terminal:
            return
        if signal.SIGCONT in signals and again:
            again()  # the shell that had the terminal meanwhile has set it as it likes
        columns, rows = size_of(0, 1)
        size = json.dumps({"Width": columns, "Height": rows}).encode()
        self._socket.send(bytes([RESIZE]) + size)

    @contextmanager
    def _signals(self) -> Iterator[int]:
        """Yield a descriptor that is readable when the terminal changes; signals that end us unwind instead."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        before = {number: signal.signal(number, _leave) for number in ENDING}
        before |= {number: signal.signal(number, _note) for number in (signal.SIGWINCH, signal.SIGCONT)}
        old = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        try:
            yield woken
        finally:
            signal.set_wakeup_fd(old)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(woken)
            os.close(wake)


def _note(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wake-up descriptor tells."""


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(BY_SIGNAL + number)


def _write(descriptor: int, data: bytes) -> None:
    """Write everything: while nobody reads it, the program is not read either."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # whoever shares it with us has made it so
            select.select([], [descriptor], [])
