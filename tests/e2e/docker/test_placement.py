"""Which of two Docker hosts a workload goes to, and why another one waits. Their GPUs are only declared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.lot import Hosts
from tests.running import RunningServer, start_server

NODE = """apiVersion: v1
kind: Node
metadata: {{name: {name}, group: pwm.resource}}
spec:
  address: '{address}'
  maintenance: {maintenance}
  labels: {{disk: {disk}}}
  gpus: [{{product_name: {product}, memory: 16Gi}}, {{product_name: {product}, memory: 16Gi}}]
"""
KINDS = {"lab-1": ("Tesla V100", "hdd"), "lab-2": ("NVIDIA A10", "ssd")}
SWEEP = """name: sweep
resources: {image_id: 'penstock-test:1', cpus: 0.1}
selectors: {node: lab-1}
array: {count: 3, parallelism: 1}
run: [sh, -c, 'until test -e /done; do sleep 0.1; done']
"""
SLEEP = "name: {name}\nresources: {{image_id: 'penstock-test:1'{resources}}}\n{more}run: [sleep, '300']\n"
PATIENCE = 120


class Lab:
    def __init__(self, server: RunningServer, hosts: Hosts) -> None:
        self.server = server
        self.hosts = dict(zip(KINDS, hosts.hosts, strict=True))

    def register(self, name: str, maintenance: bool = False) -> None:
        product, disk = KINDS[name]
        said = str(maintenance).lower()
        text = NODE.format(name=name, address=self.hosts[name].unix, product=product, disk=disk, maintenance=said)
        status, answer = self.server.request("POST", "/v1/apply", {"text": text})
        assert status == 200, answer

    def submit(self, name: str, resources: str = "", more: str = "") -> dict[str, Any]:
        status, made = self.server.request(
            "POST", "/v1/workloads", {"text": SLEEP.format(name=name, resources=resources, more=more)}
        )
        assert status == 201, made
        return made

    def seen(self, made: dict[str, Any]) -> dict[str, Any]:
        return self.server.request("GET", f"/v1/workloads/{made['id']}")[1]

    def runs_on(self, made: dict[str, Any]) -> list[str]:
        """The hosts that have a container of it, once it runs."""
        until(lambda: self.seen(made)["state"] == "RUNNING", lambda: self.seen(made))
        label = f"label=penstock.dev/workload={made['id']}"
        return [
            name
            for name, host in self.hosts.items()
            for _ in host.docker("ps", "-q", "--filter", label, check=False).split()
        ]

    def stop(self, *several: dict[str, Any]) -> None:
        for made in several:
            self.server.request("POST", f"/v1/workloads/{made['id']}/stop")
        for made in several:
            self.server.ended(made["id"])

    def audit(self) -> list[tuple[str, str, str]]:
        """Oldest first."""
        _, page = self.server.request("GET", "/v1/audit?limit=500")
        return [(line["verb"], line["name"], line["id"]) for line in reversed(page["items"]) if line["kind"] == "GPU"]


@pytest.fixture
def lab(place: Path, hosts: Hosts) -> Iterator[Lab]:
    lab = Lab(start_server(place, engine="docker", stop_grace="1s"), hosts)
    for name in KINDS:
        lab.register(name)
    until(lambda: all(node["ready"] for node in lab.server.request("GET", "/v1/nodes")[1]["items"]))
    yield lab
    lab.server.end()
    for host in hosts.hosts:
        host.clean()


def until(holds: Callable[[], Any], what: Callable[[], Any] = lambda: None) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, what()
        time.sleep(0.1)


def test_it_goes_where_it_asks_to_be(lab: Lab) -> None:
    by_name = lab.submit("by-name", more="selectors: {node: lab-2}\n")
    by_label = lab.submit("by-label", more="selectors: {labels: {disk: hdd}}\n")
    by_gpu = lab.submit("by-gpu", resources=", accelerators: 'A10:2'")
    assert lab.runs_on(by_name) == ["lab-2"]
    assert lab.runs_on(by_label) == ["lab-1"]
    assert lab.runs_on(by_gpu) == ["lab-2"]
    waits = lab.submit("waits", resources=", accelerators: 'A10:1'")
    assert "0 of 2 are free" in waits["message"]
    _, found = lab.server.request("GET", f"/v1/workloads/{waits['id']}/explain")
    assert [(node["name"], node["obstacles"][0]["message"]) for node in found["nodes"]] == [
        ("lab-1", "has no A10 GPUs, needs 1"),
        ("lab-2", "has 0 of 2 free NVIDIA A10, needs 1"),
    ]
    lab.stop(by_gpu)
    assert lab.runs_on(waits) == ["lab-2"]
    gpus = [line for line in lab.audit() if line[2] in (by_gpu["id"], waits["id"])]
    assert [line[0] for line in gpus] == ["take", "take", "give", "give", "take"]
    lab.stop(by_name, by_label, waits)


def test_the_nodes_of_one_job_share_a_host(lab: Lab) -> None:
    ranks = lab.submit("ranks", resources=", accelerators: 'V100:1'", more="num_nodes: 2\n")
    assert lab.runs_on(ranks) == ["lab-1", "lab-1"]
    status, body = lab.server.request(
        "POST",
        "/v1/workloads",
        {"text": SLEEP.format(name="x", resources=", accelerators: 1", more="num_nodes: 4\n")},
    )
    assert status == 422
    assert "asks for 4 nodes with 1 GPU each; the largest has room for 2" in body["detail"]
    lab.stop(ranks)


def test_a_gpu_that_no_host_has_is_said_once(lab: Lab) -> None:
    text = SLEEP.format(name="x", resources=", accelerators: 'H100:1'", more="")
    status, body = lab.server.request("POST", "/v1/workloads", {"text": text, "source": "x.yaml"})
    assert status == 422
    assert [(each["where"], each["field"], each["message"]) for each in body["problems"]] == [
        (
            "x.yaml:2:42",
            "resources.accelerators",
            "asks for 1 H100 GPU on one node; there are 2 × NVIDIA A10 (2 free), 2 × Tesla V100 (2 free)",
        )
    ]


def test_an_array_uses_both_hosts(lab: Lab) -> None:
    array = lab.submit("array", resources=", accelerators: 1", more="array: {count: 4}\n")
    until(lambda: sorted(lab.runs_on(array)) == ["lab-1", "lab-1", "lab-2", "lab-2"])
    held = [line[1] for line in lab.audit()]
    assert len(set(held)) == 4
    lab.stop(array)


def test_it_runs_where_its_volume_is(lab: Lab) -> None:
    volumes = {}
    for name in ("one", "two"):
        assert lab.server.request("POST", "/v1/volumes", {"name": name, "size": "1Gi"})[0] == 201
        host = [each for each in KINDS if lab.hosts[each].docker("volume", "ls", "-q", "--filter", f"name={name}")]
        volumes[name] = host
    assert sorted(volumes.values()) == [["lab-1"], ["lab-2"]]
    for name, home in volumes.items():
        made = lab.submit(f"uses-{name}", more=f"volumes: {{/data: {name}}}\n")
        assert lab.runs_on(made) == home
        lab.stop(made)
    text = SLEEP.format(name="both", resources="", more="volumes: {/a: one, /b: two}\n")
    status, body = lab.server.request("POST", "/v1/workloads", {"text": text})
    assert status == 422
    assert "no node that you may use has all its volumes" in body["detail"]
    for name in volumes:
        lab.server.request("DELETE", f"/v1/volumes/{name}")


ALL_IN_ONE = """apiVersion: v1
kind: Workload
metadata: {name: first-of-all}
spec:
  driver: pwm.docker
  image: {image: "penstock-test:1"}
  config: {cmd: sleep 300}
  volumes: [{name: nest, target: /nest}, {name: home, storage: disk-2, target: /home}]
