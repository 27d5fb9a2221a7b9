"""Connect to a port of a container, with nothing published on its host.

From the first connection until the job ends, a small container of ours shares the network of the job's. Each connection
is a program inside it that passes bytes to the port. It has no rights there and sees nothing else of the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

from penstock.background import Tasks
from penstock.engines.base import Run
from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.api.errors import DockerConflict, DockerError, DockerNotFound, translated_errors
from penstock.engines.docker.api.http import ProgramStream
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.exec import DockerSession
from penstock.engines.docker.host import HostLink
from penstock.engines.docker.hosts import DockerHosts
from penstock.errors import Conflict

WITHOUT_NC = "No port can be reached: the image that docker_helper_image names has no program 'nc'."
LONGEST = "31536000"
"""Seconds: no `sleep` knows a word for forever that all of them do."""
DOCKER_SAYS = b"OCI runtime exec failed: "
"""How Docker begins what it says in the name of a program that it could not start."""
NOT_STARTED = (126, 127)
"""Codes of Docker and shells for a program that is not there."""


class DockerPortSession(DockerSession):
    """A connection to a port: what it says comes as 1, and its end is code 0; that nothing listens is an error."""

    def __init__(self, api: DockerApi, exec_id: str, stream: ProgramStream, port: int) -> None:
        super().__init__(api, exec_id, stream)
        self._port = port

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        heard = False
        async for number, data in super().output():
            if number == 1 and (heard or not data.startswith(DOCKER_SAYS)):
                heard = True
                yield 1, data
        code = 0 if heard else await super().exit_code()
        if code in NOT_STARTED:
            raise Conflict(WITHOUT_NC, hint="an admin of this server sets docker_helper_image to one that has it")
        if code:
            raise Conflict(f"Nothing listens on port {self._port} there.")

    async def exit_code(self) -> int:
        await super().exit_code()
        return 0


class DockerPorts:
    def __init__(self, hosts: DockerHosts) -> None:
        self._hosts = hosts
        self._locks: dict[str, asyncio.Lock] = {}
        self._beside: dict[str, tuple[str, AsyncExitStack]] = {}
        """Container of a job → our helper that shares its network, and what removes the helper."""
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()
        await asyncio.gather(*(self._end(job) for job in list(self._beside)))

    def watch(self, run: Run) -> None:
        """Remove the helper of a container that has ended, whoever is still connected."""
        for seen in self._hosts.parts(run).values():
            if seen.over and seen.id in self._beside:
                self._tasks.start(self._end(seen.id))

    async def connect(self, run: Run, part: int, port: int) -> DockerPortSession:
        seen = self._hosts.running(run, part, "port-forward needs a running job")
        with translated_errors():
            link = self._hosts.link(seen.host)
            try:
                ours = await self._helper_beside(link, seen)
                exec_id, stream = await link.api.exec(ours, ["nc", "127.0.0.1", str(port)])
            except (DockerNotFound, DockerConflict):
                await self._end(seen.id)
                raise Conflict("It has just ended.") from None
        return DockerPortSession(link.api, exec_id, stream, port)

    async def _helper_beside(self, link: HostLink, seen: ContainerRecord) -> str:
        async with self._locks.setdefault(seen.id, asyncio.Lock()):
            if seen.id not in self._beside:
                removal = AsyncExitStack()
                config = {"NetworkMode": f"container:{seen.id}", "CapAdd": [], "PidsLimit": 1024}
                ours = await removal.enter_async_context(link.helpers.started(["sleep", LONGEST], config=config))
                self._beside[seen.id] = (ours, removal)
            return self._beside[seen.id][0]

    async def _end(self, job: str) -> None:
        self._locks.pop(job, None)
        if job in self._beside:
            _, removal = self._beside.pop(job)
            with suppress(DockerError):
                await removal.aclose()
