"""An engine to try."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.domain.volumes import Phase, Volume
from penstock.engines.base import Engine
from penstock.engines.kubernetes.engine import KubernetesEngine
from penstock.settings import Settings
from tests.engines.kubernetes.observed import advanced


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[KubernetesEngine]:
    """An open engine whose runs are advanced when they change; what it still has at the end is removed."""
    engine = KubernetesEngine(settings)
    try:
        await engine.open()
        async with advanced(engine.changes(), engine.advance):
            yield engine
        for run in await engine.runs():
            await engine.stop(run, 0)
            await engine.remove(run)
    finally:
        await engine.close()


async def bound(engine: Engine, volume: Volume) -> None:
    """Return once the cluster has made its storage; nothing tells when that is."""
    async with asyncio.timeout(60):
        while (await engine.volume_reports([volume]))[volume.id].phase is not Phase.Bound:
            await asyncio.sleep(0.05)
