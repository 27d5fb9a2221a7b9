"""Kubernetes, through the suites that every engine passes, with exactly the rights that deploy/kubernetes gives."""

from __future__ import annotations

import json

import pytest

from penstock.domain.volumes import Phase
from penstock.engines.base import Engine
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.errors import Conflict
from tests.engines.contract.arguments import ArgumentsContract
from tests.engines.contract.arrays import ArrayContract
from tests.engines.contract.exec import Executing, running
from tests.engines.contract.inspect import LookingContract, connection, reads
from tests.engines.contract.runs import EngineContract
from tests.engines.contract.scratch import ScratchContract
from tests.engines.contract.stop import StoppingContract
from tests.engines.kubernetes.opening import bound
from tests.engines.launches import a_volume, run_of, the_account


class OnKubernetes:
    """The engine comes from the fixture of this folder."""

    @pytest.fixture
    def engine(self, engine: KubernetesEngine) -> KubernetesEngine:
        return engine


class TestEngine(OnKubernetes, EngineContract):
    async def test_a_volume_is_bound_once_made_and_lost_when_it_is_not_there(self, engine: Engine) -> None:
        """A claim is made at once and bound by the cluster a moment later, so that is waited for."""
        made, never = a_volume(), a_volume()
        await engine.create_volume(made, the_account())
        await engine.create_volume(made, the_account())
        assert (await engine.volume_reports([made]))[made.id].phase in (Phase.Pending, Phase.Bound)
        await bound(engine, made)
        reports = await engine.volume_reports([made, never])
        assert reports[made.id].phase is Phase.Bound
        assert reports[never.id].phase is Phase.Lost
        assert reports[never.id].message


class TestStopping(OnKubernetes, StoppingContract):
    pass


class TestArrays(OnKubernetes, ArrayContract):
    pass


class TestArguments(OnKubernetes, ArgumentsContract):
    pass


class TestScratch(OnKubernetes, ScratchContract):
    pass


class TestExecuting(OnKubernetes, Executing):
    at_once = 15
    """Of fifty in one moment and container, containerd 1.6 leaves some waiting for half a minute."""


class TestLooking(OnKubernetes, LookingContract):
    at_once = 15

    async def test_the_end_of_what_is_sent_is_told_and_the_answer_still_comes(self, engine: Engine) -> None:
        """That cannot be told in a cluster, and nothing is lost by it."""
        async with self.echoing(engine) as (launch, port), connection(engine, run_of(launch), port) as opened:
            await opened.send(b"hello")
            await opened.end_input()
            assert await reads(opened, 5) == b"hello"
            await opened.send(b"again")
            assert await reads(opened, 5) == b"again"

    async def test_the_objects_of_a_run_are_shown_without_what_repeats_them(self, engine: Engine) -> None:
        volume = a_volume()
        await engine.create_volume(volume, the_account())
        async with running(engine, mounts={"/data": volume}, record='{"envs": "hunter2"}') as launch:
            found = await engine.inspect(run_of(launch))
        assert [each["kind"] for kind in ("jobs", "pods", "claims") for each in found[kind]] == [
            "Job",
            "Pod",
            "PersistentVolumeClaim",
        ]
        text = json.dumps(found)
        assert "managedFields" not in text
        assert "hunter2" not in text

    async def test_what_a_pod_sends_and_receives_is_counted(self, engine: Engine) -> None:
        async with self.echoing(engine) as (launch, _):
            found = await engine.top(run_of(launch), 0)
        assert found.network_received_bytes is not None
        assert found.network_sent_bytes is not None

    async def test_where_there_is_only_busybox_it_can_be_seen_too(self, engine: Engine) -> None:
        run = ("sh", "-c", "echo up; exec sleep 600")
        async with running(engine, run, resources={"image": "busybox:1"}) as launch:
            found = await engine.top(run_of(launch), 0)
        assert [process.command for process in found.processes] == ["sleep 600"]

    async def test_where_there_is_no_shell_that_is_said(self, engine: Engine) -> None:
        run = ("sh", "-c", "rm /bin/sh; echo up; exec sleep 600")
        async with running(engine, run, resources={"image": "busybox:1"}) as launch:
            with pytest.raises(Conflict, match="the image has no shell"):
                await engine.top(run_of(launch), 0)