---
apiVersion: v1
kind: Volume
metadata: {name: nest}
spec: {storage: disk-2}
---
apiVersion: v1
kind: Storage
metadata: {name: disk-2}
spec: {local: {node: lab-2}}
"""


def test_a_storage_its_volume_and_what_mounts_it_come_in_one_text(lab: Lab) -> None:
    status, made = lab.server.request("POST", "/v1/apply", {"text": ALL_IN_ONE})
    assert status == 200, made
    assert [each["result"] for each in made["results"]] == ["created"] * 3, made
    workload = {"id": made["results"][-1]["id"]}
    assert lab.runs_on(workload) == ["lab-2"]
    lab.stop(workload)


FRESH = """apiVersion: v1
kind: Workload
metadata: {{name: {name}}}
spec:
  driver: pwm.docker
  {more}
  image: {{image: "penstock-test:1"}}
  config: {{cmd: sleep 300}}
  volumes: [{{name: {volume}, target: /data}}]
"""


ALSO_FRESH = """
apiVersion: v1
kind: Workload
metadata: {{name: {name}}}
spec:
  driver: pwm.docker
  selectors: {{node: {{name: {node}}}, gpu: {{product_name: pwm.all, count: 1}}}}
  image: {{image: "penstock-test:1"}}
  config: {{cmd: sleep 300}}
  volumes: [{{name: fresh, target: /data}}]
