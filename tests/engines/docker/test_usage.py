"""How much memory programs used at most that run as they are, without anything of ours around them."""

from __future__ import annotations

import asyncio

from penstock.domain.workloads import Resources
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.usage import peak_in
from tests.engines.launches import a_launch, ended, printed, run_of

MIB = 1 << 20
FILLS = "x=$(head -c 50000000 /dev/zero | tr '\\0' x); echo up; sleep 600"


async def test_it_is_known_while_it_runs_and_when_it_has_ended(engine: DockerEngine) -> None:
    launch = a_launch(("sh", "-c", FILLS), resources=Resources(image="busybox:1"))
    run = run_of(launch)
    await engine.start(launch)
    await printed(engine, run, "up")
    async with asyncio.timeout(60):
        while ((await engine.observe(run)).units[0].peak_memory_bytes or 0) < 50 * MIB // 1.1:
            await asyncio.sleep(0.05)
    await engine.stop(run, 0)
    [unit] = (await ended(engine, run)).units
    assert unit.peak_memory_bytes
    assert 45 * MIB < unit.peak_memory_bytes < 1000 * MIB


def test_the_kernels_own_peak_counts_where_it_keeps_one() -> None:
    assert peak_in({"memory_stats": {"usage": 5, "max_usage": 9}}) == 9
    assert peak_in({"memory_stats": {"usage": 5}}) == 5
    assert peak_in({}) == 0
