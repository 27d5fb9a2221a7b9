"""`exec`: a program beside the job's own, in its container.

Docker neither gives a terminal its size before the program looks nor ends the program when its user has gone. Where the
container has bash, a few lines of it do both; elsewhere the end of its input has to do.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from penstock.engines.base import Run, Terminal
from penstock.engines.docker.api import Api, Fields
from penstock.engines.docker.failures import ApiError, Clash, NotFound, Unreachable, as_ours, shown
from penstock.engines.docker.hosts import Hosts
from penstock.engines.docker.script import BASH
from penstock.engines.docker.seen import Seen
from penstock.engines.docker.streams import Stream
from penstock.engines.inside import ENTER, LEAVE
from penstock.errors import Conflict, Unavailable

LEAVE_SECONDS = 10.0
CODE_SECONDS = 30.0
NOT_STARTED = b"OCI runtime exec failed: "
"""So begins what Docker says, as if the program did, of one that it could not start."""
_PROGRAM = re.compile(r'exec: "(.*?)": (.*)')
_NOT_THERE = ("file not found in $PATH", "no such file or directory")
NOT_EXECUTABLE_CODE, NOT_FOUND_CODE = 126, 127
NOT_RUNNING = "It does not run now: a program can be started only in what runs."


class Entered:
    """A session as every engine has it."""

    def __init__(
        self, api: Api, container: str, exec_id: str, stream: Stream, mark: str | None, *, tty: bool = False
    ) -> None:
        self._api, self._container = api, container
        self._exec_id, self._stream = exec_id, stream
        self._mark = mark
        """What its processes have in their environment; None if they cannot be told from others."""
        self._line_end = "\r\n" if tty else "\n"
        self._code: int | None = None
        self._over = asyncio.Event()

    async def send(self, data: bytes) -> None:
        with suppress(OSError):  # it has just ended: its code says more
            await self._stream.send(data)

    async def end_input(self) -> None:
        with suppress(OSError):
            await self._stream.end_input()

    async def resize(self, size: Terminal) -> None:
        try:
            await self._api.resize(self._exec_id, size.columns, size.rows)
        except Unreachable as error:
            raise as_ours(error) from error
        except ApiError:
            return  # it has just ended

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        held = b""
        try:
            async for number, data in self._stream.output():
                if held:
                    yield 1, held
                    held = b""
                if self._mark is None and number == 1 and data.startswith(NOT_STARTED):
                    held = data
                else:
                    yield number, data
        except OSError as error:
            raise Unavailable(f"The connection to the program was lost: {error}.") from error
        self._over.set()
        if held:
            yield await self._last(held)

    async def _last(self, data: bytes) -> tuple[int, bytes]:
        """The only thing that was said: by the program, if there was one."""
        if await self.exit_code() not in (NOT_EXECUTABLE_CODE, NOT_FOUND_CODE):
            return 1, data
        self._code, said = not_started(data.decode(errors="replace").strip())
        return 2, f"{said}{self._line_end}".encode()

    async def exit_code(self) -> int:
        if not self._over.is_set():
            async for _ in self.output():
                pass
        if self._code is None:
            with shown():
                self._code = await self._ended()
        return self._code

    async def _ended(self) -> int:
        """Its output ends a moment before Docker knows its code."""
        try:
            async with asyncio.timeout(CODE_SECONDS):
                while True:
                    state: Fields = await self._api.exec_state(self._exec_id)
                    if not state.get("Running") and state.get("ExitCode") is not None:
                        return int(state["ExitCode"])
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self._over.clear()
            raise Unavailable("The connection to the program was lost; it still runs.") from None

    async def close(self) -> None:
        await self._stream.close()
        if self._code is None and self._mark and not self._over.is_set():
            await self._end(self._mark)

    async def _end(self, mark: str) -> None:
        body: Fields = {"Cmd": [BASH, "-c", LEAVE, "bash", mark], "AttachStdout": True, "AttachStderr": True}
        with suppress(ApiError, TimeoutError, OSError):
            async with asyncio.timeout(LEAVE_SECONDS):
                _, stream = await self._api.exec(self._container, body)
                try:
                    async for _ in stream.output():
                        pass
                finally:
                    await stream.close()


async def enter(hosts: Hosts, run: Run, part: int, command: Sequence[str], terminal: Terminal | None) -> Entered:
    seen: Seen | None = hosts.parts(run).get(part)
    if seen is None or not seen.runs:
        raise Conflict(NOT_RUNNING)
    mark = secrets.token_hex(8) if seen.has_bash else None
    body: Fields = {
        "Cmd": [BASH, "-c", ENTER, "bash", mark, *command] if mark else list(command),
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": terminal is not None,
    }
    with shown():
        api = hosts.link(seen.host).api
        try:
            exec_id, stream = await api.exec(seen.id, body)
        except (NotFound, Clash):
            raise Conflict("It has just ended.") from None
    entered = Entered(api, seen.id, exec_id, stream, mark, tty=terminal is not None)
    if terminal:
        await entered.resize(terminal)
    return entered


def not_started(said: str) -> tuple[int, str]:
    """The code that a shell would end with, and what it would say."""
    found = _PROGRAM.search(said)
    if found is None:
        return NOT_EXECUTABLE_CODE, f"It could not be started: {said}"
    program, why = found[1], found[2].removesuffix(": unknown")
    if why.endswith(_NOT_THERE):
        return NOT_FOUND_CODE, f"{program}: not found"
    return NOT_EXECUTABLE_CODE, f"{program}: {why}"
