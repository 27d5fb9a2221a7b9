"""What a container is made of: what may be in it, and that nothing else can get there."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from penstock.domain.workloads import Port, Resources, Scratch
from penstock.engines.docker.api.client import DockerApi
from penstock.engines.docker.api.transport import dial, read_address
from penstock.engines.docker.engine import DockerEngine
from penstock.engines.docker.names import network_name
from penstock.engines.docker.settings import read_settings
from penstock.engines.docker.spec import ContainerPlace, container
from penstock.engines.shared.environment import CAPABILITIES
from penstock.settings import Settings
from tests.engines.contract.exec import running, told
from tests.engines.docker.engines import opened, settings_for
from tests.engines.launches import a_launch, outcome, run_of
from tests.hosts.lot import Hosts

MADE = read_settings(Settings(engine="docker"))
PLACE = ContainerPlace(host="host-1", part=0, number=0, network="net", host_memory=8 << 30, volumes={})


def test_only_what_is_modelled_reaches_docker() -> None:
    launch = a_launch(
        "true",
        envs={"A": "b", "NODE_RANK": "9"},
        labels={"team": "blue", "penstock.dev/workload": "forged"},
        ports=(Port(port=8888),),
        scratch=(Scratch(path="/scratch"),),
        resources=Resources(cpus_milli=1500, memory_bytes=1 << 30),
    )
    body = container(launch, MADE, PLACE)
    config = body["HostConfig"]
    assert config["CapDrop"] == ["ALL"]
    assert config["CapAdd"] == list(CAPABILITIES)
    assert config["SecurityOpt"] == ["no-new-privileges"]
    assert config["PidsLimit"] == 4096
    assert (config["Memory"], config["MemorySwap"], config["NanoCpus"]) == (1 << 30, 1 << 30, 1_500_000_000)
    assert (config["NetworkMode"], config["RestartPolicy"]) == ("net", {"Name": "no"})
    assert not {"Privileged", "Binds", "Devices", "PidMode", "PortBindings", "PublishAllPorts", "UsernsMode"} & set(
        config
    )
    assert [mount["Type"] for mount in config["Mounts"]] == ["volume"]
    assert "ExposedPorts" not in body
    assert body["Labels"]["team"] == "blue"
    assert body["Labels"]["penstock.dev/workload"] == launch.workload_id
    assert "A=b" in body["Env"]
    assert [line for line in body["Env"] if line.startswith("NODE_RANK=")] == ["NODE_RANK=0"]


def test_without_a_command_the_images_own_is_used() -> None:
    body = container(a_launch(None), MADE, PLACE)  # type: ignore[arg-type]
    assert "Entrypoint" not in body
    assert "Cmd" not in body


def test_a_terminal_keeps_the_input_open() -> None:
    body = container(a_launch(("/bin/bash",), terminal=True), MADE, PLACE)
    assert (body["Tty"], body["OpenStdin"], body["Entrypoint"], body["Cmd"]) == (True, True, ["/bin/bash"], [])


def test_gpus_go_by_their_uuids_and_only_where_docker_can_give_them() -> None:
    launch = a_launch("true", gpus=(("GPU-1", "GPU-2"),), resources=Resources(gpus=2))
    told_only = container(launch, MADE, PLACE)
    assert "DeviceRequests" not in told_only["HostConfig"]
    assert "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2" in told_only["Env"]
    given = container(launch, MADE, ContainerPlace("h", 0, 0, "net", 1, has_nvidia=True, volumes={}))
    [asked] = given["HostConfig"]["DeviceRequests"]
    assert asked["DeviceIDs"] == ["GPU-1", "GPU-2"]
    none = container(a_launch("true"), MADE, ContainerPlace("h", 0, 0, "net", 1, has_nvidia=True, volumes={}))
    assert "NVIDIA_VISIBLE_DEVICES=void" in none["Env"]
    assert "DeviceRequests" not in none["HostConfig"]


def test_cpus_of_its_own_are_named() -> None:
    assert container(a_launch("true", cpusets=((2, 3),)), MADE, PLACE)["HostConfig"]["CpusetCpus"] == "2,3"


# -- on a host -------------------------------------------------------------------------------------------------------


async def test_inside_it_has_no_more_than_it_needs(engine: DockerEngine) -> None:
    look = "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status"
    _, log = await outcome(engine, a_launch(look))
    assert log == "CapEff:\t00000000800404fb\nNoNewPrivs:\t1\nSeccomp:\t2\n"  # the ten of CAPABILITIES


async def test_each_group_has_a_network_of_its_own(engine: DockerEngine, hosts: Hosts) -> None:
    async with running(engine, group="ada") as first, running(engine, group="bob") as second:
        address = json.loads(_inspect(hosts, first.workload_id))["penstock-ada"]["IPAddress"]
        assert list(json.loads(_inspect(hosts, second.workload_id))) == ["penstock-bob"]
        reach = f"timeout 3 bash -c ': </dev/tcp/{address}/1'"
        assert "refused" in (await told(engine, run_of(first), reach))[2]
        assert "refused" not in (await told(engine, run_of(second), reach))[2]


def _inspect(hosts: Hosts, workload_id: str) -> str:
    found = hosts.hosts[0].docker("ps", "-q", "--filter", f"label=penstock.dev/workload={workload_id}").strip()
    return hosts.hosts[0].docker("inspect", "--format", "{{json .NetworkSettings.Networks}}", found)


@pytest.mark.parametrize("network", ["open", "closed"])
async def test_a_closed_network_leads_nowhere(hosts: Hosts, tmp_path: Path, network: str) -> None:
    settings = settings_for(hosts, tmp_path, docker_network=network, docker_installation=network)
    outside = hosts.registry.address.replace(":", "/")
    async with opened(settings, hosts.hosts[:1]) as engine:
        _, log = await outcome(engine, a_launch(f"timeout 5 bash -c ': </dev/tcp/{outside}' && echo reached"))
    assert log == ("reached\n" if network == "open" else "")


async def test_a_group_may_have_a_name_that_docker_cannot(engine: DockerEngine, hosts: Hosts) -> None:
    report, _ = await outcome(engine, a_launch("true", group="ann@lab.org", user="ann@lab.org"))
    assert report.units[0].exit_code == 0
    assert "penstock-ann-lab.org-" in hosts.hosts[0].docker("network", "ls", "--format", "{{.Name}}")
    assert network_name("p", "ann@lab.org") != network_name("p", "ann-lab.org")


async def test_nodes_of_a_run_find_each_other_by_name(engine: DockerEngine) -> None:
    listen = (
        "import os, socket\n"
        "place = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
        "if os.environ['NODE_RANK'] == '0':\n"
        "    with socket.create_server(('', place[1])) as server: print(server.accept()[0].recv(99).decode())\n"
        "else:\n"
        "    import time\n"
        "    while True:\n"
        "        try: there = socket.create_connection(place); break\n"
        "        except OSError: time.sleep(0.1)\n"
        "    there.sendall(b'from rank 1')\n"
    )
    _, log = await outcome(engine, a_launch('python3 -c "$LISTEN"', envs={"LISTEN": listen}, nodes=2))
    assert log == "from rank 1\n"


async def test_code_that_was_sent_along_is_there_before_it_starts(engine: DockerEngine, tmp_path: Path) -> None:
    import tarfile

    (tmp_path / "train.py").write_text("print('trained')")
    archive = tmp_path / "code.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / "train.py", "src/train.py")
    launch = a_launch("pwd; python3 src/train.py; touch new", workdir=".", workdir_archive=archive)
    report, log = await outcome(engine, launch)
    assert (log, report.units[0].exit_code) == ("/workdir\ntrained\n", 0)
    _, log = await outcome(engine, a_launch(("python3", "src/train.py"), workdir=".", workdir_archive=archive))
    assert log == "trained\n"


async def test_the_images_own_command_runs_where_none_is_named(engine: DockerEngine) -> None:
    launch = a_launch(None, resources=Resources(image="busybox:1"))  # type: ignore[arg-type]
    report, _ = await outcome(engine, launch)
    assert report.units[0].exit_code == 0


async def test_a_second_network_of_the_same_name_is_in_nobodys_way(engine: DockerEngine, hosts: Hosts) -> None:
    """As a server leaves one that was killed while it asked for it. Docker would start nothing on either."""
    await outcome(engine, a_launch("true", group="ada"))
    host = hosts.hosts[0]
    [labels] = host.docker("network", "inspect", "-f", "{{json .Labels}}", "penstock-ada").splitlines()
    api = DockerApi(host.name, partial(dial, read_address(host.unix), None, []))
    await api.create_network({"Name": "penstock-ada", "Labels": json.loads(labels)})
    await api.close()
    assert len(host.docker("network", "ls", "-q", "--filter", "name=penstock-ada").split()) == 2
    _, log = await outcome(engine, a_launch("echo runs", group="ada"))
    assert log == "runs\n"
    assert len(host.docker("network", "ls", "-q", "--filter", "name=penstock-ada").split()) == 1
