"""Start a program inside a running node, with its input, output and terminal."""

from __future__ import annotations

import asyncio
import marshal
import os
import select
import socket
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from shlex import quote
from typing import Any

from penstock.engines.base import Terminal
from penstock.engines.local import runs
from penstock.engines.local.spec.plan import BASH
from penstock.engines.local.state.parts import find_part
from penstock.errors import Conflict, Unavailable

BOOT = (
    "import marshal, sys; asked = marshal.load(open(int(sys.argv[1]), 'rb')); "
    "sys.path.append(asked['packages']); from penstock.engines.local.supervisor.enter import main; main(asked)"
)
"""Its orders come by a descriptor: for a moment a job can read its command line."""
TERM = '[ "$TERM" != dumb ] || export TERM=xterm-256color;'
"""The kind of terminal unless the job says otherwise: all that are in use today understand this one."""
PIECE = 1 << 16
PATIENCE = 60.0
"""Seconds until a program must have been started."""
DRAIN = 0.2
"""Seconds without output after which no more is awaited, once the program itself has ended."""
END_PATIENCE = 10.0


async def start_program(run_dir: Path, part: int, command: Sequence[str], terminal: Terminal | None) -> LocalSession:
    """Start a program; raises Conflict if that part does not run."""
    asked = await asyncio.to_thread(_plan, run_dir, part, command, terminal)
    session = LocalSession(asked, terminal)
    try:
        await session.begin()
    except BaseException:
        await session.close()
        raise
    return session


# -- what is to be entered ---------------------------------------------------------------------------------------


def _plan(run_dir: Path, part: int, command: Sequence[str], terminal: Terminal | None) -> dict[str, Any]:
    entered = find_part(run_dir, part)
    node = entered.node
    scripts = node["argv"][-1].rpartition("/")[0]
    begin = f'. {quote(scripts)}/enter.sh; {TERM if terminal else ""} exec -- "$@"'
    index = {"JOB_COMPLETION_INDEX": str(part)} if entered.array else {}
    return {
        "packages": str(runs.PACKAGES),
        "supervisor": entered.supervisor,
        "pid": entered.pid,
        "kept": entered.kept,
        "cgroups": [group["join"] for group in node["cgroups"]],
        "identity": node["identity"],
        "inside": _inside(node["argv"]),
        "filter": node.get("filter", b""),  # what began before an upgrade has none
        "shell": BASH,
        "argv": ["bash", "--noprofile", "--norc", "-c", begin, "penstock", *command],
        "env": node["env"] | index,
    }


def _inside(argv: Sequence[str]) -> dict[str, Any] | None:
    """Return the account that is taken on inside a sandbox of root's; see `identity`."""
    words = dict(word.split("=", 1) for word in argv if word.startswith("--re") or word.startswith("--groups="))
    if "--reuid" not in words:
        return None
    groups = [int(number) for number in words.get("--groups", "").split(",") if number]
    return {"uid": int(words["--reuid"]), "gid": int(words["--regid"]), "groups": groups}


# -- the session -------------------------------------------------------------------------------------------------


