"""The calls of one Docker engine's API, and the only file that knows its paths and answers.

Calls share a few connections; what does not end (events, logs, programs inside) has one of its own. A call that found
its connection closed by the other side is asked once more: every call here can be repeated.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote, urlencode

from penstock.engines.docker.api import errors
from penstock.engines.docker.api.errors import DockerNotConnected, DockerNotFound, DockerUnreachable
from penstock.engines.docker.api.http import ConnectionBroken, HttpBody, HttpConnection, ProgramStream
from penstock.engines.docker.api.transport import InvalidAddress, Transport

NEWEST = (1, 51)
"""The newest version of the API that we know; a Docker that is newer is spoken to in this one."""
FIRST = (1, 41)
IDLE = 4
CONNECT_SECONDS = 10.0
CALL_SECONDS = 30.0
WORK_SECONDS = 300.0
"""The limit of calls that make Docker work: create, start, remove."""
Fields = dict[str, Any]
_LOST = (OSError, ConnectionBroken, ssl.SSLError, EOFError)


class DockerApi:
    def __init__(self, host: str, dial: Callable[[], Awaitable[Transport]], *, tls: bool = False) -> None:
        self.host = host
        self._dial, self._tls = dial, tls
        self._idle: list[HttpConnection] = []
        self._closed = False
        self.version = FIRST

    async def close(self) -> None:
        self._closed = True
        await self._close_idle()

    async def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for exchange in idle:
            await exchange.close()

    # -- the engine ------------------------------------------------------------------------------------------------

    async def agree(self) -> Fields:
        """Ask for its version and speak to it from now on in one that both know."""
        found: Fields = await self._call("GET", "/version", versioned=False)
        theirs = tuple(int(part) for part in str(found.get("ApiVersion", "1.41")).split(".") if part.isdecimal())
        self.version = min((theirs[0], theirs[1]), NEWEST) if len(theirs) > 1 else FIRST
        return found

    async def info(self) -> Fields:
        return await self._get("/info")

    async def ping(self, seconds: float) -> None:
        await self._call("GET", "/_ping", seconds=seconds, versioned=False)

    @asynccontextmanager
    async def events(
        self, filters: Mapping[str, Sequence[str]], since: str | None = None, until: str | None = None
    ) -> AsyncIterator[AsyncGenerator[Fields, None]]:
        """Follow events: the block is entered once Docker tells, so what happens after that is not missed. Of what was
        before, it remembers the last 256 events of its own life."""
        times = {"since": since, "until": until}
        given = {"filters": _filters(filters)} | {name: time for name, time in times.items() if time}
        async with self._stream("/events", given) as pieces:
            lines = _documents(pieces)
            async with aclosing(lines):
                yield lines

    # -- images ----------------------------------------------------------------------------------------------------

    async def image(self, name: str) -> Fields | None:
        return await self._find(f"/images/{quote(name, safe='/:@')}/json")

    async def pull(self, name: str, login: str | None) -> AsyncGenerator[Fields, None]:
        """Yield what Docker says on the way; an `error` among it is the end."""
        given = {"fromImage": name} if _is_tagged(name) else {"fromImage": name, "tag": "latest"}
        headers = ((b"X-Registry-Auth", login.encode()),) if login else ()
        body = HttpBody.of(b"", headers=headers)
        work = WORK_SECONDS  # it says nothing before the registry has answered
        async with self._stream("/images/create", given, method="POST", body=body, seconds=work) as pieces:
            async for said in _documents(pieces):
                yield said

    # -- containers ------------------------------------------------------------------------------------------------

    async def containers(self, filters: Mapping[str, Sequence[str]]) -> list[Fields]:
        given = {"all": "1", "filters": _filters(filters)}
        found: list[Fields] = await self._call("GET", "/containers/json", given)
        return found

    async def create(self, name: str, body: Fields) -> str:
        made = await self._call("POST", "/containers/create", {"name": name}, body, seconds=WORK_SECONDS)
        return str(made["Id"])

    async def container(self, ref: str, *, size: bool = False) -> Fields | None:
        given, seconds = ({"size": "1"}, WORK_SECONDS) if size else ({}, CALL_SECONDS)
        return await self._find(f"/containers/{ref}/json", given, seconds=seconds)

    async def start(self, ref: str) -> None:
        """Ask once only: an answer that was lost says nothing about whether it began."""
        await self._call("POST", f"/containers/{ref}/start", seconds=WORK_SECONDS, once=True)

    async def kill(self, ref: str, signal: str) -> None:
        """Send a signal; what does not run any more has heard it."""
        with suppress(DockerNotFound, errors.DockerConflict):
            await self._call("POST", f"/containers/{ref}/kill", {"signal": signal})

    async def wait(self, ref: str, seconds: float) -> int:
        found = await self._call("POST", f"/containers/{ref}/wait", seconds=seconds)
        return int(found["StatusCode"])

    async def rename(self, ref: str, name: str) -> None:
        await self._call("POST", f"/containers/{ref}/rename", {"name": name})

    async def update(self, ref: str, body: Fields) -> None:
        """Change limits of a container, whether it runs or not."""
        await self._call("POST", f"/containers/{ref}/update", body=body)

    async def remove(self, ref: str, *, force: bool = True) -> None:
        """Remove a container with what is on its scratch disks; one that runs only by force."""
        given = {"v": "1"} | ({"force": "1"} if force else {})
        try:
            await self._call("DELETE", f"/containers/{ref}", given, seconds=WORK_SECONDS)
        except DockerNotFound:
            return
        except errors.DockerConflict as error:
            if "already in progress" not in error.message:
                raise

    async def put(self, ref: str, path: str, body: HttpBody) -> None:
        """Unpack an archive in a container, whether it has been started or not."""
        await self._call("PUT", f"/containers/{ref}/archive", {"path": path}, body, seconds=WORK_SECONDS)

    async def fetch(self, ref: str, path: str) -> bytes | None:
        """Return an archive of what is at a path in a container."""
        try:
            found = await self._call("GET", f"/containers/{ref}/archive", {"path": path}, raw=True)
        except DockerNotFound:
            return None
        return bytes(found)

    def logs(self, ref: str, **given: str) -> Any:
        """Return a context that gives the pieces of the log as they come."""
        return self._stream(f"/containers/{ref}/logs", {"stdout": "1", "stderr": "1", "timestamps": "1"} | given)

    async def top(self, ref: str, columns: str) -> Fields:
        return await self._get(f"/containers/{ref}/top", {"ps_args": columns})

    async def stats(self, ref: str, *, once: bool = False) -> Fields:
        """Return the counters of two moments a second apart, or `once` of this moment."""
        given = {"stream": "false"} | ({"one-shot": "true"} if once else {})
        return await self._get(f"/containers/{ref}/stats", given)

    # -- programs inside -------------------------------------------------------------------------------------------

    async def exec(
        self, ref: str, command: Sequence[str], *, env: Sequence[str] = (), reads: bool = True, tty: bool = False
    ) -> tuple[str, ProgramStream]:
        """Start a program; return its id, and its input and output."""
        body: Fields = {"Cmd": list(command), "Env": list(env), "Tty": tty, "AttachStdin": reads}
        made = await self._call(
            "POST", f"/containers/{ref}/exec", body=body | {"AttachStdout": True, "AttachStderr": True}
        )
        exchange = await self._fresh()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                target = self._target(f"/exec/{made['Id']}/start", {}, versioned=True)
                status = await exchange.ask("POST", target, _json({"Detach": False, "Tty": tty}), upgrade=True)
                if status not in (101, 200):
                    raise errors.from_answer(self.host, status, await exchange.all())
        except BaseException as error:
            await exchange.close()
            if isinstance(error, (*_LOST, TimeoutError)):
                raise self._lost(error) from error
            raise
        return str(made["Id"]), ProgramStream(exchange.wire, exchange.left(), tty=tty)

    async def resize(self, exec_id: str, columns: int, rows: int) -> None:
        await self._call("POST", f"/exec/{exec_id}/resize", {"h": str(rows), "w": str(columns)})

    async def exec_state(self, exec_id: str) -> Fields:
        return await self._get(f"/exec/{exec_id}/json")

    # -- networks and volumes --------------------------------------------------------------------------------------

    async def network(self, name: str) -> Fields | None:
        return await self._find(f"/networks/{name}")

    async def networks(self, filters: Mapping[str, Sequence[str]]) -> list[Fields]:
        found: list[Fields] = await self._call("GET", "/networks", {"filters": _filters(filters)})
        return found

    async def create_network(self, body: Fields) -> str:
        return str((await self._call("POST", "/networks/create", body=body))["Id"])

    async def remove_network(self, network_id: str) -> None:
        await self._call("DELETE", f"/networks/{network_id}")

    async def volumes(self, filters: Mapping[str, Sequence[str]]) -> list[Fields]:
        found = await self._get("/volumes", {"filters": _filters(filters)})
        return list(found.get("Volumes") or ())

    async def volume_size(self, name: str) -> int:
        """Return a volume's size as Docker itself counts; it counts all volumes for that."""
        found = await self._get("/system/df", seconds=WORK_SECONDS)
        sizes = {str(each["Name"]): int(each["UsageData"]["Size"]) for each in found.get("Volumes") or ()}
        return max(sizes.get(name, 0), 0)

    async def create_volume(self, body: Fields) -> Fields:
        """Make a volume and return it; one of this name that was there before is left as it was."""
        found: Fields = await self._call("POST", "/volumes/create", body=body)
        return found

    async def remove_volume(self, name: str) -> None:
        with suppress(DockerNotFound):
            await self._call("DELETE", f"/volumes/{name}", seconds=WORK_SECONDS)

    # -- how ---------------------------------------------------------------------------------------------------------

    def _target(self, path: str, given: Mapping[str, str], *, versioned: bool) -> str:
        prefix = f"/v{self.version[0]}.{self.version[1]}" if versioned else ""
        return f"{prefix}{path}?{urlencode(given)}" if given else f"{prefix}{path}"

    def _lost(self, error: BaseException) -> DockerUnreachable:
        if isinstance(error, TimeoutError) and not str(error):
            said = "does not answer in time"
        else:
            said = f"cannot be reached: {_words(error)}"
        if self._tls and isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
            said += " (does it trust our certificate?)"
        return DockerUnreachable(f"Docker on {self.host} {said}", host=self.host)

    async def _fresh(self) -> HttpConnection:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return HttpConnection(await self._dial())
        except InvalidAddress as error:
            raise DockerNotConnected(str(error), host=self.host) from error
        except (*_LOST, TimeoutError) as error:
            raise DockerNotConnected(self._lost(error).message, host=self.host) from error

    async def _get(self, path: str, given: Mapping[str, str] | None = None, *, seconds: float = CALL_SECONDS) -> Fields:
        found: Fields = await self._call("GET", path, given, seconds=seconds)
        return found

    async def _find(
        self, path: str, given: Mapping[str, str] | None = None, *, seconds: float = CALL_SECONDS
    ) -> Fields | None:
        try:
            return await self._get(path, given, seconds=seconds)
        except DockerNotFound:
            return None

    async def _call(
        self,
        method: str,
        path: str,
        given: Mapping[str, str] | None = None,
        body: Fields | HttpBody | None = None,
        *,
        seconds: float = CALL_SECONDS,
        versioned: bool = True,
        raw: bool = False,
        once: bool = False,
    ) -> Any:
        target = self._target(path, given or {}, versioned=versioned)
        sends = body if isinstance(body, HttpBody) else None
        while True:
            exchange = self._idle.pop() if self._idle and not (sends or once) else await self._fresh()
            again, kept = exchange.used, False
            try:
                async with asyncio.timeout(seconds):
                    status = await exchange.ask(method, target, sends or (_json(body) if body is not None else None))
                    answer = await exchange.all()
                kept = not self._closed and len(self._idle) < IDLE and exchange.again()
            except TimeoutError as error:  # which is an OSError, too; over the others it would be the same
                await self._close_idle()
                raise self._lost(error) from error
            except _LOST as error:
                if not again:
                    raise self._lost(error) from error
                continue
            finally:
                if kept:
                    self._idle.append(exchange)
                else:
                    await exchange.close()
            if status >= 400:
                raise errors.from_answer(self.host, status, answer)
            return answer if raw else _read(answer)

    @asynccontextmanager
    async def _stream(
        self,
        path: str,
        given: Mapping[str, str],
        *,
        method: str = "GET",
        body: HttpBody | None = None,
        seconds: float = CALL_SECONDS,
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Yield the pieces of an answer until it ends; it may be cut off at any time."""
        exchange = await self._fresh()
        try:
            try:
                async with asyncio.timeout(seconds):
                    status = await exchange.ask(method, self._target(path, given, versioned=True), body)
                    if status >= 400:
                        raise errors.from_answer(self.host, status, await exchange.all())
            except (*_LOST, TimeoutError) as error:
                raise self._lost(error) from error
            async with aclosing(self._pieces(exchange)) as pieces:
                yield pieces
        finally:
            await exchange.close()

    async def _pieces(self, exchange: HttpConnection) -> AsyncGenerator[bytes, None]:
        try:
            async for piece in exchange.pieces():
                yield piece
        except _LOST as error:
            raise self._lost(error) from error


def _words(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "what listens there does not speak TLS"
    if isinstance(error, OSError) and error.errno and error.errno > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _filters(filters: Mapping[str, Sequence[str]]) -> str:
    return json.dumps({name: list(values) for name, values in filters.items()})


def _json(body: Any) -> HttpBody:
    return HttpBody.of(json.dumps(body).encode())


def _read(answer: bytes) -> Any:
    try:
        return json.loads(answer) if answer else None
    except ValueError:
        return answer.decode(errors="replace")


async def _documents(pieces: AsyncIterator[bytes]) -> AsyncGenerator[Fields, None]:
    """Yield the JSON document of each line."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _is_tagged(name: str) -> bool:
    return ":" in name.rpartition("/")[2] or "@" in name
