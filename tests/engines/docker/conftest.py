"""An engine over real Docker hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.engines.docker.engine import DockerEngine
from tests.engines.docker.engines import answering, opened, settings_for
from tests.hosts.lot import Hosts


@pytest.fixture
async def engine(hosts: Hosts, tmp_path: Path) -> AsyncIterator[DockerEngine]:
    """Over the first of two hosts."""
    async with opened(settings_for(hosts, tmp_path), hosts.hosts[:1]) as engine:
        await answering(engine)
        yield engine
