"""POSTs to the hosts that an admin allows. Each has one deadline for all of it, and a host that does not answer holds
up only what goes there: even its name is looked up in a thread of its own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from urllib.parse import SplitResult, urlsplit

import h11

AT_ONCE = 64
"""Requests to one host."""
SECONDS = 10.0
"""For one request: from looking up the name to the status of the answer."""
PIECE = 1 << 16
LONGEST_HEAD = 1 << 16


class NotHeard(Exception):
    """The other end did not take it; str() is why."""


def host_of(address: str) -> str:
    """`https://hooks.example.org:8443`: all of an address that is never a secret."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class Host:
    """What goes to one scheme, name and port."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE)
        self._thread = ThreadPoolExecutor(1, "penstock-post")

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def post(self, address: str, body: bytes, headers: Mapping[str, str]) -> None:
        """NotHeard unless it answers 2xx in time. No redirect is followed: it would lead where the admin has not
        allowed it."""
        async with self._room:
            try:
                async with asyncio.timeout(SECONDS):
                    status = await self._ask(urlsplit(address), body, headers)
            except TimeoutError as error:
                raise NotHeard(f"did not answer within {SECONDS:g} s") from error
            except (OSError, h11.ProtocolError, ValueError, RuntimeError) as error:
                raise NotHeard(str(error)) from error
        if not 200 <= status < 300:
            raise NotHeard(f"answered {status}")

    async def _ask(self, parts: SplitResult, body: bytes, headers: Mapping[str, str]) -> int:
        said = {
            "Host": parts.netloc.rpartition("@")[2],
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        request = h11.Request(method="POST", target=target, headers=list((said | dict(headers)).items()))
        reader, writer = await self._connect(parts)
        try:
            return await _status(reader, writer, request, body)
        finally:
            writer.transport.abort()

    async def _connect(self, parts: SplitResult) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """At the first of its addresses that answers; none takes the time of the others."""
        secure, name = parts.scheme == "https", parts.hostname or ""
        port = parts.port or (443 if secure else 80)
        addresses, tls = await asyncio.get_running_loop().run_in_executor(self._thread, _found, name, port, secure)
        failed: OSError = OSError("it has no address")
        for address in addresses:
            try:
                async with asyncio.timeout(SECONDS / len(addresses)):
                    return await asyncio.open_connection(address, port, ssl=tls, server_hostname=name if tls else None)
            except OSError as error:
                failed = error
        raise failed


def _found(name: str, port: int, secure: bool) -> tuple[list[str], ssl.SSLContext | None]:
    """Where it is, and whom to believe that it is it: both are read from outside, and that can take long."""
    known = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in known)), _authorities() if secure else None


@cache
def _authorities() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: h11.Request, body: bytes) -> int:
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)
    for event in (request, h11.Data(data=body), h11.EndOfMessage()):
        writer.write(http.send(event) or b"")
    await writer.drain()
    while True:
        answer = http.next_event()
        if answer is h11.NEED_DATA:
            http.receive_data(await reader.read(PIECE))
        elif isinstance(answer, h11.Response):
            return int(answer.status_code)
