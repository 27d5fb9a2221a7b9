"""Hosts as nodes: by every kind of address, beside others that do not answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.domain.nodes import Allows, Gpu
from penstock.domain.states import State
from penstock.engines.base import Run
from penstock.engines.docker.api.transport import DockerAddress, InvalidAddress, read_address
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.gpus import read_table
from tests.engines.contract.exec import result, running, session, told
from tests.engines.docker.engines import document, opened, settings_for
from tests.engines.launches import a_launch, an_array, ended, log_of, outcome, run_of
from tests.hosts.lot import Hosts


@pytest.mark.parametrize("way", ["unix", "tcp", "ssh"])
async def test_a_host_can_be_reached_by_any_address(hosts: Hosts, tmp_path: Path, way: str) -> None:
    machine = hosts.hosts[0]
    async with opened(settings_for(hosts, tmp_path), ()) as engine:
        await engine.use_hosts([document(machine, getattr(machine, way))])
        [node] = await engine.nodes()
        assert (node.ready, node.message, node.address) == (True, None, getattr(machine, way))
        async with running(engine) as launch:
            assert await told(engine, run_of(launch), "echo hi; exit 4") == (4, "hi\n", "")
            async with session(engine, run_of(launch), ["cat"]) as opened_:
                await opened_.send(b"\x00\xff" * 50_000)
                await opened_.end_input()
                assert await result(opened_) == (0, b"\x00\xff" * 50_000, b"")


async def test_a_node_shows_what_its_document_and_its_engine_say(hosts: Hosts, tmp_path: Path) -> None:
    gpu = Gpu(uuid="GPU-1", product="Tesla V100", memory_bytes=16 << 30, minor=0)
    async with opened(settings_for(hosts, tmp_path), ()) as engine:
        machine = hosts.hosts[0]
        await engine.use_hosts([document(machine, maintenance=True, labels={"rack": "a"}, gpus=(gpu,))])
        async with asyncio.timeout(60):
            while not (node := (await engine.nodes())[0]).cpu_product:
                await asyncio.sleep(0.05)
        assert node.cpu_product in Path("/proc/cpuinfo").read_text()
        assert node.cpus_milli >= 1000
        assert node.memory_bytes > 1 << 30
        assert (node.labels, node.gpus, node.maintenance, node.ready) == ({"rack": "a"}, (gpu,), True, True)
        assert node.message == "it is in maintenance: nothing new is started there"
        assert node.last_seen
        await engine.use_hosts([document(machine, gpus=(gpu,), allows=(Allows.CPUWorkload,))])
        [node] = await engine.nodes()
        assert (node.maintenance, node.gpus, node.message) == (False, (), None)


async def test_one_engine_under_two_names_takes_no_work_until_one_is_deleted(hosts: Hosts, tmp_path: Path) -> None:
    machine, other = hosts.hosts
    again = document(machine, machine.tcp).model_copy(update={"name": "again"})
    async with opened(settings_for(hosts, tmp_path), ()) as engine:
        await engine.use_hosts([document(machine), again, document(other)])
        found = {node.name: (node.ready, node.message) for node in await engine.nodes()}
        said = "it is the same Docker engine as {}: delete one of the two, until then nothing is started on either"
        assert found == {
            machine.name: (False, said.format("again")),
            "again": (False, said.format(machine.name)),
            other.name: (True, None),
        }
        await engine.use_hosts([again, document(other)])
        assert [(node.ready, node.message) for node in await engine.nodes()] == [(True, None)] * 2


async def test_dead_hosts_cost_the_others_nothing(hosts: Hosts, tmp_path: Path) -> None:
    first, second = hosts.hosts
    dead = [
        document(second, f"tcp://192.0.2.{number}:2376").model_copy(update={"name": f"dead-{number}"})
        for number in range(1, 9)
    ]
    wrong = document(second, "http://nowhere").model_copy(update={"name": "wrong"})
    async with opened(settings_for(hosts, tmp_path), ()) as engine:
        await engine.use_hosts([*dead, wrong, document(first)])
        found = {node.name: node for node in await engine.nodes()}
        assert [name for name, node in found.items() if node.ready] == ["host-1"]
        assert all(node.message for node in found.values() if not node.ready)
        assert "is not the address of a Docker engine" in (found["wrong"].message or "")
        report, log = await outcome(engine, a_launch("echo fine", hosts=("host-1",)))
        assert (report.units[0].state, log) == (State.EXITED, "fine\n")


async def test_a_stranger_is_not_trusted_and_neither_are_we(hosts: Hosts, tmp_path: Path) -> None:
    machine = hosts.hosts[0]
    settings = settings_for(hosts, tmp_path, docker_tls_dir=str(hosts.keys.stranger))
    async with opened(settings, ()) as engine:
        await engine.use_hosts([document(machine, machine.tcp)])
        [node] = await engine.nodes()
        assert not node.ready
        assert "certificate" in (node.message or "").lower()
    async with opened(settings_for(hosts, tmp_path, docker_tls_dir=""), ()) as engine:
        await engine.use_hosts([document(machine, machine.tcp)])
        assert "there are no certificates for host-1" in ((await engine.nodes())[0].message or "")


async def test_what_does_not_speak_tls_is_told_so(hosts: Hosts, tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    plain = await asyncio.start_server(answer, "127.0.0.1")
    async with plain, opened(settings_for(hosts, tmp_path), ()) as engine:
        port = plain.sockets[0].getsockname()[1]
        await engine.use_hosts([document(hosts.hosts[0], f"tcp://127.0.0.1:{port}")])
        [node] = await engine.nodes()
        assert node.message == "Docker on host-1 cannot be reached: what listens there does not speak TLS"


async def test_what_ssh_says_is_passed_on(hosts: Hosts, tmp_path: Path) -> None:
    machine = hosts.hosts[0]
    async with opened(settings_for(hosts, tmp_path), ()) as engine:
        await engine.use_hosts([document(machine, machine.ssh.replace("admin@", "stranger@"))])
        [node] = await engine.nodes()
        assert not node.ready
        assert "Permission denied" in (node.message or "")


async def test_what_runs_on_a_host_that_is_registered_no_more_is_in_doubt(hosts: Hosts, tmp_path: Path) -> None:
    async with (
        opened(settings_for(hosts, tmp_path), hosts.hosts) as engine,
        running(engine, hosts=("host-2",)) as launch,
    ):
        await engine.use_hosts([document(hosts.hosts[0])])
        report = await engine.observe(Run(launch.workload_id, hosts=("host-2",)))
        assert report.presence == "lost"
        assert "host-2 is no longer registered" in (report.message or "")
        await engine.use_hosts([document(machine) for machine in hosts.hosts])
        assert (await engine.observe(run_of(launch))).presence == "running"


# -- over several ----------------------------------------------------------------------------------------------------


async def test_an_array_runs_on_all_the_hosts_it_was_given(hosts: Hosts, tmp_path: Path) -> None:
    async with opened(settings_for(hosts, tmp_path), hosts.hosts) as engine:
        launch = an_array("echo $JOB_COMPLETION_INDEX; sleep 0.5", 4, 2, hosts=("host-1", "host-2"))
        await engine.start(launch)
        report = await ended(engine, run_of(launch))
        assert [unit.state for unit in report.units] == [State.EXITED] * 4
        assert [await log_of(engine, run_of(launch), index) for index in range(4)] == [b"0\n", b"1\n", b"2\n", b"3\n"]
        for machine in hosts.hosts:
            assert machine.docker("ps", "-aq", "--filter", f"label=penstock.dev/workload={launch.workload_id}")


# -- text ------------------------------------------------------------------------------------------------------------


def test_addresses() -> None:
    assert read_address("unix:///run/docker.sock") == DockerAddress("unix", path="/run/docker.sock")
    assert read_address("ssh://ada@lab-1:2222") == DockerAddress("ssh", name="lab-1", port=2222, user="ada")
    assert read_address("ssh://lab-1") == DockerAddress("ssh", name="lab-1")
    assert read_address("tcp://10.0.0.1:2376") == DockerAddress("tcp", name="10.0.0.1", port=2376)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lab-1",
        "http://lab-1",
        "unix://relative",
        "ssh://-oProxyCommand=x",
        "ssh://a:b@lab",
        "ssh://-l@lab",
        "tcp://lab:x",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidAddress):
        read_address(text)


def test_gpus_as_nvidia_smi_prints_them() -> None:
    """A text as the program prints it: no GPU can be here."""
    first, second = read_table(
        "0, GPU-9a4f8, Tesla V100-SXM2-16GB, 16130, 14286, 97\n1, GPU-b, Tesla T4, 15109, [N/A], [N/A]\nno row\n"
    )
    assert (first.gpu.uuid, first.gpu.product, first.gpu.minor) == ("GPU-9a4f8", "Tesla V100-SXM2-16GB", 0)
    assert (first.gpu.memory_bytes, first.gpu.memory_used_bytes, first.utilization) == (16130 << 20, 14286 << 20, 97)
    assert (second.gpu.uuid, second.gpu.minor) == ("GPU-b", 1)
    assert (second.gpu.memory_used_bytes, second.utilization) == (None, None)


async def test_without_any_host_that_is_said(tmp_path: Path, hosts: Hosts) -> None:
    async with opened(settings_for(hosts, tmp_path), ()) as engine:
        assert await engine.nodes() == []
        [check] = await engine.checks()
        assert (check.ok, check.detail) == (False, "no Docker host is registered")


async def test_the_doctor_names_what_is_wrong(hosts: Hosts, tmp_path: Path) -> None:
    engine = DockerEngine(settings_for(hosts, tmp_path))
    await engine.open()
    try:
        await engine.use_hosts([document(hosts.hosts[0]), document(hosts.hosts[1], "unix:///no/such")])
        found = {check.name: check for check in await engine.checks()}
        assert found["node host-1"].ok
        assert not found["node host-2"].ok
        assert "No such file or directory" in found["node host-2"].detail
    finally:
        await engine.close()
