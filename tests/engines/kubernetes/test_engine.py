"""Kubernetes, through the suites that every engine passes, with exactly the rights that deploy/kubernetes gives."""

from __future__ import annotations

import pytest

from penstock.domain.volumes import Phase
from penstock.engines.base import Engine
from penstock.engines.kubernetes.engine import KubernetesEngine
from tests.engines.arguments import ArgumentsContract
from tests.engines.arrays import ArrayContract
from tests.engines.contract import EngineContract
from tests.engines.executing import Executing
from tests.engines.kubernetes.opening import bound
from tests.engines.launching import a_volume, the_account
from tests.engines.scratching import ScratchContract
from tests.engines.stopping import StoppingContract


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
