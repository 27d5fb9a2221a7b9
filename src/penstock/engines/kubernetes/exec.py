"""Start a program beside the job's own in one of its containers: `exec`.

Kubernetes starts a program and passes bytes; it neither gives a terminal its size before the program looks, nor ends
the program when its user has gone. Where the container has bash, a few lines of it do both; elsewhere Kubernetes' own
way has to do.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from penstock.engines.base import Run, Terminal
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesError, KubernetesNotFound, shown
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.api.streams import ExecFailed, ExecSession
from penstock.engines.shared.minder import BASH
from penstock.engines.shared.shell import ENTER, LEAVE
from penstock.errors import Conflict

log = logging.getLogger(__name__)

LEAVE_SECONDS = 10.0


class ContainerExec:
    """A session as every engine has it; what goes wrong in it is one of Penstock's own errors."""

    def __init__(self, api: KubernetesApi, pod: Pod, session: ExecSession, mark: str | None) -> None:
        self._api, self._pod = api, pod
        self._session = session
        self._mark = mark
        """The mark in its processes' environment; None if they cannot be told from others."""
        self._code: int | None = None

    async def send(self, data: bytes) -> None:
        await self._session.send(data)

    async def end_input(self) -> None:
        await self._session.close_input()

    async def resize(self, size: Terminal) -> None:
        await self._session.resize(size)

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        with shown():
            try:
                async for channel, data in self._session:
                    yield channel, data
            except ExecFailed as failed:
                self._code = failed.exit_code
                yield 2, f"{failed.message}\n".encode()
            else:
                self._code = await self._session.exit_code()

    async def exit_code(self) -> int:
        """Return the program's code; one that could not be started has the code a shell would give."""
        if self._code is None:
            with shown():
                try:
                    self._code = await self._session.exit_code()
                except ExecFailed as failed:
                    self._code = failed.exit_code
        return self._code

    async def close(self) -> None:
        await self._session.close()
        if self._code is None and self._mark:
            self._code = -1
            await self._end(self._mark)

    async def _end(self, mark: str) -> None:
        command = [BASH, "-c", LEAVE, "bash", mark]
        with suppress(KubernetesError, TimeoutError):
            async with (
                asyncio.timeout(LEAVE_SECONDS),
                await self._api.exec(
                    self._pod.name, self._pod.namespace, command, container=names.CONTAINER
                ) as leaving,
            ):
                await leaving.exit_code()


async def start_exec(
    api: KubernetesApi, cluster: Cluster, run: Run, part: int, command: Sequence[str], terminal: Terminal | None
) -> ContainerExec:
    pod = running_pod(cluster, run, part)
    if pod is None:
        raise Conflict("The job is not running: a program can be started only in a running job.")
    mark = secrets.token_hex(8) if names.HAS_BASH in pod.annotations else None
    words = [BASH, "-c", ENTER, "bash", mark, *command] if mark else command
    with shown():
        try:
            session = await api.exec(
                pod.name, pod.namespace, words, container=names.CONTAINER, stdin=True, tty=terminal is not None
            )
        except KubernetesNotFound:
            raise Conflict("The job has just ended.") from None
    entered = ContainerExec(api, pod, session, mark)
    if terminal:
        await entered.resize(terminal)
    return entered


def running_pod(cluster: Cluster, run: Run, part: int) -> Pod | None:
    for pod in cluster.pods_of(run):
        status = pod.container(names.CONTAINER)
        if names.part_of(pod) == part and status and status.state.running:
            return pod
    return None
