"""Connect to a port in a pod over one WebSocket.

`v4.channel.k8s.io` on `pods/portforward` is answered by the container runtime itself and passes through API server and
kubelet as it is, in every version from 1.30 to 1.36 and without a feature gate; the newer way (SPDY in a WebSocket) is
behind one in 1.30. It carries one connection: channel 0 is what goes to and fro, channel 1 what went wrong, and each
begins with the port in two bytes. That the client has sent all cannot be said; runtimes could not pass it on either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx2
from wsproto.events import BytesMessage, CloseConnection, Event

from penstock.engines.base import Run, Terminal
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesNotFound, shown
from penstock.engines.kubernetes.api.streams import ExecFailed, ExecSession
from penstock.engines.kubernetes.exec import running_pod
from penstock.errors import Conflict

DATA, WRONG = 0, 1
PORT_BYTES = 2
LONGEST = 4096
LINGER_SECONDS = 10.0


class ForwardSession(ExecSession):
    """A session whose input goes to the port and whose output is what it answers."""

    def __init__(self, response: httpx2.Response, server: str, port: int) -> None:
        self._all_sent = asyncio.Event()
        self._port = port
        self._skip = {DATA: PORT_BYTES, WRONG: PORT_BYTES}
        self._wrong = bytearray()
        super().__init__(response, server)

    async def _heard(self, event: Event) -> None:
        if not isinstance(event, CloseConnection):
            await super()._heard(event)
            return
        if self._wrong:
            raise ExecFailed(_short(self._wrong.decode(errors="replace"), self._port))
        await super()._heard(event)  # an error of its own, unless it was closed in order

    async def _message(self, event: BytesMessage) -> None:
        data = bytes(event.data)
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        channel = WRONG if self._channel == WRONG else DATA
        skipped = min(self._skip[channel], len(data))
        self._skip[channel] -= skipped
        data = data[skipped:]
        if channel == WRONG:
            self._wrong += data[: LONGEST - len(self._wrong)]
        elif data:
            await self._printed.put((1, data))
        if event.message_finished:
            self._channel = None

    async def end_input(self) -> None:
        """The port cannot be told. What it still answers comes; then, since most who say it have gone, it is over."""
        self._all_sent.set()

    async def resize(self, size: Terminal) -> None:
        """A port has no terminal."""

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        with shown():
            while piece := await self._next():
                yield piece

    async def _next(self) -> tuple[int, bytes] | None:
        """Return the next output; None at the end, or when the port is quiet after all was sent."""
        coming = asyncio.ensure_future(anext(self, None))
        ending = asyncio.create_task(self._all_sent.wait())
        try:
            await asyncio.wait([coming, ending], return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                await asyncio.wait([coming], timeout=LINGER_SECONDS)
            return coming.result() if coming.done() else None
        finally:
            coming.cancel()
            ending.cancel()

    async def exit_code(self) -> int:
        return 0


async def open_port(api: KubernetesApi, cluster: Cluster, run: Run, part: int, port: int) -> ForwardSession:
    pod = running_pod(cluster, run, part)
    if pod is None:
        raise Conflict("The job is not running: only the ports of a running job can be reached.")
    with shown():
        try:
            response = await api.forward(pod.name, pod.namespace, port)
        except KubernetesNotFound:
            raise Conflict("The job has just ended.") from None
    return ForwardSession(response, api.server, port)


def _short(said: str, port: int) -> str:
    """Strip what kubelet, runtime and Go put around the reason."""
    if "connection refused" in said:
        return f"nothing of it listens on port {port}"
    with suppress(ValueError):
        said = said[said.index(": ") + 2 :]
    return said or f"port {port} could not be reached"
