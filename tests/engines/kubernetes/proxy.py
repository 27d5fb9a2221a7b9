"""A way to the real API server on which things go wrong when a test wants it: plain HTTP in front, TLS behind.

One request a connection. What it does not answer itself it passes on byte by byte, upgrades and streams included.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass
class Fault:
    """An answer for requests whose line has the text in it, instead of the server's, so many times."""

    text: str
    answer: bytes
    times: int


class Proxy:
    def __init__(self, server: str, tls: ssl.SSLContext) -> None:
        self._to = urlsplit(server)
        self._tls = tls
        self._faults: list[Fault] = []
        self._live: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._port = 0
        self._passing = asyncio.Event()
        self._passing.set()
        self.requests: list[str] = []
        """`GET /api/v1/…?…` of each request, in order."""

    # what a test does to it

    async def up(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._listener.sockets[0].getsockname()[1]

    async def down(self) -> None:
        """As if the server were gone: nobody listens, and what was open is cut."""
        if self._listener:
            self._listener.close()
        self.cut()

    async def close(self) -> None:
        await self.down()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection, in whatever it is doing."""
        for writer in self._live:
            writer.transport.abort()

    def hold(self) -> None:
        """Take requests and answer none."""
        self._passing.clear()

    def release(self) -> None:
        self._passing.set()

    def answer(self, text: str, status: int, body: object, *, times: int = 1, **headers: str) -> None:
        """Answer the next requests that have the text in their line; a mapping becomes a Status."""
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        fields = {"Content_Length": str(len(content)), "Connection": "close"} | headers
        lines = [f"HTTP/1.1 {status} Because", *(f"{key.replace('_', '-')}: {fields[key]}" for key in fields)]
        self._faults.append(Fault(text, "\r\n".join([*lines, "", ""]).encode() + content, times))

    def mend(self) -> None:
        """Nothing is answered in the server's place any more."""
        self._faults.clear()

    def kubeconfig(self, path: Path, user: dict[str, object] | None = None) -> Path:
        entry = {"cluster": {"server": f"http://127.0.0.1:{self._port}"}, "name": "it"}
        context = {"context": {"cluster": "it", "user": "me"}, "name": "it"}
        users = [{"name": "me", "user": user or {}}]
        whole = {"clusters": [entry], "contexts": [context], "users": users, "current-context": "it"}
        path.write_text(json.dumps(whole))
        return path

    @property
    def open(self) -> int:
        """Requests that are being served."""
        return len(self._serving)

    # for those that do something with certain requests

    async def asked(self, line: str) -> None:
        """Before a request is passed on; an OSError cuts it off."""

    def answered(self, line: str) -> None:
        """When the server has done what was asked, and before the client hears of it."""

    # how it does it

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._live.add(writer)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._pass_on(reader, writer)
        finally:
            self._live.discard(writer)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line = head.split(b" HTTP/", 1)[0].decode()
        self.requests.append(line)
        await self._passing.wait()
        for fault in self._faults:
            if fault.text in line and fault.times > 0:
                fault.times -= 1
                writer.write(fault.answer)
                await writer.drain()
                return
        await self.asked(line)
        if b"\r\nupgrade:" not in head.lower():
            head = head[:-2] + b"Connection: close\r\n\r\n"
        there, back = await asyncio.open_connection(self._to.hostname, self._to.port, ssl=self._tls)
        self._live.add(back)
        try:
            back.write(head)
            sending = asyncio.create_task(_copy(reader, back))
            try:
                begun = await there.read(65536)
                self.answered(line)
                writer.write(begun)
                await _copy(there, writer)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            self._live.discard(back)
            back.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
