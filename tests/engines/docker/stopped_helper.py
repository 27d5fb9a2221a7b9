"""A container of ours that looks at something, stopped while it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from tests.hosts.host import Host
from tests.rig.places import RigError

SECONDS = 90
HELPER = "label=penstock.dev/helper=true"


class Held(NamedTuple):
    container: str
    look: asyncio.Task[Any]
    """What it was started for, which ends with the block at the latest."""


@asynccontextmanager
async def held(host: Host, look: Callable[[], Awaitable[Any]]) -> AsyncIterator[Held]:
    """For as long as the block lasts. One may be too quick: then it is looked again."""
    command = host.command("events", "--filter", HELPER, "--filter", "event=start", "--format", "{{.ID}}")
    events = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    stopped = ""

    async def looks() -> Any:
        while True:
            found = await look()
            if stopped:
                return found

    task = asyncio.create_task(looks())
    try:
        assert events.stdout
        async with asyncio.timeout(SECONDS):
            while not stopped:
                started = (await events.stdout.readline()).decode().strip()
                with suppress(RigError):
                    host.docker("kill", "--signal=STOP", started)
                    stopped = started
        yield Held(stopped, task)
    finally:
        events.kill()
        await events.wait()
        if not task.done():
            with suppress(RigError):
                host.docker("kill", "--signal=CONT", stopped)
            await task
