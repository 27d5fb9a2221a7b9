"""Start a program beside the job's own, in its container: `exec`.

Docker neither gives a terminal its size before the program looks nor ends the program when its user has gone. Where the
container surely has bash, a few lines of it do the first. The second is done by a mark in the program's environment: a
few lines of bash or `sh` end all that has it; where there is neither, the end of its input has to do.

A server that was killed, or a host that did not answer, leaves programs that nobody is connected to any more. They are
ended when their container is looked at again.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from penstock.background import Tasks
from penstock.engines.base import Run, Terminal
from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.api.errors import DockerConflict, DockerError, DockerNotFound, translated_errors
from penstock.engines.docker.api.http import ProgramStream
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.spec import BASH
from penstock.engines.shared.shell import ENTER, LEAVE, MARKS, PLAIN_LEAVE
from penstock.errors import Conflict, Unavailable

log = logging.getLogger(__name__)
LEAVE_SECONDS = 10.0
CODE_SECONDS = 30.0
MARK = "PENSTOCK_SESSION"
"""What the processes of a session have in their environment."""
_MARK = re.compile(r"[0-9a-f]{16}")
Left = Callable[[bool], Awaitable[None]]
"""Called when the user has gone, with whether the program may run still."""


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
        if left:
            await left(self._code is None and not self._over)


class DockerSessions:
    """The programs that users of this server are connected to. Others that were started so are ended."""

    def __init__(self, hosts: DockerHosts) -> None:
        self._hosts = hosts
        self._programs: dict[str, str] = {}
        """By mark the id that Docker has given the program; empty until it has."""
        self._ending = Tasks()

    async def close(self) -> None:
        await self._ending.close()

    async def enter(self, run: Run, part: int, command: Sequence[str], terminal: Terminal | None) -> DockerSession:
        seen = self._hosts.running(run, part, "exec needs a running job")
        mark = secrets.token_hex(8)
        self._programs[mark] = ""
        try:
            entered = await self._started(seen, mark, command, tty=terminal is not None)
            if terminal:
                await entered.resize(terminal)
        except BaseException:
            del self._programs[mark]
            raise
        return entered

    async def _started(self, seen: ContainerRecord, mark: str, command: Sequence[str], *, tty: bool) -> DockerSession:
        words = [BASH, "-c", ENTER, "bash", mark, *command] if seen.has_bash else command
        with translated_errors():
            api = self._hosts.link(seen.host).api
            try:
                self._programs[mark], stream = await api.exec(seen.id, words, env=[f"{MARK}={mark}"], tty=tty)
            except (DockerNotFound, DockerConflict):
                raise Conflict("It has just ended.") from None
        return DockerSession(api, self._programs[mark], stream, partial(self._leave, seen, mark))

    async def _leave(self, seen: ContainerRecord, mark: str, runs: bool) -> None:
        try:
            if runs:
                with suppress(DockerError):
                    await end_session(self._hosts.link(seen.host).api, seen, mark)
        finally:
            del self._programs[mark]

    def watch(self, run: Run) -> None:
        """End programs that this server did not start, or could not end."""
        for seen in self._hosts.parts(run).values():
            if seen.runs and seen.programs.difference(self._programs.values()) and seen.id not in self._ending:
                self._ending.start(self._end_left_over(seen), seen.id)

    async def _end_left_over(self, seen: ContainerRecord) -> None:
        with suppress(DockerError):
            api = self._hosts.link(seen.host).api
            marks = {line for line in (await printed_by(api, seen, MARKS)).split() if _MARK.fullmatch(line)}
            for mark in marks.difference(self._programs):
                log.info("ending a program in %s on %s that nobody is connected to", seen.name, seen.host)
                await end_session(api, seen, mark)


async def end_session(api: DockerApi, seen: ContainerRecord, mark: str) -> None:
    """End all processes that have the mark."""
    await printed_by(api, seen, LEAVE if seen.has_bash else PLAIN_LEAVE, mark)


async def printed_by(api: DockerApi, seen: ContainerRecord, script: str, *words: str) -> str:
    """Return what a script printed in a container; where that has no shell to run it, nothing of use."""
    shell, out = BASH if seen.has_bash else "sh", b""
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(LEAVE_SECONDS):
            _, stream = await api.exec(seen.id, [shell, "-c", script, "sh", *words], reads=False)
            try:
                async for number, data in stream.output():
                    out += data if number == 1 else b""
            finally:
                await stream.close()
    return out.decode(errors="replace")
