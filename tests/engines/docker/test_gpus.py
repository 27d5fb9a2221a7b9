"""How hosts are asked what their GPUs do. The GPUs are a stand-in; the containers that look at them are real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.domain.nodes import Gpu
from penstock.domain.workloads import Resources
from penstock.engines.base import Launch
from penstock.engines.docker import usage as gauges
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.nodes import NO_NETWORK
from penstock.wire.measures import GpuMeasure
from penstock.wire.server import Check
from tests.engines.docker.engines import document, left_behind, opened, settings_for
from tests.engines.launches import a_launch, ended, printed, run_of
from tests.hosts.gpus import MEMORY_MB, uuid
from tests.hosts.host import Host
from tests.hosts.lot import Hosts
from tests.store.making import a_workload

PRODUCT = "NVIDIA A10"
MIB = 1 << 20


@pytest.fixture
def soon_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle hosts are looked at all the time."""
    monkeypatch.setattr(gauges, "IDLE_SECONDS", 0.2)


@pytest.fixture
async def engine(gpu_hosts: Hosts, tmp_path: Path) -> AsyncIterator[DockerEngine]:
    """Over both, once their GPUs are known."""
    async with opened(settings_for(gpu_hosts, tmp_path), gpu_hosts.hosts) as engine:
        await found(engine)
        yield engine
    for host in gpu_hosts.hosts:
        host.has_gpus(PRODUCT, PRODUCT)


async def found(engine: DockerEngine) -> None:
    async with asyncio.timeout(60):
        while not all(node.gpus for node in await engine.nodes()):
            await asyncio.sleep(0.05)


async def up(engine: DockerEngine, host: Host, number: int) -> Launch:
    """Something that has one GPU of a host."""
    gpus = ((uuid(host.name, number),),)
    program = ("sh", "-c", "echo up; sleep 600")
    launch = a_launch(program, gpus=gpus, hosts=(host.name,), resources=Resources(gpus=1, cpus_milli=100))
    await engine.start(launch)
    await printed(engine, run_of(launch), "up")
    return launch


async def use(engine: DockerEngine) -> dict[str, GpuMeasure]:
    """What all those GPUs do that can be seen, as one is told who has them all."""
    workload = a_workload(gpus=(tuple(uuid(name, i) for name in ("host-1", "host-2") for i in (0, 1)),))
    [gpus] = (await engine.gpu_use([workload])).values()
    return {gpu.uuid: gpu for gpu in gpus if gpu}


def looks(host: Host) -> int:
    """How many containers have looked at something there, since its Docker began."""
    filters = ("--filter", "label=penstock.dev/helper=true", "--filter", "event=start")
    now = host.docker("info", "--format", "{{.SystemTime}}").strip()
    return len(host.docker("events", "--since", "0", "--until", now, *filters).splitlines())


async def test_gpus_are_found_with_product_and_memory(engine: DockerEngine, gpu_hosts: Hosts) -> None:
    first, _ = await engine.nodes()
    assert all(gpu.last_seen for gpu in first.gpus)
    assert tuple(gpu.model_copy(update={"last_seen": None}) for gpu in first.gpus) == tuple(
        Gpu(uuid=uuid("host-1", i), product=PRODUCT, memory_bytes=MEMORY_MB * MIB, minor=i, memory_used_bytes=0)
        for i in (0, 1)
    )


async def test_only_hosts_whose_gpus_somebody_has_are_asked_and_once_for_all(
    engine: DockerEngine, gpu_hosts: Hosts
) -> None:
    used, idle = gpu_hosts.hosts
    before = [looks(host) for host in (used, idle)]
    assert await use(engine) == {}
    launch = await up(engine, used, 1)
    used.gpu_does(1, 87, 2048)
    *all_, measure = await asyncio.gather(*(use(engine) for _ in range(4)), engine.top(run_of(launch), 0))
    assert [looks(host) for host in (used, idle)] == [before[0] + 1, before[1]]
    assert all(each == all_[0] for each in all_)
    assert {uuid: gpu.utilization for uuid, gpu in all_[0].items()} == {"GPU-host-1-0": 0, "GPU-host-1-1": 87}
    [gpu] = measure.gpus
    assert gpu == all_[0]["GPU-host-1-1"]
    assert (gpu.product, gpu.memory_bytes, gpu.memory_used_bytes) == (PRODUCT, MEMORY_MB * MIB, 2048 * MIB)
    assert measure.message is None


