"""Routes for exec and volume shells: a program's input and output over a WebSocket.

Messages are binary, and the first byte of each says what it is about, as with `kubectl exec`: 0 input, 1 output,
2 errors, 3 how it ended, 4 the terminal's size, 5 the command, 255 that a channel ends. The command is the first
message and no part of the address: addresses are written down, by the audit and by every proxy on the way. What is
wrong before the program starts is an ordinary HTTP answer; what goes wrong later is told on channel 3.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any, NoReturn

from fastapi import APIRouter, Depends, Query, Response, WebSocket
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect

from penstock.domain.policy import Kind, Verb
from penstock.domain.users import Caller
from penstock.engines.base import Session, Terminal
from penstock.errors import BadRequest, PenstockError, Unavailable
from penstock.server.identity import Authorized, AuthorizedCall
from penstock.wire.pages import ErrorBody

router = APIRouter(tags=["exec"])
log = logging.getLogger(__name__)

PROTOCOL = "v1.channel.penstock"
STDIN, STDOUT, STDERR, RESULT, RESIZE, COMMAND, CLOSE = 0, 1, 2, 3, 4, 5, 255
NORMAL, GOING_AWAY = 1000, 1001
HEARD_AHEAD = 16
"""Messages taken from the client before the program has taken the one before them; then it must wait."""
LAST_WORD_SECONDS = 0.5
COMMAND_SECONDS = 60
"""Seconds until the first message must have come."""
STOPPED = "The server is stopping, and the program was ended with it."
NO_COMMAND = 'The first message must be the command, on channel 5: {"command": ["ls", "-l"]}.'
INTERRUPT = b"\x03"

Result = dict[str, Any]
Part = Annotated[int | None, Query(ge=0, description="the node, or the index of an array; else the first that runs")]
Tty = Annotated[bool, Query(description="on a terminal of its own")]
Cells = Annotated[int, Query(ge=1, le=65535)]


Start = Callable[[tuple[str, ...]], AbstractAsyncContextManager[Session]]
Require = Callable[[Caller], Awaitable[None]]


def _terminal(request: HTTPConnection, tty: Tty = False, columns: Cells = 80, rows: Cells = 24) -> Terminal | None:
    if "command" in request.query_params:
        raise BadRequest("A command is no part of the address.", hint="send it as the first message, on channel 5")
    return Terminal(columns=columns, rows=rows) if tty else None


OnTerminal = Annotated[Terminal | None, Depends(_terminal)]


@router.websocket("/v1/workloads/{ref}/exec")
async def exec_in_workload(
    socket: WebSocket, ref: str, call: Authorized, terminal: OnTerminal, part: Part = None
) -> None:
    line, sessions = ProgramSocket(socket), call.parts.sessions
    async with sessions.entering(call.caller, ref, part) as (workload, chosen):
        await line.accept()
        program = line.program(lambda command: sessions.exec(call.caller, workload, chosen, command, terminal))
        require = partial(sessions.require_entry, workload)
        result = await line.carry(program, over(call, Kind.Workload, workload.group, require))
    await line.end(result)


@router.websocket("/v1/volumes/{ref}/shell")
async def shell_on_volume(socket: WebSocket, ref: str, call: Authorized, terminal: OnTerminal) -> None:
    line, sessions = ProgramSocket(socket), call.parts.sessions
    async with sessions.holding(call.caller, ref) as (volume, workload):
        await line.accept()
        program = line.program(lambda command: sessions.shell(workload, command, terminal, line.say))
        stopped = over(call, Kind.Volume, volume.group, partial(sessions.require_hold, volume, workload))
        result = await line.carry(program, stopped, interruptible=terminal is not None)
    await line.end(result)  # by now the volume is free again


@router.get("/v1/workloads/{ref}/exec", status_code=400, response_model=ErrorBody)
async def exec_without_websocket(ref: str, call: Authorized, terminal: OnTerminal, part: Part = None) -> Response:
    """A WebSocket (`v1.channel.penstock`) that starts a program in a running workload.

    Binary messages whose first byte is the channel. The first message is the program, on channel 5: `{"command": ["ls",
    "-l"]}`, a shell if the list is empty. Then 0 input, 1 output, 2 errors, 3 how it ended (`{"exit_code": 0}` or
    `{"error": {…}}`), 4 the terminal's size (`{"Width": 80, "Height": 24}`), 255 and a channel: that one ends.
    """
    raise needs_websocket()


@router.get("/v1/volumes/{ref}/shell", status_code=400, response_model=ErrorBody)
async def shell_without_websocket(ref: str, call: Authorized, terminal: OnTerminal) -> Response:
    """A WebSocket like that of `exec`, to a program that sees the volume at `/volume`; nothing need run for that."""
    raise needs_websocket()


def needs_websocket() -> BadRequest:
    return BadRequest("This address speaks WebSocket.", hint=f"open it as one, with the sub-protocol {PROTOCOL}")


async def over(call: AuthorizedCall, kind: Kind, group: str, require: Require) -> None:
    """Wait until the server stops; raise if the caller loses their rights, or `require` refuses them."""
    stopped = asyncio.ensure_future(call.parts.sessions.stopped())
    refused = asyncio.ensure_future(call.parts.people.until_refused(call.caller, Verb.exec, kind, group, require))
    (await _first_of(refused, stopped)).result()


async def _first_of(*tasks: asyncio.Future[Any]) -> asyncio.Future[Any]:
    """Return the first task that is done, in the order given, and end the others."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def given(session: Session) -> AsyncIterator[Session]:
    yield session


