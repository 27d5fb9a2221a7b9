"""Connect to a Docker engine over a Unix socket, TCP with TLS, or ssh.

Whatever it is, its input can be ended while its output goes on: that is how a program inside a container hears that its
own input is over. asyncio's TLS cannot do that, so TLS is spoken here, over plain TCP.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from penstock.domain.names import shorten

PIECE = 1 << 16
PLAIN_PORT, TLS_PORT = 2375, 2376
DIAL = ("docker", "system", "dial-stdio")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]*[A-Za-z0-9])?\Z")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
EXAMPLES = "for example unix:///run/docker.sock, ssh://user@host or tcp://host:2376"


class InvalidAddress(ValueError):
    """There is no way to such an address; str() says why not."""


@dataclass(frozen=True)
class DockerAddress:
    scheme: str
    """`unix`, `ssh` or `tcp`."""
    path: str = ""
    name: str = ""
    port: int | None = None
    user: str = ""


def read_address(text: str) -> DockerAddress:
    """Read an address, of which nothing can be taken for an option by ssh."""
    shown = shorten(text)
    try:
        parts = urlsplit(text)
        name, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidAddress(f"'{shown}' is not an address, {EXAMPLES}") from None
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/") and text.isprintable():
        return DockerAddress("unix", path=parts.path)
    plain = _NAME.match(name) and parts.path in ("", "/") and not parts.query and not parts.fragment
    if (
        parts.scheme == "ssh"
        and plain
        and parts.password is None
        and (not parts.username or _USER.match(parts.username))
    ):
        return DockerAddress("ssh", name=name, port=port, user=parts.username or "")
    if parts.scheme == "tcp" and plain and "@" not in parts.netloc:
        return DockerAddress("tcp", name=name, port=port)
    raise InvalidAddress(f"'{shown}' is not the address of a Docker engine, {EXAMPLES}")


@contextmanager
def _telling() -> Iterator[None]:
    """Raise an OSError where a connection has ended, as asyncio does: uvloop, which servers run on, raises a
    RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        raise ConnectionResetError("the connection was closed") from error


class Transport:
    """Carries the bytes over a connection of asyncio, as it is; others build on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        """Return the next bytes, none at the end."""
        return await self._reader.read(PIECE)

    async def write(self, data: bytes) -> None:
        """Raise OSError where the connection has ended."""
        with _telling():
            self._writer.write(data)
            await self._writer.drain()

    async def end_input(self) -> None:
        """Say that nothing more comes from us; where the connection has ended, nothing is left to do."""
        with suppress(OSError), _telling():
            self._writer.write_eof()

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def trouble(self) -> str:
        """Return what whoever carries the bytes said about their end."""
        return ""


async def dial(address: DockerAddress, tls: ssl.SSLContext | None, ssh: Sequence[str]) -> Transport:
    """Connect to an address. `ssh` is the program with the options an admin gave."""
    if address.scheme == "unix":
        return Transport(*await asyncio.open_unix_connection(address.path))
    if address.scheme == "ssh":
        return await _over_ssh(address, ssh)
    port = address.port or (TLS_PORT if tls else PLAIN_PORT)
    reader, writer = await asyncio.open_connection(address.name, port)
    if tls is None:
        return Transport(reader, writer)
    secret = _TlsTransport(reader, writer, tls, address.name)
    try:
        await secret.greet()
    except BaseException:
        await secret.close()
        raise
    return secret


class _TlsTransport(Transport):
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext, name: str
    ) -> None:
        super().__init__(reader, writer)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name)

    async def greet(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._more()
            else:
                break
        await self._flush()

    async def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(PIECE)
            except ssl.SSLWantReadError:
                await self._more()
            except ssl.SSLZeroReturnError:
                return b""

    async def write(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def end_input(self) -> None:
        """Say that nothing more comes from us, and do not wait for the same from the other side."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        await self._flush()

    async def _more(self) -> None:
        await self._flush()
        if data := await super().read():
            self._in.write(data)
        else:
            self._in.write_eof()

    async def _flush(self) -> None:
        if data := self._out.read():
            await super().write(data)


async def _over_ssh(address: DockerAddress, ssh: Sequence[str]) -> Transport:
    words = [*ssh, "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    words += ["-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"]
    words += ["-p", str(address.port)] if address.port else []
    words += ["-l", address.user] if address.user else []
    pipe = asyncio.subprocess.PIPE
    return _SshTransport(
        await asyncio.create_subprocess_exec(
            *words, "--", address.name, *DIAL, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    )


class _SshTransport(Transport):
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        super().__init__(process.stdout, process.stdin)
        self._process, self._err = process, process.stderr

    async def close(self) -> None:
        self._writer.close()
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                # Not `kill()`: that looks first whether it has ended, and then nobody else hears of it.
                os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def trouble(self) -> str:
        said = (await self._err.read(PIECE)).decode(errors="replace").strip().splitlines()
        return said[-1].strip() if said else ""