async def memory_used(engine: DockerEngine, host: Host) -> list[int | None]:
    [node] = [node for node in await engine.nodes() if node.name == host.name]
    return [gpu.memory_used_bytes for gpu in node.gpus]


async def until_used(engine: DockerEngine, host: Host, memory: list[int | None]) -> None:
    async with asyncio.timeout(60):
        while await memory_used(engine, host) != memory:
            await asyncio.sleep(0.05)


@pytest.mark.usefixtures("soon_looked")
async def test_what_is_in_their_memory_is_shown_and_also_that_it_is_free_again(
    engine: DockerEngine, gpu_hosts: Hosts
) -> None:
    host = gpu_hosts.hosts[0]
    launch = await up(engine, host, 0)
    host.gpu_does(0, 0, 512)
    await until_used(engine, host, [512 * MIB, 0])
    host.gpu_does(0, 0, 0)
    await engine.stop(run_of(launch), 0)
    await ended(engine, run_of(launch))
    await until_used(engine, host, [0, 0])


async def until_outside(engine: DockerEngine, host: Host, words: list[str]) -> list[Gpu]:
    async with asyncio.timeout(60):
        while True:
            [node] = [node for node in await engine.nodes() if node.name == host.name]
            if [gpu.outside for gpu in node.gpus] == words:
                return list(node.gpus)
            await asyncio.sleep(0.05)


@pytest.mark.usefixtures("soon_looked")
async def test_what_others_do_on_the_gpus_of_an_idle_host_is_noticed(engine: DockerEngine, gpu_hosts: Hosts) -> None:
    host = gpu_hosts.hosts[0]
    host.gpu_does(0, 0, 5120)
    host.gpu_does(1, 0, 100, processes=2)
    before = await until_outside(engine, host, ["5120 MiB in use", "2 compute processes, 100 MiB in use"])
    assert [gpu.memory_used_bytes for gpu in before] == [5120 * MIB, 100 * MIB]
    host.gpu_does(0, 0, 900)
    host.gpu_does(1, 0, 0)
    after = await until_outside(engine, host, ["", ""])
    assert [gpu.memory_used_bytes for gpu in after] == [900 * MIB, 0]
    assert before[0].last_seen
    assert after[0].last_seen
    assert after[0].last_seen > before[0].last_seen


@pytest.mark.usefixtures("soon_looked")
async def test_one_that_ends_is_seen_though_others_go_on(engine: DockerEngine, gpu_hosts: Hosts) -> None:
    host = gpu_hosts.hosts[0]
    ends = await up(engine, host, 0)
    await up(engine, host, 1)
    host.gpu_does(0, 50, 4096)
    await until_used(engine, host, [4096 * MIB, 0])
    await until_outside(engine, host, ["", ""])
    host.gpu_does(0, 0, 0)
    await engine.stop(run_of(ends), 0)
    await until_used(engine, host, [0, 0])


async def test_what_others_had_when_the_server_came_is_known_from_the_start(gpu_hosts: Hosts, tmp_path: Path) -> None:
    host = gpu_hosts.hosts[0]
    host.gpu_does(1, 0, 2048)
    try:
        async with opened(settings_for(gpu_hosts, tmp_path), [host]) as engine:
            await found(engine)
            [node] = await engine.nodes()
            assert [gpu.outside for gpu in node.gpus] == ["", "2048 MiB in use"]
    finally:
        host.has_gpus(PRODUCT, PRODUCT)


