"""An engine in a fresh directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings
from tests.engines.contract.nodes import opened


@pytest.fixture
def settings(place: Path) -> Settings:
    return Settings(data_dir=place / "data", gpu_lock_dir=place / "locks")


@pytest.fixture
async def engine(settings: Settings) -> AsyncIterator[LocalEngine]:
    async with opened(settings) as engine:
        yield engine
