"""Docker engines to try, and the ssh programs that carry their connections."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.domain.nodes import Host
from penstock.domain.policy import SHARED_GROUP
from penstock.domain.volumes import Storage
from penstock.engines.base import Run
from penstock.engines.docker.engine import DockerEngine
from penstock.errors import Unavailable
from penstock.settings import Settings
from tests.hosts.host import Host as Machine
from tests.hosts.lot import Hosts

IMAGE = "penstock-test:1"


def settings_for(hosts: Hosts, place: Path, **chosen: Any) -> Settings:
    given = {
        "docker_image": IMAGE,
        "docker_tls_dir": str(hosts.keys.client),
        "docker_ssh_config": str(hosts.keys.config),
        "disk_scan": "1s",
        "pull_patience": "3s",
        "launch_pause": "1s",
    }
    return Settings(data_dir=place, engine="docker", **(given | chosen))


def document(machine: Machine, address: str | None = None, **fields: Any) -> Host:
    return Host(name=machine.name, group=SHARED_GROUP, address=address or machine.unix, **fields)


@asynccontextmanager
async def opened(
    settings: Settings, machines: Sequence[Machine], storages: Sequence[Storage] = ()
) -> AsyncIterator[DockerEngine]:
    """An open engine; what it still has at the end is removed."""
    engine = DockerEngine(settings)
    try:
        await engine.open()
        await engine.use_hosts([document(machine) for machine in machines], storages)
        yield engine
        async with asyncio.timeout(60):
            for run in await engine.runs():
                await _remove(engine, run)
    finally:
        await engine.close()


async def _remove(engine: DockerEngine, run: Run) -> None:
    """As the reconciler does: a host that was restarted just now may not answer yet."""
    while True:
        try:
            return await engine.remove(run)
        except Unavailable:
            await answering(engine)


@asynccontextmanager
async def left_behind(settings: Settings, *machines: Machine) -> AsyncIterator[DockerEngine]:
    """An open engine, of a server that then goes away: what it started stays."""
    engine = DockerEngine(settings)
    try:
        await engine.open()
        await engine.use_hosts([document(machine) for machine in machines])
        yield engine
    finally:
        await engine.close()


async def answering(engine: DockerEngine) -> None:
    """Return once all hosts answer again."""
    async with asyncio.timeout(60):
        while not all(node.ready for node in await engine.nodes()):
            await asyncio.sleep(0.05)


def by_ssh(process: int | None = None) -> list[int]:
    """Those that this process, or another, has started and not yet seen end: oldest first."""
    pid = process or os.getpid()
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return sorted(child for child in children if _is_ssh(child))


def _is_ssh(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "ssh\n"
    except OSError:
        return False  # it has just ended
