"""PWM from top to bottom on two Docker hosts: every command and every document as it stands there.

Only what cannot be had here is replaced: GPUs are declared in the Node documents, the images that the document names
are the one that tests have, and there is no NFS client in this kernel, so that what Docker is asked for and what the
user reads when the mount fails are looked at, and what must run keeps its data on the disk of a host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import pwm
from tests.e2e.pwm import Document003, Person
from tests.hosts.host import Host
from tests.hosts.lot import TEST, Hosts
from tests.running import RunningServer, start_server

IMAGES = ("tensorflow/tensorflow", "ubuntu")
NODES = """\
---
apiVersion: v1
kind: Node
metadata: {{name: emcprom09}}
spec:
  address: {emcprom09}
  gpus:
    - {{product_name: Tesla V100-SXM2-16GB, memory: 16130Mi}}
    - {{product_name: Tesla V100-SXM2-16GB, memory: 16130Mi}}
---
apiVersion: v1
kind: Node
metadata: {{name: lambda-02}}
spec:
  address: {lambda02}
  gpus: [{{product_name: Quadro RTX 6000, memory: 24220Mi}}]
"""
MOVES = (
    "INSERTED",
    "QUEUED",
    "ASSIGNED",
    "PULLING",
    "REQUESTED_PULLING",
    "LAUNCHING",
    "REQUESTED_LAUNCH",
    "LAUNCHED",
    "RUNNING",
)


class TestDocker(Document003):
    storage = pwm.DISK.format(node="emcprom09")

    @pytest.fixture
    def named(self, hosts: Hosts) -> Iterator[dict[str, Host]]:
        """The document's names of the two hosts, which have the images it names."""
        for host in hosts.hosts:
            for image in IMAGES:
                host.docker("tag", TEST, image)
        yield dict(zip(("emcprom09", "lambda-02"), hosts.hosts, strict=True))
        for host in hosts.hosts:
            host.docker("rmi", *IMAGES)

    @pytest.fixture
    def server(self, place: Path, named: dict[str, Host]) -> Iterator[RunningServer]:
        server = start_server(place, engine="docker", stop_grace="1s")
        yield server
        server.end()
        for host in named.values():
            host.clean()

    @pytest.fixture
    def admin(self, server: RunningServer, named: dict[str, Host]) -> Person:
        """With both hosts as nodes."""
        admin = pwm.the_admin(server)
        addresses = {name.replace("-", ""): host.unix for name, host in named.items()}
        admin.writes("nodes.yaml", NODES.format(**addresses))
        said = admin.pastes("penstock apply -f nodes.yaml")
        assert said.splitlines() == ["Node emcprom09 created", "Node lambda-02 created"]
        admin.pastes("until [ $(pwmcli get node | grep -cw READY) = 2 ]; do sleep 0.2; done")
        return admin

    def test_profiles_stand_side_by_side(self, server: RunningServer, researcher: Person) -> None:
        said = researcher.pastes(
            "pwmcli profile init anotherprofile --api-server https://anotherapiserver.com --token other"
        )
        assert "You are on *anotherprofile* profile" in said
        researcher.pastes(f"pwmcli profile add third --api-server {server.address} --token wrong")
        assert "You are on *anotherprofile* profile" in researcher.pastes("pwmcli profile using")
        assert "You are on *third* profile" in researcher.pastes("pwmcli profile use third")
        assert "token" in researcher.pastes("pwmcli get gpu", code=4)
        researcher.pastes("pwmcli profile use prom; pwmcli profile del third; pwmcli profile del anotherprofile")
        assert researcher.pastes("pwmcli profile using") == "You are on *prom* profile\n"
        assert researcher.pastes("pwmcli -v") == researcher.pastes("penstock --version").replace("penstock", "pwmcli")
        assert researcher.pastes("pwmcli api-version")

    def test_what_there_is_has_the_documents_columns(self, researcher: Person) -> None:
        header, _, *rows = researcher.pastes("pwmcli get gpu").splitlines()
        assert " ".join(header.split()) == "kind name product_name minor_number fb_memory node lastSeen"
        assert [" ".join(row.split()) for row in rows] == [
            "GPU GPU-emcprom09-0 Tesla V100-SXM2-16GB 0 - / 16130 MiB emcprom09 now",
            "GPU GPU-emcprom09-1 Tesla V100-SXM2-16GB 1 - / 16130 MiB emcprom09 now",
            "GPU GPU-lambda-02-0 Quadro RTX 6000 0 - / 24220 MiB lambda-02 now",
        ]
        assert [row[-1] for row in researcher.rows("pwmcli get node")] == ["READY", "READY"]
        assert [row[-2:] for row in researcher.rows("pwmcli get cpu")] == [["emcprom09", "now"], ["lambda-02", "now"]]
        assert researcher.rows("pwmcli get storage") == [
            ["Storage", "emcprom09-local", "local", "emcprom09"],
            ["Storage", "lambda-02-local", "local", "lambda-02"],
        ]

    def test_every_alias_of_a_kind_means_it(self, researcher: Person) -> None:
        """The aliases of the document's table, and those of its list of commands."""
        for kind, aliases in (pwm.ALIASES | {"Workload": "wk,workload,Workload,gpuw,cpuw"}).items():
            shown = {researcher.pastes(f"pwmcli get {alias}") for alias in aliases.split(",")}
            assert len(shown) == 1, shown
            assert {line.split()[0] for line in shown.pop().splitlines()[2:]} <= {kind}

    def test_the_image_runs_as_it_is_where_its_gpu_is(self, named: dict[str, Host], researcher: Person) -> None:
        researcher.writes("example.yaml", pwm.FIRST_TEST)
        researcher.pastes("pwmcli apply -f example.yaml")
        researcher.waits_for("RUNNING")
        [row] = researcher.rows("pwmcli get wk")
        [container] = named["lambda-02"].jobs()
        gpu, place = "Quadro RTX 6000 GPU-lambda-02-0 -", f"lambda-02 {container[:4]}"
        assert " ".join(row[:-1]) == f"Workload first-test yourUserName {gpu} {place} true RUNNING null"
        ran = json.loads(researcher.pastes("pwmcli inspect wk first-test"))["found"]["containers"]
        assert [each["Path"] for each in ran] == ["bash"]
        inside = "echo $CUDA_VISIBLE_DEVICES; exit\n"
        assert researcher.pastes("pwmcli shell wk first-test", stdin=inside) == "GPU-lambda-02-0\n"

    def test_its_states_are_seen_moving(self, researcher: Person) -> None:
        """`get wk -w`, begun before it is applied."""
        researcher.writes("cpu.yaml", pwm.CPU_TEST)
        watched = researcher.pastes(
            "pwmcli get wk -w > moves & watch=$!; until [ -s moves ]; do sleep 0.1; done;"
            "pwmcli apply -f cpu.yaml; until grep -qw RUNNING moves; do sleep 0.1; done; kill $watch; cat moves"
        )
        states = [word for line in watched.splitlines() for word in line.split() if word in MOVES]
        assert states == sorted(states, key=MOVES.index)
        assert states[-1] == "RUNNING"
        assert len(states) > 1

    def test_an_nfs_storage_is_asked_of_docker_and_why_it_fails_is_said(
        self, named: dict[str, Host], admin: Person, researcher: Person
    ) -> None:
        """There is no NFS client in this kernel: Docker's own log has what it was asked to mount."""
        admin.writes("storage.yaml", pwm.STORAGE)
        said = admin.pastes("cat dataset.yaml <(echo ---) storage.yaml | penstock apply -f -", code=1)
        assert "Storage pwmzfs01 created" in said
        mount = "192.168.186.65:/pwmzfs01/share_01"
        failed = f"The storage pwmzfs01 ({mount}) cannot be mounted on emcprom09: this node's kernel has no NFS client"
        assert failed in said
        noted = admin.pastes("pwmadm audit --name datasets-hmdb-uci").splitlines()
        assert [" failed  " in line and failed in line for line in noted[1:3]] == [True, False]
        asked = (named["emcprom09"].home / "log" / "dockerd.log").read_text()
        assert "mount :/pwmzfs01/share_01:" in asked
        assert "data: addr=192.168.186.65," in asked
        assert ["Storage", "pwmzfs01", "nfs", mount] in researcher.rows("pwmcli get storage")
        home = pwm.TENSORFLOW.split("    - group: pwm.resource")[0]
        researcher.writes("home.yaml", home)
        assert failed in researcher.pastes("pwmcli apply -f home.yaml", code=1)
        assert researcher.rows("pwmcli get vol") == []
