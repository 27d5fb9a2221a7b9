"""What is told to end does, whatever becomes of the words on their way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Resources
from penstock.engines.base import Launch, Report, Run
from penstock.engines.docker import host
from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.api.errors import DockerError, DockerUnreachable
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.runs.runs import DockerRuns
from tests.engines.docker.engines import document, opened, settings_for
from tests.engines.launches import a_launch, ended, log_of, printed, run_of
from tests.hosts.lot import Hosts

STUBBORN = ("sh", "-c", "trap 'echo told' TERM; echo up; while :; do sleep 0.1; done")
LOST = DockerUnreachable("the answer was lost", host="host-1")


class Losing:
    """The first time one of these signals is sent something goes wrong; None: nobody notices."""

    def __init__(self, patch: pytest.MonkeyPatch, signal: str, error: Exception | None) -> None:
        self._signal, self._error = signal, error
        self.lost = asyncio.Event()
        self._kill = DockerApi.kill
        patch.setattr(DockerApi, "kill", lambda api, ref, signal: self._sent(api, ref, signal))

    async def _sent(self, api: DockerApi, ref: str, signal: str) -> None:
        if signal != self._signal or self.lost.is_set():
            await self._kill(api, ref, signal)
            return
        self.lost.set()
        if self._error:
            raise self._error


async def up(engine: DockerEngine) -> Run:
    launch: Launch = a_launch(STUBBORN)
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    return run_of(launch)


async def is_stopped(engine: DockerEngine, run: Run) -> Report:
    report = await ended(engine, run)
    assert [unit.state for unit in report.units] == [State.STOPPED], report
    return report


@pytest.mark.parametrize("error", [LOST, RuntimeError("nobody thought of it")])
async def test_a_kill_that_fails_is_tried_again(
    engine: DockerEngine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    run = await up(engine)
    losing = Losing(monkeypatch, "KILL", error)
    await engine.stop(run, 1)
    await is_stopped(engine, run)
    assert losing.lost.is_set()


async def test_who_asks_again_is_heard_again_when_a_kill_was_lost(
    engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await up(engine)
    losing = Losing(monkeypatch, "KILL", None)
    await engine.stop(run, 1)
    await asyncio.wait_for(losing.lost.wait(), 60)
    await engine.stop(run, 1)
    await is_stopped(engine, run)


async def test_one_that_could_not_be_told_is_told_when_it_is_asked_again(
    engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await up(engine)
    Losing(monkeypatch, "TERM", LOST)
    with pytest.raises(Exception, match="the answer was lost"):
        await engine.stop(run, 1)
    await engine.stop(run, 1)
    await is_stopped(engine, run)
    assert await log_of(engine, run) == b"up\ntold\n"


async def test_one_whose_time_is_up_while_its_host_is_away_ends_when_it_is_back(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "PING_SECONDS", 0.5)
    monkeypatch.setattr(host, "PING_PATIENCE", 1.0)
    machine, tell = hosts.hosts[0], DockerRuns._tell
    in_vain = asyncio.Event()

    async def told(*given: Any) -> None:
        try:
            await tell(*given)
        except DockerError:
            in_vain.set()
            raise

    monkeypatch.setattr(DockerRuns, "_tell", told)
    async with opened(settings_for(hosts, tmp_path), ()) as engine:
        await engine.use_hosts([document(machine, machine.tcp)])
        launch = a_launch(STUBBORN, max_duration=8, stop_grace=1, resources=Resources(image="busybox:1"))
        await engine.start(launch)
        await printed(engine, run_of(launch), "up")
        machine.cut()
        try:
            await asyncio.wait_for(in_vain.wait(), 60)
        finally:
            machine.mend()
        report = await ended(engine, run_of(launch))
        assert [(unit.state, unit.reason) for unit in report.units] == [(State.CRASHED, Reason.TIME_LIMIT)]
