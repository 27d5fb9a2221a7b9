"""Connections that have ended, under the loop that a server runs on: it says so in words of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import uvloop

from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.api.errors import DockerUnreachable
from penstock.engines.docker.api.http import HttpConnection
from penstock.engines.docker.api.transport import Transport, dial, read_address
from tests.engines.docker.engines import by_ssh
from tests.hosts.lot import Hosts

PATIENCE = 60
Loop = Callable[[], asyncio.AbstractEventLoop]
both_loops = pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])


def under(loop: Loop, work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work)


async def cut() -> None:
    """The programs that carry our connections are ended, and it was noticed."""
    for pid in by_ssh():
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE):
        while by_ssh():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def reached(hosts: Hosts) -> AsyncIterator[DockerApi]:
    address = read_address(hosts.hosts[0].ssh)
    api = DockerApi("host-1", partial(dial, address, None, ["ssh", "-F", str(hosts.keys.config)]))
    try:
        yield api
    finally:
        await api.close()


@both_loops
def test_a_call_that_finds_its_connection_ended_is_asked_over_another(hosts: Hosts, loop: Loop) -> None:
    async def work() -> None:
        async with reached(hosts) as api:
            version = (await api.agree())["Version"]
            await cut()
            assert (await api.agree())["Version"] == version

    under(loop, work())


async def test_a_call_that_nobody_answers_in_time_is_not_asked_again(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over each of the connections there are, that would take many times as long."""
    machine, ask = hosts.hosts[0], HttpConnection.ask
    asked = []

    async def counted(exchange: HttpConnection, method: str, target: str, *more: Any) -> int:
        asked.append(target)
        return await ask(exchange, method, target, *more)

    api = DockerApi("host-1", partial(dial, read_address(machine.unix), None, []))
    await asyncio.gather(*(api.info() for _ in range(3)))
    monkeypatch.setattr(HttpConnection, "ask", counted)
    machine.pause()
    try:
        with pytest.raises(DockerUnreachable, match="does not answer in time"):
            await api.ping(0.5)
    finally:
        machine.resume()
    assert asked == ["/_ping"]
    await api.ping(PATIENCE)
    await api.close()


@both_loops
def test_one_over_ssh_that_has_ended_takes_nothing_more(hosts: Hosts, loop: Loop) -> None:
    async def work() -> None:
        wire = await dial(read_address(hosts.hosts[0].ssh), None, ["ssh", "-F", str(hosts.keys.config)])
        await wire.write(b"GET /_ping HTTP/1.1\r\nHost: docker\r\n\r\n")
        assert (await wire.read()).startswith(b"HTTP/1.1 200 ")
        await cut()
        await takes_nothing(wire)

    under(loop, work())


@both_loops
def test_one_that_the_other_side_has_reset_takes_nothing_more(loop: Loop) -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            wire = await dial(read_address(f"tcp://127.0.0.1:{listening.getsockname()[1]}"), None, [])
            theirs, _ = listening.accept()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            theirs.close()
        await takes_nothing(wire)

    under(loop, work())


async def takes_nothing(wire: Transport) -> None:
    with suppress(ConnectionResetError):
        assert await wire.read() == b""
    with pytest.raises(ConnectionError):
        await wire.write(b"more")
    await wire.end_input()
    await wire.close()
