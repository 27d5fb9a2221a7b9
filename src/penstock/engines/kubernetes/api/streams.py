"""Run a program in a container: input, outputs, terminal and exit code over one WebSocket.

The API server speaks `v5.channel.k8s.io`: the first byte of each message says what it is for. The connection comes from
httpx2, so certificates, tokens and proxies are those of every other request; wsproto makes the frames. Pings keep
middlemen from closing a quiet terminal, and find out if the other end is gone.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import httpcore2
import httpx2
import msgspec
from wsproto import ConnectionType
from wsproto.connection import Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping
from wsproto.utilities import ProtocolError

from penstock import errors
from penstock.engines.base import Terminal
from penstock.engines.kubernetes.api import errors as failures
from penstock.engines.kubernetes.api.errors import KubernetesError, KubernetesUnreachable

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
PING_SECONDS, SILENCE_SECONDS = 20.0, 75.0
READ, WRITE = 64 * 1024, 32 * 1024
AHEAD = 16
"""Messages that are read ahead."""


class ExecFailed(KubernetesError):
    """The command could not be run: there is no such program, or no container to run it in."""

    ours = errors.Conflict

    @property
    def exit_code(self) -> int:
        """The code a shell would have returned."""
        return 127 if "file not found" in self.message or "no such file" in self.message else 126


def upgrade(protocol: str) -> dict[str, str]:
    """The headers that ask for a WebSocket."""
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": protocol,
    }


class ExecSession:
    """A program that runs in a container. Iterate for its output, as (STDOUT or STDERR, bytes), until it ends.

    One task may iterate while others send. Little is read ahead: a slow reader slows the program.
    """

    def __init__(self, response: httpx2.Response, server: str) -> None:
        self._response = response
        self._server = server
        self._network: Any = response.extensions["network_stream"]
        self._frames = Connection(ConnectionType.CLIENT)
        self._writing = asyncio.Lock()
        self._printed: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(AHEAD)
        self._channel: int | None = None
        self._status = bytearray()
        self._exit_code: int | None = None
        self._failure: KubernetesError | None = None
        self._over = False
        self._unread_input = False
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._ping())]

    async def __aenter__(self) -> ExecSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # to the program

    async def send(self, data: bytes) -> None:
        """Send input; does nothing once the program has ended."""
        view = memoryview(data)
        for start in range(0, len(view), WRITE):
            self._unread_input = True
            await self._write(BytesMessage(bytes((STDIN,)) + view[start : start + WRITE]))

    async def close_input(self) -> None:
        """Tell the program that its input has ended. On a terminal that is the user's Ctrl-D instead."""
        await self._write(BytesMessage(bytes((CLOSE, STDIN))))

    async def resize(self, size: Terminal) -> None:
        told = msgspec.json.encode({"Width": size.columns, "Height": size.rows})
        await self._write(BytesMessage(bytes((RESIZE,)) + told))

    async def close(self) -> None:
        """End the connection, and with it (by a hangup) what still reads from a terminal."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._write(CloseConnection(code=1000))
        self._end()
        await self._response.aclose()

    async def _write(self, event: Event) -> None:
        """Write a frame. That the other end has gone is no error here: what is read tells how it ended."""
        async with self._writing:
            await asyncio.sleep(0)  # a program may end without its input: its status, if it is there, is read first
            if self._over or self._frames.state is not ConnectionState.OPEN:
                return
            with suppress(httpcore2.NetworkError):
                await self._network.write(self._frames.send(event), timeout=None)

    async def _ping(self) -> None:
        while not self._over:
            await asyncio.sleep(PING_SECONDS)
            await self._write(Ping())

    # from the program

    def __aiter__(self) -> AsyncIterator[tuple[int, bytes]]:
        return self

    async def __anext__(self) -> tuple[int, bytes]:
        printed = None if self._over and self._printed.empty() else await self._printed.get()
        if printed:
            return printed
        if self._failure:
            raise self._failure
        raise StopAsyncIteration

    async def exit_code(self) -> int:
        """Wait for the program's end, drop what it prints until then, and return its code."""
        async for _ in self:
            pass
        if self._exit_code is None:
            raise self._broken("it was closed before the program ended")
        return self._exit_code

    async def _listen(self) -> None:
        try:
            while not self._over:
                await self._receive()
        except KubernetesError as error:
            self._failure = error
        finally:
            self._end()

    def _end(self) -> None:
        self._over = True
        with suppress(asyncio.QueueFull):
            self._printed.put_nowait(None)  # for one who waits; if it is full nobody does

    async def _receive(self) -> None:
        data = await self._read()
        self._unread_input = False
        try:
            self._frames.receive_data(data or None)
            for event in self._frames.events():
                await self._heard(event)
        except ProtocolError as error:
            raise self._broken(str(error)) from error

    async def _read(self) -> bytes:
        """Read a frame. A server that holds input for a program that does not read it answers no pings, and lives."""
        while True:
            try:
                data: bytes = await self._network.read(READ, timeout=SILENCE_SECONDS)
                return data
            except httpcore2.ReadTimeout as error:
                if not self._unread_input:
                    raise self._broken("no sign of life") from error
            except httpcore2.NetworkError as error:
                raise self._broken(str(error) or "it was cut") from error

    async def _heard(self, event: Event) -> None:
        if isinstance(event, BytesMessage):
            await self._message(event)
        elif isinstance(event, Ping):
            await self._write(event.response())
        elif isinstance(event, CloseConnection):
            if self._exit_code is None and event.code != 1000:
                raise self._broken(event.reason or f"closed with {event.code}")
            self._over = True

    async def _message(self, event: BytesMessage) -> None:
        """Take a message in; of one in pieces only the first names the channel."""
        data = bytes(event.data)
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        if self._channel == ERROR:
            self._status += data
            if event.message_finished and self._status:
                self._ended(bytes(self._status))
        elif self._channel in (STDOUT, STDERR) and data:
            await self._printed.put((self._channel, data))
        if event.message_finished:
            self._channel = None

    def _ended(self, body: bytes) -> None:
        self._over = True
        status = failures.read_status(body)
        codes = [cause.message for cause in status.causes if cause.reason == "ExitCode"]
        if status.status == "Success":
            self._exit_code = 0
        elif status.reason == "NonZeroExitCode" and codes and codes[0].isdigit():
            self._exit_code = int(codes[0])
        else:
            raise ExecFailed(_short(status.message), status=status.code, reason=status.reason)

    def _broken(self, why: str) -> KubernetesUnreachable:
        return KubernetesUnreachable(f"the connection to the program through {self._server} broke: {why}")


def _short(message: str) -> str:
    """Strip what kubelet, runtime and runc put before the reason."""
    *_, said = message.split("unable to start container process: ")
    *_, said = said.split("Internal error occurred: ")
    said = said.removeprefix("unable to upgrade connection: ")
    return said.removesuffix(": unknown") or "the command could not be run"
