"""Connect to a port of a container, with nothing published on its host.

A small container of ours shares the network of the job's for as long as connections are made, and each connection is a
program inside it that passes bytes to the port. It has no rights there and sees nothing else of the job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

from penstock.background import Tasks
from penstock.engines.base import Run, Terminal
from penstock.engines.docker.api.errors import DockerConflict, DockerError, DockerNotFound, translated_errors
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.exec import DockerSession
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import DockerHosts
from penstock.errors import Conflict

log = logging.getLogger(__name__)
WITHOUT_NC = "No port can be reached: the image that docker_helper_image names has no program 'nc'."
LONGEST = 24 * 3600
IDLE_SECONDS = 60.0
NOT_STARTED = (126, 127)
"""Codes of Docker and shells for a program that is not there."""


class DockerPortSession:
    """A connection to a port: what it says comes as 1, and its end is code 0; that nothing listens is an error."""

    def __init__(self, inside: DockerSession, port: int, left: asyncio.Event) -> None:
        self._inside, self._port = inside, port
        self._left = left
        self._said = b""
        self._heard = False

    async def send(self, data: bytes) -> None:
        await self._inside.send(data)

    async def end_input(self) -> None:
        await self._inside.end_input()

    async def resize(self, size: Terminal) -> None:
        """There is no terminal."""

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        async for number, data in self._inside.output():
            if number == 1:
                self._heard = True
                yield 1, data
            else:
                self._said = (self._said + data)[:500]
        code = 0 if self._heard else await self._inside.exit_code()
        if code in NOT_STARTED:
            raise Conflict(WITHOUT_NC, hint="an admin of this server sets docker_helper_image to one that has it")
        if code:
            raise Conflict(f"Nothing listens on port {self._port} there.")

    async def exit_code(self) -> int:
        await self._inside.exit_code()
        return 0

    async def close(self) -> None:
        await self._inside.close()
        self._left.set()


class DockerPorts:
    def __init__(self, hosts: DockerHosts) -> None:
        self._hosts = hosts
        self._locks: dict[str, asyncio.Lock] = {}
        self._beside: dict[str, tuple[str, AsyncExitStack]] = {}
        """Container of a job → our helper that shares its network, and what removes the helper."""
        self._open: dict[str, int] = {}
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()
        for job in list(self._beside):
            await self._end(job)

    def watch(self, run: Run) -> None:
        """Remove the helper of a container that has ended, whoever is still connected."""
        for seen in self._hosts.parts(run).values():
            if seen.over and seen.id in self._beside:
                self._tasks.start(self._end(seen.id))

    async def connect(self, run: Run, part: int, port: int) -> DockerPortSession:
        seen = self._hosts.running(run, part, "port-forward needs a running job")
        with translated_errors():
            link = self._hosts.link(seen.host)
            self._open[seen.id] = self._open.get(seen.id, 0) + 1
            left = asyncio.Event()
            self._tasks.start(self._leave(seen, left))
            try:
                ours = await self._helper_beside(link, seen)
                exec_id, stream = await link.api.exec(ours, ["nc", "127.0.0.1", str(port)])
            except (DockerNotFound, DockerConflict):
                left.set()
                raise Conflict("It has just ended.") from None
            except BaseException:
                left.set()
                raise
        return DockerPortSession(DockerSession(link.api, exec_id, stream), port, left)

    async def _helper_beside(self, link: HostLink, seen: ContainerRecord) -> str:
        async with self._locks.setdefault(seen.id, asyncio.Lock()):
            if seen.id not in self._beside:
                removal = AsyncExitStack()
                config = {"NetworkMode": f"container:{seen.id}", "CapAdd": [], "PidsLimit": 1024}
                ours = await removal.enter_async_context(link.helpers.started(["sleep", str(LONGEST)], config=config))
                self._beside[seen.id] = (ours, removal)
            return self._beside[seen.id][0]

    async def _leave(self, seen: ContainerRecord, left: asyncio.Event) -> None:
        """Remove the helper with the last connection, unless someone comes back soon."""
        await left.wait()
        self._open[seen.id] -= 1
        await self._quiet(seen)
        if not self._open.get(seen.id):
            self._open.pop(seen.id, None)
            await self._end(seen.id)

    async def _quiet(self, seen: ContainerRecord) -> None:
        """Wait a while, or until the job is over."""
        for _ in range(int(IDLE_SECONDS)):
            known = self._hosts.parts(seen.run).get(seen.part)
            if self._open.get(seen.id) or known is None or not known.runs:
                return
            await asyncio.sleep(1)

    async def _end(self, job: str) -> None:
        self._locks.pop(job, None)
        if job in self._beside:
            _, removal = self._beside.pop(job)
            with suppress(DockerError):
                await removal.aclose()
