"""Start a program beside the job's own, in its container: `exec`.

Docker neither gives a terminal its size before the program looks nor ends the program when its user has gone. Where the
container surely has bash, a few lines of it do the first. The second is done by a mark in the program's environment: a
few lines of bash or `sh` end all that has it; where there is neither, the end of its input has to do.

A server that was killed, or a host that did not answer, leaves programs that nobody is connected to any more. They end
with their input, or with the job.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

from penstock.engines.base import Run, Terminal
from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.api.errors import DockerConflict, DockerError, DockerNotFound, translated_errors
from penstock.engines.docker.api.http import ProgramStream
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.spec import BASH
from penstock.engines.shared.shell import ENTER, LEAVE, PLAIN_LEAVE
from penstock.errors import Conflict, Unavailable

LEAVE_SECONDS = 10.0
CODE_SECONDS = 30.0
MARK = "PENSTOCK_SESSION"
"""What the processes of a session have in their environment."""
Left = Callable[[], Awaitable[None]]
"""Called when the user has gone and the program may run still."""


class DockerSession:
    """A session as every engine has it."""

    def __init__(self, api: DockerApi, exec_id: str, stream: ProgramStream, left: Left | None = None) -> None:
        self._api, self._exec_id, self._stream = api, exec_id, stream
        self._left = left
        self._code: int | None = None
        self._over = False

    async def send(self, data: bytes) -> None:
        with suppress(OSError):  # it has just ended: its code says more
            await self._stream.send(data)

    async def end_input(self) -> None:
        with suppress(OSError):
            await self._stream.end_input()

    async def resize(self, size: Terminal) -> None:
        with suppress(DockerError):  # it has just ended, or its output will say what is wrong
            await self._api.resize(self._exec_id, size.columns, size.rows)

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        try:
            async for number, data in self._stream.output():
                yield number, data
        except OSError as error:
            raise Unavailable(f"The connection to the program was lost: {error}.") from error
        self._over = True

    async def exit_code(self) -> int:
        if not self._over:
            async for _ in self.output():
                pass
        if self._code is None:
            with translated_errors():
                self._code = await self._ended()
        return self._code

    async def _ended(self) -> int:
        """Wait for the exit code: the output ends a moment before Docker knows it."""
        try:
            async with asyncio.timeout(CODE_SECONDS):
                while True:
                    state = await self._api.exec_state(self._exec_id)
                    if not state.get("Running") and state.get("ExitCode") is not None:
                        return int(state["ExitCode"])
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self._over = False
            raise Unavailable("The connection to the program was lost; it still runs.") from None

    async def close(self) -> None:
        await self._stream.close()
        left, self._left = self._left, None
        if left and self._code is None and not self._over:
            await left()


async def enter(
    hosts: DockerHosts, run: Run, part: int, command: Sequence[str], terminal: Terminal | None
) -> DockerSession:
    seen = hosts.running(run, part, "exec needs a running job")
    mark = secrets.token_hex(8)
    words = [BASH, "-c", ENTER, "bash", mark, *command] if seen.has_bash else command

    async def leave() -> None:
        with suppress(DockerError):
            await end_session(hosts.link(seen.host).api, seen, mark)

    with translated_errors():
        api = hosts.link(seen.host).api
        try:
            exec_id, stream = await api.exec(seen.id, words, env=[f"{MARK}={mark}"], tty=terminal is not None)
        except (DockerNotFound, DockerConflict):
            raise Conflict("It has just ended.") from None
    entered = DockerSession(api, exec_id, stream, leave)
    if terminal:
        await entered.resize(terminal)
    return entered


async def end_session(api: DockerApi, seen: ContainerRecord, mark: str) -> None:
    """End all processes that have the mark, if the container has a shell that can do it."""
    shell, script = (BASH, LEAVE) if seen.has_bash else ("sh", PLAIN_LEAVE)
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(LEAVE_SECONDS):
            _, stream = await api.exec(seen.id, [shell, "-c", script, "sh", mark], reads=False)
            try:
                async for _ in stream.output():
                    pass
            finally:
                await stream.close()
