"""A process that has read all of the server's code, and becomes a server as often as a test wants one.

Reading the code is most of what a start costs. What comes of it is what `python -m penstock.server` would be, but for
its command line; that one is started where a test has something to say about the environment of its process.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

LARGEST = 1 << 20
"""Bytes of an environment."""


class Forked:
    """A server: as much of a Popen as tests use of it."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid = int(connection.recv(64))
        self.returncode: int | None = None
        self._connection = connection.detach()
        self._lock = threading.Lock()
        weakref.finalize(self, os.close, self._connection)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired("penstock.server", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended, and we are about to be told
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            with self._lock:
                if self.returncode is None:
                    self.returncode = int(os.read(self._connection, 64))
        return self.returncode


def fork_server(environ: dict[str, str], ready: int, errors: int) -> Forked:
    """A server that says on one descriptor that it is ready, and writes its log to another."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(_origin(), [b"!"], [theirs.fileno(), ready, errors])
        ours.send(json.dumps(environ).encode())
    return Forked(ours)


@functools.cache
def _origin() -> socket.socket:
    """Of this test process, started when the first server is wanted. It ends with us: nobody asks it any more."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forking", str(theirs.fileno())],
            cwd=Path(__file__).parents[1],
            env=kept,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
    atexit.register(_end, process, ours)
    return ours


def _end(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    process.wait()


class _Origin:
    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._servers: dict[int, socket.socket] = {}

    def serve(self) -> None:
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            ready, _, _ = select.select([self._asked.fileno(), woken], [], [])
            if woken in ready:
                os.read(woken, 4096)
                self._reap()
            if self._asked.fileno() in ready:
                message, descriptors, _, _ = socket.recv_fds(self._asked, 1, 3)
                if not message:
                    return
                self._fork(*descriptors)

    def _fork(self, connection: int, ready: int, errors: int) -> None:
        caller = socket.socket(fileno=connection)
        environ = json.loads(caller.recv(LARGEST))
        if server := os.fork():
            os.close(ready)
            os.close(errors)
            self._servers[server] = caller
            caller.send(str(server).encode())
            return
        _become(environ, ready, errors)

    def _reap(self) -> None:
        while self._servers:
            server, status = os.waitpid(-1, os.WNOHANG)
            if not server:
                return
            with self._servers.pop(server) as caller:
                try:
                    caller.send(str(os.waitstatus_to_exitcode(status)).encode())
                except BrokenPipeError:
                    continue  # nobody wanted to know


def _become(environ: dict[str, str], ready: int, errors: int) -> NoReturn:
    """A server, with nothing open that is not its own."""
    from penstock.server.__main__ import main

    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(errors, 2)
        said = os.dup2(ready, 3)
        os.closerange(4, 1 << 16)
        os.environ.clear()
        os.environ.update(environ, PENSTOCK_READY_FD=str(said))
        sys.argv[:] = ["penstock.server"]
        code = main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    importlib.import_module("penstock.server.__main__")
    gc.freeze()
    _Origin(socket.socket(fileno=int(sys.argv[1]))).serve()