class Interrupted(Exception):
    """Ctrl-C before there is a program to receive it."""


class ProgramSocket:
    """One WebSocket to a program, and the messages on it."""

    def __init__(self, socket: WebSocket, stopped: str = STOPPED) -> None:
        """`stopped` is the message to send when the server ends."""
        self._socket = socket
        self._stopped = stopped
        self._lost: asyncio.Event = socket.scope["state"]["lost"]
        self._heard: asyncio.Queue[bytes] = asyncio.Queue(HEARD_AHEAD)
        self._interruptible = False
        self._offered = socket.scope["subprotocols"]
        if self._offered and PROTOCOL not in self._offered:
            raise BadRequest("None of these sub-protocols is spoken here.", hint=f"use {PROTOCOL}")

    async def accept(self) -> None:
        await self._socket.accept(subprotocol=PROTOCOL if self._offered else None)

    async def say(self, text: str) -> None:
        await self._send(STDERR, f"{text}\r\n".encode())

    @asynccontextmanager
    async def program(self, start: Start) -> AsyncIterator[Session]:
        """Start the program of the first message, which is the command."""
        async with start(await self._command()) as session:
            yield session

    async def _command(self) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                return _words(await self._heard.get())
        except TimeoutError:
            raise BadRequest(NO_COMMAND) from None

    async def carry(
        self,
        opening: AbstractAsyncContextManager[Session],
        stopped: Coroutine[Any, Any, None],
        *,
        interruptible: bool = False,
    ) -> Result | None:
        """Relay until the program, the client or the server ends; return None if the client has gone."""
        self._interruptible = interruptible
        hearing, working = asyncio.create_task(self._hear()), asyncio.create_task(self._work(opening))
        stopping, leaving = asyncio.create_task(stopped), asyncio.create_task(self._lost.wait())
        first = await _first_of(working, hearing, leaving, stopping)
        if first is leaving:
            return None
        if first is stopping and stopping.exception() is None:
            return {"error": Unavailable(self._stopped).body()}
        try:
            result: Result | None = first.result()
            return result
        except Interrupted:
            return {"exit_code": 130}
        except PenstockError as error:
            return {"error": error.body()}
        except Exception:
            log.exception("a program in a workload was lost")
            defect = PenstockError("The server ran into an internal error.", hint="penstock server logs")
            return {"error": defect.body()}

    async def end(self, result: Result | None) -> None:
        if result is None:
            return
        normal = "exit_code" in result
        with suppress(TimeoutError, WebSocketDisconnect, RuntimeError):  # one who does not read is not waited for
            async with asyncio.timeout(None if normal else LAST_WORD_SECONDS):
                await self._send(RESULT, json.dumps(result).encode())
                await self._socket.close(NORMAL if normal else GOING_AWAY)

    async def _work(self, opening: AbstractAsyncContextManager[Session]) -> Result | None:
        try:
            async with opening as session:
                self._interruptible = False
                feeding, printing = asyncio.create_task(self._feed(session)), asyncio.create_task(self._print(session))
                result: Result = (await _first_of(printing, feeding)).result()
                return result
        except WebSocketDisconnect:
            return None

    async def _print(self, session: Session) -> Result:
        async for channel, data in session.output():
            await self._send(channel, data)
        return {"exit_code": await session.exit_code()}

    async def _send(self, channel: int, data: bytes) -> None:
        await self._socket.send_bytes(bytes([channel]) + data)

    async def _hear(self) -> None:
        """Receive messages until the client has gone."""
        while (message := await self._socket.receive())["type"] == "websocket.receive":
            data = message.get("bytes")
            if data is None:
                raise BadRequest("Messages must be binary.")
            if self._interruptible and data[:1] == bytes([STDIN]) and INTERRUPT in data:
                raise Interrupted
            if data:
                await self._heard.put(bytes(data))

    async def _feed(self, session: Session) -> NoReturn:
        while True:
            data = await self._heard.get()
            channel, rest = data[0], data[1:]
            if channel == STDIN:
                await session.send(rest)
            elif channel == RESIZE:
                await session.resize(_size(rest))
            elif channel == CLOSE and rest == bytes([STDIN]):
                await session.end_input()
            else:
                raise BadRequest(f"Nothing can be sent on channel {channel}.")


def _words(message: bytes) -> tuple[str, ...]:
    try:
        words = json.loads(message[1:])["command"] if message[0] == COMMAND else None
        if isinstance(words, list) and not any("\0" in word for word in words):
            return tuple(word.encode().decode() for word in words)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise BadRequest(NO_COMMAND)


def _size(data: bytes) -> Terminal:
    try:
        found = json.loads(data)
        columns, rows = int(found["Width"]), int(found["Height"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise BadRequest('A size is {"Width": 80, "Height": 24}.') from None
    return Terminal(columns=min(max(columns, 1), 65535), rows=min(max(rows, 1), 65535))
