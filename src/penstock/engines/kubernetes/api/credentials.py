"""Credentials: a token, a token file that is rotated, or a program that prints one."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Protocol

import msgspec

from penstock.engines.kubernetes.api.errors import CredentialsExpired

FILE_SECONDS = 60
"""A token's file is looked at again after so long: the kubelet rotates it well before the old token ends."""
PROGRAM_SECONDS = 30
BEFORE_END = timedelta(seconds=30)


class Credentials(Protocol):
    async def header(self) -> str | None:
        """What `Authorization` says; None where a client certificate says it all."""


class Fixed:
    def __init__(self, header: str | None) -> None:
        self._header = header

    async def header(self) -> str | None:
        return self._header


class TokenFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = ""
        self._read_at = -float(FILE_SECONDS)

    async def header(self) -> str | None:
        if monotonic() - self._read_at >= FILE_SECONDS:
            try:
                self._header = f"Bearer {self._path.read_text().strip()}"
            except OSError as error:
                raise CredentialsExpired(
                    f"the token {self._path} cannot be read: {error.strerror}", status=401
                ) from error
            self._read_at = monotonic()
        return self._header


class Printed(msgspec.Struct):
    """`status` of what a credential program prints."""

    token: str = ""
    ends: datetime | None = msgspec.field(name="expirationTimestamp", default=None)


class ExecCredential(msgspec.Struct):
    status: Printed


class Program:
    """Runs when there is no token yet, when it is about to end, and (as a new one of these) after a refusal."""

    def __init__(
        self, api_version: str, command: list[str], env: dict[str, str], server: str, install_hint: str | None
    ) -> None:
        spec = {"interactive": False, "cluster": {"server": server}}
        info = {"apiVersion": api_version, "kind": "ExecCredential", "spec": spec}
        self._command = command
        self._env = {**os.environ, **env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        self._install_hint = install_hint
        self._printed: Printed | None = None
        self._running = asyncio.Lock()

    async def header(self) -> str | None:
        async with self._running:
            if self._printed is None or _ending(self._printed):
                self._printed = await self._run()
            return f"Bearer {self._printed.token}"

    async def _run(self) -> Printed:
        output = await self._output()
        try:
            printed = msgspec.json.decode(output, type=ExecCredential).status
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._failed(f"prints no credential: {error}") from error
        if not printed.token:
            raise self._failed("prints no token; client certificates from programs are not supported")
        return printed

    async def _output(self) -> bytes:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, env=self._env, stdin=null, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            hint = f"; {self._install_hint.strip()}" if self._install_hint else ""
            raise self._failed(f"cannot be run: {error.strerror}{hint}") from error
        try:
            async with asyncio.timeout(PROGRAM_SECONDS):
                output, said = await process.communicate()
        except TimeoutError as error:
            raise self._failed(f"did not end within {PROGRAM_SECONDS}s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise self._failed(f"ended with {process.returncode}: {said.decode(errors='replace').strip()}")
        return output

    def _failed(self, what: str) -> CredentialsExpired:
        return CredentialsExpired(f"the credential program {self._command[0]} {what}", status=401)


def _ending(printed: Printed) -> bool:
    return printed.ends is not None and datetime.now(UTC) > printed.ends - BEFORE_END


def basic(user: str, password: str) -> Fixed:
    return Fixed("Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
