"""Docker hosts, through the suites that every engine passes."""

from __future__ import annotations

import asyncio
import re

import pytest

from penstock.engines.docker.engine import DockerEngine
from tests.engines.contract.arguments import ArgumentsContract
from tests.engines.contract.arrays import ArrayContract
from tests.engines.contract.exec import Executing, running
from tests.engines.contract.inspect import LookingContract
from tests.engines.contract.runs import EngineContract
from tests.engines.contract.scratch import ScratchContract
from tests.engines.contract.stop import StoppingContract
from tests.engines.launches import run_of


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

    async def test_of_many_processes_the_busiest_are_shown_and_how_many_there_are(self, engine: DockerEngine) -> None:
        many = f"for i in {{1..300}}; do sleep {'600'.zfill(400)} & done; (exec yes >/dev/null) & echo up; wait"
        async with running(engine, many) as launch:
            found = await engine.top(run_of(launch), 0)
            async with asyncio.timeout(60):
                while "yes" not in {each.command for each in found.processes}:  # it may have to wait for a processor
                    found = await engine.top(run_of(launch), 0)
        assert len(found.processes) == 200
        assert re.fullmatch(r"30\d processes, of which the busiest are shown", found.message or "")
        assert max(len(each.command) for each in found.processes) == 300
