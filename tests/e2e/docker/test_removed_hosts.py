"""What is over stays over: a Docker host that is gone for good is taken out, and neither one that comes back nor a
server that does starts anything more."""

from __future__ import annotations

import subprocess
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
  gpus: [{{product_name: {product}, memory: 16Gi}}]
"""
SLEEP = "name: {name}\nresources: {{image_id: 'penstock-test:1', cpus: '0.1'{gpus}}}\n{more}run: [sleep, '600']\n"


class Lab:
    """Two hosts: `lab-1` is reached over the network, which can be cut."""

    def __init__(self, place: Path, hosts: Hosts) -> None:
        self.settings = {"engine": "docker", "stop_grace": "1s", "docker_tls_dir": str(hosts.keys.client)}
        self.server = start_server(place, **self.settings)
        self.first, self.second = hosts.hosts[:2]
        self.addresses = {"lab-1": self.first.tcp, "lab-2": self.second.unix}
        for name in self.addresses:
            self.register(name)

    def register(self, name: str) -> None:
        applied(self.server, self.document(name, self.addresses[name]))
        until(lambda: self.node(name)["ready"])

    def document(self, name: str, address: str) -> str:
        product = {"lab-1": "NVIDIA A10", "lab-2": "Tesla V100"}[name]
        return NODE.format(name=name, address=address, product=product)

    def readdress(self, name: str, address: str, *more: str) -> subprocess.CompletedProcess[str]:
        return penstock(self.server, "apply", "-f", "-", *more, stdin=self.document(name, address))

    def node(self, name: str) -> dict[str, Any]:
        return next(node for node in items(self.server, "/v1/nodes") if node["name"] == name)

    def submit(self, name: str, node: str, gpus: str = "", more: str = "") -> str:
        text = SLEEP.format(name=name, gpus=gpus, more=f"selectors: {{node: {node}}}\n{more}")
        return str(self.server.submit(text)["id"])

    def short(self) -> str:
        task = "resources: {image_id: 'busybox:1', cpus: '0.1'}\nselectors: {node: lab-2}\nrun: ['true']\n"
        return str(self.server.submit(f"name: short\n{task}")["id"])

    def seen(self, id_: str) -> dict[str, Any]:
        return dict(self.server.request("GET", f"/v1/workloads/{id_}")[1])

    def runs(self, id_: str) -> None:
        until(lambda: self.seen(id_)["state"] == "RUNNING")

    def delete(self, *words: str) -> subprocess.CompletedProcess[str]:
        return penstock(self.server, "delete", "node", *words, stdin="y\n")

    def locks(self, id_: str) -> list[str]:
        """What it took and gave back, by the audit."""
        _, page = self.server.request("GET", "/v1/audit?limit=500")
        return [line["verb"] for line in reversed(page["items"]) if line["kind"] == "GPU" and line["id"] == id_]


@pytest.fixture
def lab(place: Path, hosts: Hosts) -> Iterator[Lab]:
    lab = Lab(place, hosts)
    yield lab
    lab.first.mend()
    lab.server.end()
    for host in hosts.hosts:
        host.clean()


def containers(machine: Host, id_: str) -> list[str]:
    """Of one workload, whatever became of them."""
    return machine.docker("ps", "-aq", "--filter", f"label=penstock.dev/workload={id_}").split()


def test_a_host_that_is_gone_for_good_can_be_taken_out(lab: Lab) -> None:
    train = lab.submit("train", "lab-1", gpus=", accelerators: 'A10:1'")
    sweep = lab.submit("sweep", "lab-1", more="array: {count: 3, parallelism: 1}\n")
    other = lab.submit("other", "lab-2")
    for each in (train, sweep, other):
        lab.runs(each)
    made = {each: containers(lab.first, each) for each in (train, sweep)}
    lab.first.cut()
    until(lambda: not lab.node("lab-1")["ready"])
    away = lab.node("lab-1")
    assert (away["cpus_taken"], away["cpus_free"]) == ("0.2", "0")  # what is taken is, though nothing can be had

    refused = lab.delete("lab-1")
    assert refused.returncode == 6
    assert f"train ({train})" in refused.stderr
    assert "penstock delete node lab-1 --force; then they are UNKNOWN, and their GPUs given back" in refused.stderr
    assert lab.seen(train)["ended_at"] is None

    answers = lab.delete("lab-2", "--force")
    assert answers.returncode == 6
    assert f"Node lab-2 runs other ({other})" in answers.stderr

    gone = lab.delete("lab-1", "--force")
    assert gone.returncode == 0, gone.stderr
    assert gone.stdout.startswith("Node lab-1 deleted: UNKNOWN from now on, for nobody can ask any more: ")
    for each in (train, sweep):
        until(lambda each=each: lab.seen(each)["ended_at"])
        found = lab.seen(each)
        assert (found["state"], found["reason"]) == ("UNKNOWN", "OUTCOME_UNKNOWN")
        assert found["message"] == "Its node lab-1 is no longer registered, so nobody knows how it ended."
    assert lab.locks(train) == ["take", "give"]

    lab.first.mend()
    lab.register("lab-1")
    again = lab.submit("again", "lab-1")
    lab.runs(again)
    lab.first.docker("kill", *made[sweep])
    lab.runs(lab.submit("later", "lab-1"))
    assert {each: containers(lab.first, each) for each in (train, sweep)} == made
    assert lab.seen(train)["state"] == "UNKNOWN"
    assert f"{train} is over by the records, and still runs on lab-1" in penstock(lab.server, "doctor").stdout
    assert penstock(lab.server, "delete", "wk", train, "--force").returncode == 0
    until(lambda: not containers(lab.first, train))


def test_a_host_that_is_taken_out_keeps_nothing_of_ours(lab: Lab) -> None:
    job = lab.submit("short", "lab-2")
    lab.runs(job)
    networks = ("network", "ls", "-q", "--filter", "label=penstock.dev/installation=penstock")
    assert lab.second.docker(*networks)
    lab.server.request("POST", f"/v1/workloads/{job}/stop")
    lab.server.ended(job)
    assert penstock(lab.server, "delete", "wk", job, "--force").returncode == 0
    until(lambda: not containers(lab.second, job))
    assert lab.delete("lab-2").returncode == 0
    assert lab.second.docker(*networks) == ""


def test_the_network_of_a_group_stays_until_the_node_is_deleted(lab: Lab) -> None:
    others = made_network(lab.second, "others-root", "others", "root")
    job = lab.submit("only", "lab-2")
    lab.runs(job)
    lab.server.request("POST", f"/v1/workloads/{job}/stop")
    lab.server.ended(job)
    assert lab.server.request("DELETE", f"/v1/workloads/{job}")[0] == 200
    until(lambda: not containers(lab.second, job))
    assert len(networks(lab.second)) == 2
    assert lab.server.request("DELETE", "/v1/nodes/lab-2")[0] == 200
    until(lambda: networks(lab.second) == [others])
    assert lab.second.docker("ps", "-aq") == ""


def networks(machine: Host) -> list[str]:
    """Those of any Penstock."""
    return machine.docker("network", "ls", "-q", "--no-trunc", "--filter", "label=penstock.dev/group").split()


def made_network(machine: Host, name: str, installation: str, group: str) -> str:
    labels = (f"penstock.dev/installation={installation}", f"penstock.dev/group={group}")
    options = [word for label in labels for word in ("--label", label)]
    return machine.docker("network", "create", *options, name).strip()


def test_a_host_with_volumes_stays_and_one_that_was_deleted_meanwhile_does_not_come_back(lab: Lab) -> None:
    assert lab.server.request("POST", "/v1/volumes", {"name": "kept", "size": "1Mi"})[0] == 201
    assert "kept" in lab.first.docker("volume", "ls", "-q")
    refused = lab.delete("lab-1")
    assert refused.returncode == 6
    assert "Node lab-1 has volumes: kept." in refused.stderr
    assert "delete them first" in refused.stderr
    lab.first.cut()
    until(lambda: not lab.node("lab-1")["ready"])
    refused = lab.delete("lab-1")
    assert "if it is gone for good, with their data: penstock delete node lab-1 --force" in refused.stderr
    assert lab.server.request("DELETE", "/v1/volumes/kept")[0] == 202
    assert [each["status"] for each in items(lab.server, "/v1/volumes")] == ["Deleting"]
    assert lab.delete("lab-1", "--force").returncode == 0
    until(lambda: items(lab.server, "/v1/volumes") == [])
    lab.first.mend()
    lab.register("lab-1")
    until(lambda: "kept" not in lab.first.docker("volume", "ls", "-q"))
    assert items(lab.server, "/v1/volumes") == []


def test_hosts_that_are_gone_for_good_are_taken_out_by_their_file(lab: Lab, place: Path) -> None:
    train = lab.submit("train", "lab-1", gpus=", accelerators: 'A10:1'")
    lab.runs(train)
    file = place / "nodes.yaml"
    file.write_text("---\n".join(NODE.format(name=f"lab-{n}", address="unix:///gone", product="A10") for n in (1, 2)))
    lab.first.cut()
    until(lambda: not lab.node("lab-1")["ready"])

    refused = penstock(lab.server, "delete", "-f", str(file), stdin="y\n")
    assert refused.returncode == 1
    assert "Node lab-1 failed: Node lab-1 does not answer; when it last did, it had train" in refused.stdout
    assert "Node lab-2 deleted\n" in refused.stdout

    gone = penstock(lab.server, "delete", "-f", str(file), "--force")
    assert gone.returncode == 0, gone.stderr
    assert f"lab-1 deleted: UNKNOWN from now on, for nobody can ask any more: train ({train})\n" in gone.stdout
    until(lambda: lab.seen(train)["ended_at"])
    assert lab.locks(train) == ["take", "give"]


def test_a_stopped_array_does_not_go_on_with_another_server(lab: Lab, place: Path) -> None:
    stopped = lab.submit("stopped", "lab-2", more="array: {count: 4, parallelism: 1}\n")
    running = lab.submit("running", "lab-2", more="array: {count: 2, parallelism: 1}\n")
    for each in (stopped, running):
        lab.runs(each)
    lab.server.request("POST", f"/v1/workloads/{stopped}/stop")
    lab.server.ended(stopped)
    [only] = containers(lab.second, stopped)
    lab.server.kill()
    lab.server = start_server(place, **lab.settings)
    until(lambda: lab.node("lab-2")["ready"])
    lab.second.docker("kill", *containers(lab.second, running))
    until(lambda: len(containers(lab.second, running)) == 2)
    assert containers(lab.second, stopped) == [only]


def test_a_node_that_runs_something_takes_an_address_only_if_that_is_there(lab: Lab) -> None:
    train = lab.submit("train", "lab-1", gpus=", accelerators: 'A10:1'")
    lab.runs(train)
    made = containers(lab.first, train)

    wrong = lab.readdress("lab-1", lab.second.tcp)
    assert wrong.returncode
    said = f"Node lab-1 runs train ({train}), and that is not at {lab.second.tcp}: it is another Docker."
    assert said in wrong.stdout + wrong.stderr
    assert "set maintenance: true, and change it when they have ended" in wrong.stdout + wrong.stderr
    dry = lab.readdress("lab-1", lab.second.tcp, "--dry-run")
    assert (dry.returncode, dry.stderr) == (wrong.returncode, wrong.stderr)
    nobody = lab.readdress("lab-1", "unix:///nobody")
    assert nobody.returncode
    assert "whether that is at unix:///nobody cannot be seen: " in nobody.stdout + nobody.stderr
    assert (lab.node("lab-1")["ready"], lab.seen(train)["state"]) == (True, "RUNNING")

    lab.first.cut()
    until(lambda: lab.seen(train)["state"] == "UNKNOWN")
    assert lab.readdress("lab-1", lab.second.tcp).returncode
    moved = lab.readdress("lab-1", lab.first.unix)
    assert (moved.returncode, moved.stdout) == (0, "Node lab-1 configured\n"), moved
    lab.runs(train)
    assert (containers(lab.first, train), lab.locks(train)) == (made, ["take"])
    lab.server.request("POST", f"/v1/workloads/{train}/stop")
    assert lab.server.ended(train)["state"] == "STOPPED"
    assert lab.readdress("lab-1", lab.first.tcp).returncode == 0
