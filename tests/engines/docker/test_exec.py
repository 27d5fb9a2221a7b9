"""Programs beside a job's own, in an image that has no bash to speak for them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.domain.workloads import Resources
from penstock.engines.base import Launch, Terminal
from penstock.engines.docker import exec
from penstock.engines.docker.engine import DockerEngine
from penstock.errors import Unavailable
from tests.engines.contract.exec import result, running, session, shown
from tests.engines.docker.engines import by_ssh, document, opened, settings_for
from tests.engines.launches import a_launch, ended, printed, run_of
from tests.hosts.lot import Hosts


@pytest.fixture
async def plain(engine: DockerEngine) -> AsyncIterator[Launch]:
    """One that runs in an image without bash."""
    launch = a_launch(("sh", "-c", "echo up; sleep 600"), resources=Resources(image="busybox:1"))
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    yield launch
    await engine.stop(run_of(launch), 0)
    await ended(engine, run_of(launch))


async def test_a_program_that_cannot_be_started_ends_with_what_docker_says(engine: DockerEngine, plain: Launch) -> None:
    async with session(engine, run_of(plain), ["no-such-program", "-l"]) as inside:
        code, out, errors = await result(inside)
    assert code in (126, 127)
    assert b"no-such-program" in out + errors
    async with session(engine, run_of(plain), ["no-such-program"]) as inside:
        assert await inside.exit_code() == code


async def test_closing_a_terminal_ends_what_ran_on_it(engine: DockerEngine, plain: Launch, hosts: Hosts) -> None:
    size = Terminal(columns=80, rows=24)
    command = ["sh", "-c", "trap '' HUP; echo ready; sleep 599"]
    async with session(engine, run_of(plain), command, terminal=size) as inside:
        await shown(inside, "ready")
    assert "sleep 599" not in hosts.hosts[0].docker("top", *hosts.hosts[0].jobs())


async def test_a_connection_that_is_lost_ends_what_it_was_for_and_says_so(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec, "CODE_SECONDS", 1.0)
    machine = hosts.hosts[0]
    async with opened(settings_for(hosts, tmp_path), ()) as engine:
        await engine.use_hosts([document(machine, machine.ssh)])
        async with running(engine) as launch:
            before = by_ssh()
            async with session(engine, run_of(launch), ["sh", "-c", "echo in; exec sleep 599"]) as inside:
                await shown(inside, "in\n")
                for pid in {*by_ssh()} - {*before}:
                    os.kill(pid, signal.SIGKILL)
                with pytest.raises(Unavailable, match="The connection to the program was lost; it still runs"):
                    await result(inside)
            async with asyncio.timeout(60):
                while "sleep 599" in machine.docker("top", *machine.jobs()):
                    await asyncio.sleep(0.1)