class LocalSession:
    """A program that was started. Its output is read only when it is asked for: one that prints faster waits."""

    def __init__(self, asked: dict[str, Any], terminal: Terminal | None) -> None:
        self._asked = asked
        self._terminal = terminal
        self._loop = asyncio.get_running_loop()
        self._control, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        self._process: subprocess.Popen[bytes] | None = None
        self._input = -1
        self._outputs: dict[int, int] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._closed = False

    async def begin(self) -> None:
        lent = [] if self._terminal else self._make_pipes()
        self._asked |= {
            "control": self._theirs.fileno(),
            "stdio": lent or None,
            "size": _size(self._terminal) if self._terminal else None,
        }
        try:
            self._process = await self._loop.run_in_executor(runs.SPAWNING, _spawn, self._asked)
        except OSError as error:
            raise Unavailable(f"The program could not be started: {error.strerror}.") from error
        finally:
            self._theirs.close()
            for fd in lent:
                os.close(fd)
        await self._until_ready()

    def _make_pipes(self) -> list[int]:
        """Make pipes and return the program's three ends."""
        stdin, self._input = os.pipe2(os.O_CLOEXEC)
        ours, stdout = os.pipe2(os.O_CLOEXEC)
        our_errors, stderr = os.pipe2(os.O_CLOEXEC)
        self._outputs = {ours: 1, our_errors: 2}
        for fd in (self._input, *self._outputs):
            os.set_blocking(fd, False)
        return [stdin, stdout, stderr]

    async def _until_ready(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._when([self._control.fileno()])
        except TimeoutError:
            raise Unavailable(f"The program had not started after {PATIENCE:.0f} seconds.") from None
        said, fds, _, _ = socket.recv_fds(self._control, 4096, 1, socket.MSG_CMSG_CLOEXEC)
        if fds:
            os.set_blocking(fds[0], False)
            self._input = fds[0]
            self._outputs = {fds[0]: 1}
        word, _, rest = said.decode(errors="replace").partition(" ")
        if word == "gone":
            raise Conflict("It is not running: it has just ended.")
        if word != "ready":
            raise Unavailable(f"The node could not be entered: {rest or 'it said nothing'}.")
        self._loop.add_reader(self._control.fileno(), self._hear_end)

    def _hear_end(self) -> None:
        self._loop.remove_reader(self._control.fileno())
        said = b""
        with suppress(OSError):
            said = self._control.recv(4096)
        word, _, code = said.partition(b" ")
        if not self._ended.done():
            self._ended.set_result(int(code) if word == b"exit" else 137)
        self._wake()

    # what the protocol asks for

    async def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and self._input >= 0 and not self._closed:
            try:
                rest = rest[os.write(self._input, rest[:PIECE]) :]
            except BlockingIOError:
                await self._when([self._input], writable=True)
            except OSError:  # it reads no more
                return

    async def end_input(self) -> None:
        """End the input. A terminal has no end but a character for it, which a program may also take as any other."""
        if self._terminal:
            await self.send(b"\x04")
        elif self._input >= 0:
            os.close(self._input)
            self._input = -1

    async def resize(self, size: Terminal) -> None:
        if self._terminal and not self._closed:
            with suppress(OSError):
                ioctl(self._input, termios.TIOCSWINSZ, _size(size))

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield output until the program has ended and all it printed was read. What it left running may hold its pipes
        for long."""
        left = dict(self._outputs)
        while left and not self._closed:
            for fd in await self._readable(left):
                try:
                    data = os.read(fd, PIECE)
                except BlockingIOError:
                    continue
                except OSError:  # how a terminal says that nobody holds it any more
                    data = b""
                if data:
                    yield left[fd], data
                else:
                    del left[fd]
            if left and self._ended.done() and not await self._more_comes(left):
                return

    async def exit_code(self) -> int:
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        """Hang up the control socket: that ends the program and all that it started.

        The other ends stay open until then: a terminal that goes away would end the program alone.
        """
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._control.fileno())
        for fd in {self._input, *self._outputs} - {-1}:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
        self._wake()
        self._control.close()
        self._theirs.close()
        try:
            if self._process:
                gone = _reap(self._process)
                if not self._ended.done():
                    self._ended.set_result(137)
                    await asyncio.wait([gone], timeout=END_PATIENCE)  # longer only if something hangs in the kernel
        finally:
            for fd in {self._input, *self._outputs} - {-1}:
                os.close(fd)
            self._input, self._outputs = -1, {}

    # waiting

    async def _readable(self, fds: Iterable[int]) -> list[int]:
        """Return the descriptors that have something to read; wait for that, or for the end."""
        if ready := _ready(fds):
            return ready
        if not self._ended.done():
            await self._when(fds)
        return _ready(fds) if not self._closed else []

    async def _more_comes(self, fds: Iterable[int]) -> bool:
        if _ready(fds):
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                await self._when(fds)
        return not self._closed and bool(_ready(fds))

    async def _when(self, fds: Iterable[int], *, writable: bool = False) -> None:
        """Return when one of the descriptors can be read, or written, or the session has ended."""
        loop = self._loop
        add, remove = (loop.add_writer, loop.remove_writer) if writable else (loop.add_reader, loop.remove_reader)
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.add(waiting)
        watched = list(fds)
        for fd in watched:
            add(fd, _resolve, waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)
            if not self._closed:
                for fd in watched:
                    remove(fd)

    def _wake(self) -> None:
        for waiting in self._waiting:
            _resolve(waiting)


def _resolve(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _ready(fds: Iterable[int]) -> list[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(0)]


def _size(terminal: Terminal) -> bytes:
    return struct.pack("HHHH", terminal.rows, terminal.columns, 0, 0)


def _spawn(asked: dict[str, Any]) -> subprocess.Popen[bytes]:
    told = os.memfd_create("asked", os.MFD_CLOEXEC)
    try:
        with open(told, "wb", closefd=False) as file:
            marshal.dump(asked, file)
        os.lseek(told, 0, os.SEEK_SET)
        return runs.spawn(BOOT, [str(told)], [told, asked["control"], *(asked["stdio"] or ())])
    finally:
        os.close(told)


def _reap(process: subprocess.Popen[bytes]) -> asyncio.Future[None]:
    """Return a future that is done when the process has ended: without a sandbox that may be long after its program."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    handle = os.pidfd_open(process.pid)

    def ended() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        process.wait()
        _resolve(done)

    loop.add_reader(handle, ended)
    return done