async def test_a_host_that_stands_still_hides_nothing_of_the_others(engine: DockerEngine, gpu_hosts: Hosts) -> None:
    first, second = gpu_hosts.hosts
    await up(engine, first, 0)
    await up(engine, second, 0)
    assert set(await use(engine)) == {uuid(host.name, i) for host in (first, second) for i in (0, 1)}
    second.pause()
    try:
        assert set(await use(engine)) == {uuid(first.name, i) for i in (0, 1)}
    finally:
        second.resume()
    async with asyncio.timeout(60):
        while len(await use(engine)) < 4:
            await asyncio.sleep(0.2)


async def test_a_server_ends_though_it_looks_at_a_host_that_stands_still(gpu_hosts: Hosts, tmp_path: Path) -> None:
    host = gpu_hosts.hosts[0]
    try:
        async with left_behind(settings_for(gpu_hosts, tmp_path), host) as engine:
            await found(engine)
            await up(engine, host, 0)
            looking = asyncio.create_task(use(engine))
            while not host.docker("ps", "--all", "--quiet", "--filter", "label=penstock.dev/helper=true"):
                await asyncio.sleep(0.01)
                assert not looking.done()
            host.pause()
            async with asyncio.timeout(60):
                await engine.close()
            await asyncio.gather(looking, return_exceptions=True)
    finally:
        host.resume()
        host.clean()


async def test_where_the_driver_is_gone_nothing_is_known_and_that_is_said(
    engine: DockerEngine, gpu_hosts: Hosts
) -> None:
    host = gpu_hosts.hosts[0]
    launch = await up(engine, host, 0)
    host.has_gpus()
    assert await use(engine) == {}
    assert await memory_used(engine, host) == [None, None]
    measure = await engine.top(run_of(launch), 0)
    [gpu] = measure.gpus
    assert (gpu.product, gpu.memory_used_bytes, gpu.utilization) == (PRODUCT, None, None)
    assert str(measure.message).startswith("its GPUs cannot be measured: ")
    assert "driver not loaded" in str(measure.message)
    [node] = await engine.activity([host.name])
    assert (node.message, node.cpu_percent is None) == (f"{NO_NETWORK}; {measure.message}", False)


async def test_the_doctor_says_why_gpus_are_not_found_and_they_are_when_docker_was_restarted(
    gpu_hosts: Hosts, tmp_path: Path
) -> None:
    host = gpu_hosts.hosts[0]
    host.has_gpus()
    async with opened(settings_for(gpu_hosts, tmp_path), [host]) as engine:
        try:
            async with asyncio.timeout(60):
                while not (said := await gpu_checks(engine)):
                    await asyncio.sleep(0.05)
        finally:
            host.has_gpus(PRODUCT, PRODUCT)
        assert said[0].detail.startswith("nvidia-smi does not show the GPUs of host-1: ")
        assert "driver not loaded" in said[0].detail
        assert not said[0].required
        host.restart()
        await found(engine)
        assert await gpu_checks(engine) == []


async def gpu_checks(engine: DockerEngine) -> list[Check]:
    return [check for check in await engine.checks() if check.name.startswith("GPUs of ")]


async def test_gpus_that_are_only_declared_are_not_seen(gpu_hosts: Hosts, tmp_path: Path) -> None:
    host = gpu_hosts.hosts[0]
    gpus = (Gpu(uuid="GPU-lab-0", product="Tesla V100", memory_bytes=16 << 30, minor=0),)
    async with opened(settings_for(gpu_hosts, tmp_path), ()) as engine:
        await engine.use_hosts([document(host)])
        await found(engine)
        await engine.use_hosts([document(host, gpus=gpus)])
        [node] = await engine.activity([host.name])
        assert [(gpu.uuid, gpu.utilization, gpu.memory_used_bytes) for gpu in node.gpus] == [("GPU-lab-0", None, None)]
        assert node.message == f"{NO_NETWORK}; its GPUs cannot be measured: nvidia-smi does not show GPU-lab-0"
