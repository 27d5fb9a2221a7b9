"""Docker hosts, through the suites that every engine passes."""

from __future__ import annotations

import pytest

from penstock.engines.docker.engine import DockerEngine
from tests.engines.arguments import ArgumentsContract
from tests.engines.arrays import ArrayContract
from tests.engines.contract import EngineContract
from tests.engines.executing import Executing, running
from tests.engines.launching import run_of
from tests.engines.looking import LookingContract
from tests.engines.scratching import ScratchContract
from tests.engines.stopping import StoppingContract


class OnDocker:
    """The engine comes from the fixture of this folder."""

    @pytest.fixture
    def engine(self, engine: DockerEngine) -> DockerEngine:
        return engine


class TestEngine(OnDocker, EngineContract):
    pass


class TestStopping(OnDocker, StoppingContract):
    pass


class TestArrays(OnDocker, ArrayContract):
    pass


class TestArguments(OnDocker, ArgumentsContract):
    pass


class TestScratch(OnDocker, ScratchContract):
    looks_every = 1


class TestExecuting(OnDocker, Executing):
    pass


class TestLooking(OnDocker, LookingContract):
    at_once = 15
    """Each is a program that Docker starts, which takes it a while."""

    async def test_a_process_that_has_ended_is_not_shown(self, engine: DockerEngine) -> None:
        async with running(engine, "sh -c : & echo up; exec sleep 600") as launch:
            found = await engine.top(run_of(launch), 0)
        assert [each.command for each in found.processes if "defunct" in each.command] == []
