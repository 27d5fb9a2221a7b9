"""What can be seen and reached of a run, on every engine: its tests inherit this class and give it an `engine`."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from penstock.engines.base import Engine, Launch, Run, Session
from penstock.errors import Conflict, PenstockError
from penstock.wire.measures import Measure
from tests.engines.contract.exec import running
from tests.engines.launches import a_launch, ended, log_of, outcome, run_of

SECONDS = 90
ECHO = r"""
cat >~/echo.py <<'END'
import socket, threading

def serve(there):
    with there:
        whole = 0
        while data := there.recv(65536):
            there.sendall(data)
            whole += len(data)
        there.sendall(b"heard %d" % whole)

listening = socket.create_server(("127.0.0.1", 0), backlog=200)
print("port", listening.getsockname()[1], flush=True)
print("up", flush=True)
while True:
    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
END
exec python3 ~/echo.py
"""
BUSY = "(while :; do :; done) & echo up; sleep 600"
SECRETS = {"HF_TOKEN": "hf_hunter2", "DATABASE_URL": "postgresql://ada:hunter2@db/runs", "COLOUR": "blue"}


@asynccontextmanager
async def connection(engine: Engine, run: Run, port: int) -> AsyncIterator[Session]:
    async with asyncio.timeout(SECONDS):
        opened = await engine.connect(run, 0, port)
        try:
            yield opened
        finally:
            await opened.close()


async def reads(opened: Session, count: int) -> bytes:
    """That many bytes of what comes back."""
    seen = b""
    async for channel, data in opened.output():
        assert channel == 1
        seen += data
        if len(seen) >= count:
            break
    return seen


async def whole(opened: Session) -> bytes:
    return b"".join([data async for _, data in opened.output()])


async def echoed(engine: Engine, run: Run, port: int, sent: bytes) -> bytes:
    async with connection(engine, run, port) as opened:
        sending = asyncio.create_task(opened.send(sent))
        heard = await reads(opened, len(sent))
        await sending
    return heard


async def refused(engine: Engine, run: Run, port: int) -> str:
    """What is said, at once or when the first byte is waited for."""
    with pytest.raises(PenstockError) as told:
        async with connection(engine, run, port) as opened:
            await whole(opened)
    return told.value.message


class LookingContract:
    echo = ECHO
    """Prints `port N` and `up`, gives back what it hears, and at the end of that says `heard N`."""
    at_once = 30

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    @asynccontextmanager
    async def echoing(self, engine: Engine, **fields: Any) -> AsyncIterator[tuple[Launch, int]]:
        """A run with a program that listens, and its port."""
        async with running(engine, self.echo, **fields) as launch:
            said = re.search(rb"port (\d+)", await log_of(engine, run_of(launch)))
            assert said
            yield launch, int(said[1])

    # -- inspect -------------------------------------------------------------------------------------------------

    async def test_it_shows_what_there_is_of_a_run_but_no_secret(self, engine: Engine) -> None:
        async with running(engine, envs=SECRETS) as launch:
            text = json.dumps(await engine.inspect(run_of(launch)))
        assert "hunter2" not in text
        assert {"HF_TOKEN", "COLOUR", "blue", launch.workload_id} <= set(re.findall(r"\w+", text))

    async def test_it_shows_what_is_left_of_one_that_ended_or_never_was(self, engine: Engine) -> None:
        launch = a_launch("exit 3", envs=SECRETS)
        await outcome(engine, launch)
        assert "hunter2" not in json.dumps(await engine.inspect(run_of(launch)))
        assert json.dumps(await engine.inspect(Run("nosuchid")))

    # -- top -----------------------------------------------------------------------------------------------------

    async def until_busy(self, engine: Engine, run: Run) -> Measure:
        """A machine may have other things to do for a while."""
        async with asyncio.timeout(SECONDS):
            while (found := await engine.top(run, 0)).cpu_percent < 1:
                pass
        return found

    async def test_it_shows_processes_and_what_they_use(self, engine: Engine) -> None:
        async with running(engine, BUSY, resources={"memory_bytes": 200 << 20}) as launch:
            found = await self.until_busy(engine, run_of(launch))
        commands = {process.command: process for process in found.processes}
        assert "sleep 600" in commands
        assert commands["sleep 600"].memory_bytes > 0
        assert commands["sleep 600"].user
        assert found.processes[0].cpu_percent > 0  # the busiest first
        assert 0 < found.memory_bytes < 200 << 20
        limits_enforced = all(node.limits_enforced for node in await engine.nodes())
        assert found.memory_limit_bytes == (200 << 20 if limits_enforced else None)

    async def test_of_what_does_not_run_nothing_can_be_seen(self, engine: Engine) -> None:
        launch = a_launch("true")
        await outcome(engine, launch)
        with pytest.raises(Conflict):
            await engine.top(run_of(launch), 0)

    async def test_what_nodes_do_is_shown_for_those_that_are_asked_for(self, engine: Engine) -> None:
        names = [node.name for node in await engine.nodes()]
        found = await engine.activity(names[:1])
        assert [each.name for each in found] == names[:1]
        assert found[0].memory_bytes > 0
        assert found[0].message or found[0].memory_used_bytes

    # -- connect -------------------------------------------------------------------------------------------------

    async def test_bytes_reach_what_listens_and_come_back_as_they_were(self, engine: Engine) -> None:
        sent = random.Random(7).randbytes(3_000_000)
        async with self.echoing(engine) as (launch, port):
            assert await echoed(engine, run_of(launch), port, sent) == sent

    async def test_many_connections_at_once_do_not_meet(self, engine: Engine) -> None:
        async with self.echoing(engine) as (launch, port):
            sent = [os.urandom(10_000) for _ in range(self.at_once)]
            heard = await asyncio.gather(*(echoed(engine, run_of(launch), port, each) for each in sent))
        assert heard == sent

    async def test_the_end_of_what_is_sent_is_told_and_the_answer_still_comes(self, engine: Engine) -> None:
        async with self.echoing(engine) as (launch, port), connection(engine, run_of(launch), port) as opened:
            await opened.send(b"hello")
            await opened.end_input()
            assert await whole(opened) == b"helloheard 5"
            assert await opened.exit_code() == 0

    async def test_where_nothing_listens_that_is_said(self, engine: Engine) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            free = taken.getsockname()[1]
        async with running(engine) as launch:
            assert str(free) in await refused(engine, run_of(launch), free)

    async def test_nobody_elses_port_can_be_reached_through_a_run(self, engine: Engine) -> None:
        with socket.create_server(("127.0.0.1", 0)) as machines:
            async with self.echoing(engine) as (launch, port), running(engine) as other:
                assert await refused(engine, run_of(launch), machines.getsockname()[1])
                assert await refused(engine, run_of(other), port)
            machines.setblocking(False)
            with pytest.raises(BlockingIOError):
                machines.accept()

    async def test_a_connection_ends_with_its_run(self, engine: Engine) -> None:
        async with self.echoing(engine) as (launch, port), connection(engine, run_of(launch), port) as opened:
            await opened.send(b"x")
            assert await reads(opened, 1) == b"x"
            await engine.stop(run_of(launch), 0)
            await ended(engine, run_of(launch))
            with suppress(PenstockError):  # some engines can only tell that it broke
                assert await whole(opened) == b""
