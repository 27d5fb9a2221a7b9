"""The embedded engine, through the suites that every engine passes."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.engines.local.engine import LocalEngine
from penstock.settings import Settings
from tests.engines.contract.arguments import ArgumentsContract
from tests.engines.contract.arrays import ArrayContract
from tests.engines.contract.inspect import LookingContract
from tests.engines.contract.nodes import opened
from tests.engines.contract.runs import EngineContract
from tests.engines.contract.scratch import ScratchContract
from tests.engines.contract.stop import StoppingContract

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


class TestLocalEngine(
    EngineContract, StoppingContract, ScratchContract, ArrayContract, ArgumentsContract, LookingContract
):
    looks_every = 1

    @pytest.fixture
    async def engine(self, place: Path) -> AsyncIterator[LocalEngine]:
        settings = Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", disk_scan="1s")
        async with opened(settings) as engine:
            yield engine


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a server for everyone")
class TestSystemServer(EngineContract, ScratchContract, ArrayContract, LookingContract):
    """Work of another account than root's: it is taken on before the sandbox is made."""

    looks_every = 1

    @pytest.fixture
    async def engine(self, place: Path) -> AsyncIterator[LocalEngine]:
        settings = Settings(
            data_dir=place / "data",
            gpu_lock_dir=place / "locks",
            mode="system",
            root_account="daemon",
            disk_scan="1s",
        )
        async with opened(settings) as engine:
            yield engine


class TestWithoutASandbox(StoppingContract, ArgumentsContract, LookingContract):
    @pytest.fixture
    async def engine(self, place: Path) -> AsyncIterator[LocalEngine]:
        async with opened(Settings(data_dir=place / "data", gpu_lock_dir=place / "locks", sandbox="none")) as engine:
            yield engine
