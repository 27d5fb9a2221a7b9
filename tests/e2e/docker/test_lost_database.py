"""The server's database is lost while work runs on Docker hosts: it is found again where it is, with what it has."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.docker.test_jobs import applied, items, penstock, until
from tests.hosts.host import Host
from tests.hosts.lot import Hosts
from tests.running import start_server

NODE = """apiVersion: v1
kind: Node
metadata: {{name: {name}, group: pwm.resource}}
spec:
  address: '{address}'
  gpus: [{{product_name: NVIDIA A10, memory: 16Gi}}, {{product_name: NVIDIA A10, memory: 16Gi}}]
"""
TWICE = """name: twice
resources: {image_id: 'penstock-test:1', cpus: '0.1', accelerators: 'A10:1'}
retries: 3
run: [sh, -c, 'test $PENSTOCK_ATTEMPT = 2 && exec sleep 600; until test -e /done; do sleep 0.1; done; exit 3']
"""
TASK = """name: {name}
resources: {{image_id: 'penstock-test:1', cpus: '0.1', accelerators: 'A10:1'}}
selectors: {{node: {node}}}
{more}run: [sleep, '600']
"""


class Lab:
    """Two hosts: `lab-1` is reached over the network, which can be cut."""

    def __init__(self, place: Path, hosts: Hosts) -> None:
        self.place = place
        self.settings = {"engine": "docker", "stop_grace": "1s", "docker_tls_dir": str(hosts.keys.client)}
        self.server = start_server(place, **self.settings)
        first, second = hosts.hosts[:2]
        self.addresses = {"lab-1": first.tcp, "lab-2": second.unix}
        self.register()

    def register(self, *names: str) -> None:
        for name in names or self.addresses:
            applied(self.server, NODE.format(name=name, address=self.addresses[name]))

    def drains(self, name: str, maintenance: bool = True) -> None:
        text = NODE.format(name=name, address=self.addresses[name]) + f"  maintenance: {str(maintenance).lower()}\n"
        status, answer = self.server.request("POST", "/v1/apply", {"text": text})
        assert status == 200, answer

    def lose_all(self) -> None:
        """Its data, not what runs."""
        _, server = self.server.request("GET", "/v1/server")
        self.server.kill()
        shutil.rmtree(server["data_dir"])
        self.server = start_server(self.place, **self.settings)

    def submit(self, name: str, node: str, more: str = "") -> str:
        return str(self.server.submit(TASK.format(name=name, node=node, more=more))["id"])

    def runs(self, id_: str) -> str:
        """The GPU it has, once it runs."""
        until(lambda: self.seen(id_)["state"] == "RUNNING")
        return next(iter(self.gpus(id_)))

    def seen(self, id_: str) -> dict[str, Any]:
        return dict(self.server.request("GET", f"/v1/workloads/{id_}")[1])

    def gpus(self, id_: str) -> list[str]:
        nodes = items(self.server, "/v1/nodes")
        return [gpu["uuid"] for node in nodes for gpu in node["gpus"] if gpu["workload"] == id_]

    def taken(self) -> dict[str, str]:
        """By the audit: which GPU who took, oldest first. One that was taken twice fails."""
        _, page = self.server.request("GET", "/v1/audit?limit=500")
        held: dict[str, str] = {}
        for line in reversed(page["items"]):
            if line["kind"] == "GPU" and line["verb"] == "take":
                assert line["name"] not in held, page
                held[line["name"]] = line["id"]
            elif line["kind"] == "GPU" and line["verb"] == "give":
                assert held.pop(line["name"]) == line["id"], page
        return held


@pytest.fixture
def lab(place: Path, hosts: Hosts) -> Iterator[Lab]:
    lab = Lab(place, hosts)
    yield lab
    hosts.hosts[0].mend()
    lab.server.end()
    for host in hosts.hosts:
        host.clean()


def container_of(machine: Host, id_: str) -> str:
    """The one that runs."""
    [container] = machine.docker("ps", "-q", "--filter", f"label=penstock.dev/workload={id_}").split()
    return container


def in_container(machine: Host, id_: str) -> str:
    """What its container was given."""
    container = container_of(machine, id_)
    return machine.docker("inspect", "-f", '{{index .Config.Labels "penstock.dev/gpus"}}', container).strip()


def test_what_runs_keeps_its_place_when_the_database_is_lost(lab: Lab, hosts: Hosts) -> None:
    over, train = lab.submit("over", "lab-2"), lab.submit("train", "lab-2")
    first, second = lab.runs(over), lab.runs(train)
    lab.server.request("POST", f"/v1/workloads/{over}/stop")
    lab.server.ended(over)
    again = lab.submit("again", "lab-2")
    assert lab.runs(again) == first

    lab.lose_all()
    lab.register()
    waits = lab.submit("waits", "lab-2")
    for id_, held in ((train, second), (again, first)):
        assert lab.runs(id_) == held == in_container(hosts.hosts[1], id_)
        found = lab.seen(id_)
        assert (found["hosts"], found["name"]) == (["lab-2"], {train: "train", again: "again"}[id_])
        said = [line["message"] for line in found["history"] if line["reason"] == "ADOPTED"]
        assert said == ["found on lab-2; the server's own records were lost"]
    assert lab.server.ended(over)["ended_at"]
    assert lab.seen(waits)["state"] == "QUEUED"
    assert lab.taken() == {f"lab-2/{first}": again, f"lab-2/{second}": train}
    assert "by the records" not in penstock(lab.server, "doctor").stdout

    lab.server.kill()
    lab.server = start_server(lab.place, **lab.settings)
    assert (lab.runs(train), lab.runs(again), lab.seen(waits)["state"]) == (second, first, "QUEUED")
    lab.server.request("POST", f"/v1/workloads/{train}/stop")
    assert lab.server.ended(train)["state"] == "STOPPED"
    assert lab.runs(waits) == second
    assert lab.taken() == {f"lab-2/{first}": again, f"lab-2/{second}": waits}


def test_what_runs_on_a_host_that_comes_later_keeps_its_place(lab: Lab, hosts: Hosts) -> None:
    train = lab.submit("train", "lab-1")
    sweep = lab.submit("sweep", "lab-1", more="array: {count: 3, parallelism: 1}\n")
    held = {id_: lab.runs(id_) for id_ in (train, sweep)}
    hosts.hosts[0].cut()
    lab.lose_all()
    lab.register()
    waits = lab.submit("waits", "lab-1")
    assert lab.server.request("GET", f"/v1/workloads/{train}")[0] == 404

    hosts.hosts[0].mend()
    until(lambda: lab.server.request("GET", f"/v1/workloads/{train}")[0] == 200)
    assert {id_: lab.runs(id_) for id_ in (train, sweep)} == held
    until(lambda: lab.seen(waits)["state"] == "QUEUED")
    assert lab.taken() == {f"lab-1/{held[train]}": train, f"lab-1/{held[sweep]}": sweep}
    hosts.hosts[0].docker("kill", container_of(hosts.hosts[0], sweep))
    until(lambda: lab.seen(sweep)["array"]["failed"] == 1 and lab.seen(sweep)["array"]["running"] == 1)
    assert lab.gpus(sweep) == [held[sweep]]


def test_an_attempt_is_not_made_again_that_may_run_on_a_host_which_was_not_seen_yet(lab: Lab, hosts: Hosts) -> None:
    lab.drains("lab-2")
    twice = lab.server.submit(TWICE)["id"]
    until(lambda: lab.seen(twice)["state"] == "RUNNING")
    assert lab.seen(twice)["hosts"] == ["lab-1"]
    lab.drains("lab-1")
    lab.drains("lab-2", maintenance=False)
    hosts.hosts[0].docker("exec", container_of(hosts.hosts[0], twice), "touch", "/done")
    until(lambda: (lab.seen(twice)["state"], lab.seen(twice)["attempt"]) == ("RUNNING", 2))
    held = lab.runs(twice)

    lab.lose_all()
    lab.register("lab-1")
    until(lambda: lab.server.request("GET", f"/v1/workloads/{twice}")[0] == 200)
    first = lab.server.ended(twice)
    assert (first["state"], first["exit_code"], first["attempt"]) == ("CRASHED", 3, 1)
    lab.register("lab-2")
    until(lambda: lab.seen(twice)["attempt"] == 2)
    assert (lab.runs(twice), lab.seen(twice)["hosts"]) == (held, ["lab-2"])
    assert lab.taken() == {f"lab-2/{held}": twice}


def test_what_has_our_labels_and_no_record_is_named(lab: Lab, hosts: Hosts) -> None:
    marks = {"installation": "penstock", "workload": "abcdefgh", "attempt": "1", "part": "0"}
    labels = [word for key, text in marks.items() for word in ("--label", f"penstock.dev/{key}={text}")]
    hosts.hosts[1].docker("run", "-d", "--name", "stranger", *labels, "busybox:1", "sleep", "600")
    said = "the container stranger runs on lab-2, and there is no record of it"
    until(lambda: said in penstock(lab.server, "doctor").stdout)
    hosts.hosts[1].docker("rm", "-f", "stranger")