"""


def test_a_volume_nobody_made_is_on_the_disk_of_the_node_that_uses_it_first(lab: Lab) -> None:
    def applied(name: str, volume: str, more: str) -> dict[str, Any]:
        text = FRESH.format(name=name, volume=volume, more=more)
        status, made = lab.server.request("POST", "/v1/apply", {"text": text})
        assert status == 200, made
        assert [each["result"] for each in made["results"]] == ["created"], made
        return made["results"][0]

    def volume(name: str) -> tuple[str, str]:
        seen = lab.server.request("GET", f"/v1/volumes/{name}")[1]
        return seen["status"], seen["storage"]

    first = applied("first", "brandnew", "selectors: {gpu: {product_name: Tesla V100, count: 2}}")
    assert lab.runs_on(first) == ["lab-1"]
    assert volume("brandnew") == ("Bound", "lab-1-local")
    lab.stop(first)
    held = [lab.submit(f"full-{name}", ", accelerators: 2", f"selectors: {{node: {name}}}\n") for name in KINDS]
    for each in held:
        lab.runs_on(each)
    both = [applied(name, "later", "selectors: {gpu: {product_name: pwm.all, count: 1}}") for name in ("one", "two")]
    assert volume("later") == ("Pending", "pwm.all")
    lab.stop(held[1])  # both come where the first of them does, whatever else there is
    assert lab.runs_on(both[0]) == lab.runs_on(both[1]) == ["lab-2"]
    assert volume("later") == ("Bound", "lab-2-local")
    lab.stop(held[0], *both)
    array = applied("array", "for-array", "array: 2\n  selectors: {spread: true}")
    until(lambda: len(lab.runs_on(array)) == 2, lambda: lab.seen(array))
    [node] = set(lab.runs_on(array))
    assert volume("for-array") == ("Bound", f"{node}-local")
    lab.stop(array)


def test_what_is_pinned_where_its_volume_is_not_is_refused_or_in_nobodys_way(lab: Lab) -> None:
    pinned = "selectors: {{node: {node}}}\nvolumes: {{/data: data}}\n"
    assert lab.server.request("POST", "/v1/volumes", {"name": "data", "storage": "lab-2-local"})[0] == 201
    text = SLEEP.format(name="x", resources="", more=pinned.format(node="lab-1"))
    status, refused = lab.server.request("POST", "/v1/workloads", {"text": text, "source": "x.yaml"})
    conflict = "asks for node lab-1, but volume data is on lab-2: ask for no node, or mount another volume"
    assert (status, refused["problems"][0]["where"]) == (422, "x.yaml:3:13")
    assert refused["problems"][0]["message"] == conflict
    held = [lab.submit(f"full-{name}", ", accelerators: 2", f"selectors: {{node: {name}}}\n") for name in KINDS]
    for each in held:
        lab.runs_on(each)
    fresh = ALSO_FRESH.format(name="here", node="lab-1") + "---" + ALSO_FRESH.format(name="there", node="lab-2")
    status, made = lab.server.request("POST", "/v1/apply", {"text": fresh})
    assert status == 200, made
    here, there = ({"id": each["id"]} for each in made["results"])
    lab.stop(held[1])
    assert lab.runs_on(there) == ["lab-2"]
    until(lambda: lab.seen(here)["reason"] == "NO_NODE_FITS", lambda: lab.seen(here))
    lost = lab.seen(here)
    assert (lost["state"], lost["status"]) == ("DENIED", "pending")
    conflict = "asks for node lab-1, but volume fresh is on lab-2: ask for no node, or mount another volume"
    said = f"can never start on the nodes there are now: {conflict}; it starts once a node can run it"
    assert lost["message"] == said
    _, found = lab.server.request("GET", f"/v1/workloads/{here['id']}/explain")
    assert (found["sentence"], found["ahead"]) == (said, None)
    waits = lab.submit("waits", resources=", accelerators: 'V100:1'")
    assert lab.seen(waits)["message"].endswith("0 of 2 are free"), lab.seen(waits)
    lab.stop(held[0], here, there, waits)


def test_what_a_node_was_taken_from_starts_when_it_is_registered_again(lab: Lab) -> None:
    held = lab.submit("held", ", accelerators: 2", "selectors: {node: lab-1}\n")
    assert lab.runs_on(held) == ["lab-1"]
    waits = lab.submit("waits", ", accelerators: 1", "selectors: {node: lab-1}\n")
    lab.hosts["lab-1"].kill()
    try:
        until(lambda: any(not node["ready"] for node in lab.server.request("GET", "/v1/nodes")[1]["items"]))
        assert lab.server.request("DELETE", "/v1/nodes/lab-1?force=true")[0] == 200
    finally:
        lab.hosts["lab-1"].start()
    until(lambda: lab.seen(waits)["reason"] == "NO_NODE_FITS", lambda: lab.seen(waits))
    assert "asks for node lab-1; there is lab-2" in lab.seen(waits)["message"]
    lab.register("lab-1")
    assert lab.runs_on(waits) == ["lab-1"]
    lab.stop(waits)


def test_a_node_that_comes_in_the_same_text_may_run_what_no_other_can(lab: Lab) -> None:
    product, disk = KINDS["lab-1"]
    assert lab.server.request("DELETE", "/v1/nodes/lab-1")[0] == 200
    more = {"address": lab.hosts["lab-1"].unix, "product": product, "disk": disk, "maintenance": "false"}
    text = ALSO_FRESH.format(name="new", node="lab-1") + "---\n" + NODE.format(name="lab-1", **more)
    status, told = lab.server.request("POST", "/v1/apply", {"text": text, "dry_run": True})
    assert status == 200, told
    assert told["results"][1]["message"] == "It would wait: waits for lab-1 to be registered."
    status, made = lab.server.request("POST", "/v1/apply", {"text": text})
    assert status == 200, made
    new = {"id": made["results"][1]["id"]}
    assert lab.runs_on(new) == ["lab-1"]
    lab.stop(new)


def test_what_was_on_a_node_that_is_gone_holds_up_nobody_else(lab: Lab) -> None:
    body = {"name": "there", "storage": "lab-2-local"}
    assert lab.server.request("POST", "/v1/volumes", body)[0] == 201
    ran = lab.submit("ran", more="volumes: {/data: there}\n")
    assert lab.runs_on(ran) == ["lab-2"]
    lab.stop(ran)
    assert lab.server.request("DELETE", "/v1/nodes/lab-2")[0] == 409  # it has the volume
    lab.hosts["lab-2"].kill()
    try:
        until(lambda: any(not node["ready"] for node in lab.server.request("GET", "/v1/nodes")[1]["items"]))
        assert lab.server.request("DELETE", "/v1/nodes/lab-2?force=true")[0] == 200
    finally:
        lab.hosts["lab-2"].start()
    text = SLEEP.format(name="late", resources="", more="volumes: {/data: there}\n")
    status, refused = lab.server.request("POST", "/v1/workloads", {"text": text})
    assert status == 422, refused
    assert "volume there is Lost: storage lab-2-local no longer exists" in refused["detail"]
    lab.server.request("POST", f"/v1/workloads/{ran['id']}/retry", {})
    other = lab.submit("other")
    assert lab.runs_on(other) == ["lab-1"]
    lab.stop(other)


def test_a_host_in_maintenance_gets_nothing_new_and_one_that_is_away_neither(lab: Lab) -> None:
    stays = lab.submit("stays", more="selectors: {node: lab-1}\n")
    assert lab.runs_on(stays) == ["lab-1"]
    lab.register("lab-1", maintenance=True)
    elsewhere = lab.submit("elsewhere")
    assert lab.runs_on(elsewhere) == ["lab-2"]
    waits = lab.submit("waits", more="selectors: {node: lab-1}\n")
    assert "lab-1 is in maintenance" in waits["message"]
    assert lab.seen(stays)["state"] == "RUNNING"
    lab.register("lab-1")
    assert lab.runs_on(waits) == ["lab-1"]
    lab.stop(stays, waits)
    gone = elsewhere
    lab.hosts["lab-2"].kill()
    try:
        until(lambda: any(not node["ready"] for node in lab.server.request("GET", "/v1/nodes")[1]["items"]))
        _, away = lab.server.request("GET", f"/v1/workloads/{gone['id']}/logs")
        assert away["detail"].startswith("Docker on lab-2 cannot be reached"), away
        waits = lab.submit("waits-too", more="selectors: {node: lab-2}\n")
        assert "lab-2 is not ready" in waits["message"]
        assert lab.runs_on(lab.submit("still", resources=", cpus: 0.1")) == ["lab-1"]
    finally:
        lab.hosts["lab-2"].start()
    assert lab.runs_on(waits) == ["lab-2"]
    assert lab.server.ended(gone["id"])["reason"] == "NODE_LOST"


def test_no_further_index_begins_on_a_host_in_maintenance(lab: Lab) -> None:
    machine = lab.hosts["lab-1"]
    sweep = lab.server.submit(SWEEP)

    def completes(number: int) -> None:
        """The index that runs."""
        assert lab.runs_on(sweep) == ["lab-1"]
        [runs] = machine.docker("ps", "-q", "--filter", f"label=penstock.dev/workload={sweep['id']}").split()
        machine.docker("exec", runs, "touch", "/done", check=False)  # it may end before this does
        until(lambda: lab.seen(sweep)["array"]["completed"] == number, lambda: lab.seen(sweep))

    lab.runs_on(sweep)
    lab.register("lab-1", maintenance=True)
    said = "lab-1 is in maintenance: 2 of its indexes wait until that is over"
    until(lambda: lab.seen(sweep)["message"] == said, lambda: lab.seen(sweep))
    completes(1)
    assert (lab.seen(sweep)["state"], lab.seen(sweep)["message"]) == ("RUNNING", said)
    assert lab.runs_on(sweep) == []
    lab.server.kill()
    lab.server = start_server(lab.server.place, lab.server.environ)
    until(lambda: all(node["ready"] for node in lab.server.request("GET", "/v1/nodes")[1]["items"]))
    assert lab.runs_on(sweep) == []
    lab.register("lab-1")
    until(lambda: lab.runs_on(sweep), lambda: lab.seen(sweep))
    until(lambda: lab.seen(sweep)["message"] is None, lambda: lab.seen(sweep))
    completes(2)
    until(lambda: lab.runs_on(sweep), lambda: lab.seen(sweep))
    completes(3)
    assert lab.server.ended(sweep["id"])["state"] == "EXITED"


def test_what_was_given_is_still_given_after_the_server_was_killed(place: Path, lab: Lab) -> None:
    first = lab.submit("first", resources=", accelerators: 'A10:1'")
    assert lab.runs_on(first) == ["lab-2"]
    lab.server.kill()
    lab.server = start_server(place, lab.server.environ)
    second = lab.submit("second", resources=", accelerators: 'A10:1'")
    third = lab.submit("third", resources=", accelerators: 'A10:1'")
    assert lab.runs_on(second) == ["lab-2"]
    assert lab.seen(third)["state"] == "QUEUED"
    taken = [line[1] for line in lab.audit() if line[0] == "take"]
    assert len(taken) == len(set(taken)) == 2
    lab.stop(first, second, third)
