"""An engine to try."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.domain.nodes import Host
from penstock.domain.policy import SHARED_GROUP
from penstock.domain.volumes import Storage
from penstock.engines.docker.engine import DockerEngine
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
        for run in await engine.runs():
            await engine.remove(run)
    finally:
        await engine.close()


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
