"""A port of a container, where the image that is to reach it cannot."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.errors import Conflict
from tests.engines.contract.exec import running
from tests.engines.contract.inspect import connection, whole
from tests.engines.docker.engines import IMAGE, answering, opened, settings_for
from tests.engines.launches import run_of
from tests.hosts.lot import Hosts


async def test_an_image_without_nc_is_not_taken_for_a_port_without_a_listener(hosts: Hosts, tmp_path: Path) -> None:
    async with opened(settings_for(hosts, tmp_path, docker_helper_image=IMAGE), hosts.hosts[:1]) as engine:
        await answering(engine)
        async with running(engine) as launch, connection(engine, run_of(launch), 8888) as reached:
            with pytest.raises(Conflict, match="docker_helper_image names has no program 'nc'"):
                await whole(reached)


async def test_what_connects_to_a_port_goes_with_the_job_whoever_is_still_connected(
    hosts: Hosts, tmp_path: Path
) -> None:
    machine = hosts.hosts[0]
    async with opened(settings_for(hosts, tmp_path), hosts.hosts[:1]) as engine:
        await answering(engine)
        async with running(engine) as launch, connection(engine, run_of(launch), 8888):
            helping = ("ps", "-aq", "--filter", "label=penstock.dev/helper=true")
            assert machine.docker(*helping)
            await engine.stop(run_of(launch), 0)
            async with asyncio.timeout(60):
                while machine.docker(*helping):
                    await asyncio.sleep(0.1)
