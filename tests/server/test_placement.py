"""Whose turn it is and why one waits: priorities, limits of groups, explanations, and who may run nothing any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running import RunningServer, start_server

PATIENCE = 90
POLICY = {"Workload": ["pwm.all"], "Node": ["use"]}

DOCUMENT = """\
apiVersion: v1
kind: Workload
spec:
  driver: pwm.docker
  selectors: {cpu: {product_name: pwm.all, count: 2}}
  config: {cmd: sleep 600}
"""


@pytest.fixture
def server(place: Path) -> Iterator[RunningServer]:
    running = start_server(place, cpus="2", memory="8Gi")
    yield running
    running.end()


class Lab:
    """A server with users, each with a token."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.tokens: dict[str, str] = {}
        _, made = server.request("POST", "/v1/tokens", {})
        self.tokens["root"] = made["token"]
        assert server.request("POST", "/v1/adm/init", {})[0] == 201

    def user(self, name: str, group: str, **more: Any) -> None:
        body = {"name": name, "groups": [{"name": group, "policy": POLICY}]} | more
        assert self.server.request("PUT", f"/v1/users/{name}", body)[0] == 200
        if name not in self.tokens:
            self.tokens[name] = self.server.request("POST", "/v1/tokens", {"user": name})[1]["token"]

    def group(self, name: str, **more: Any) -> None:
        assert self.server.request("PUT", f"/v1/groups/{name}", {"name": name} | more)[0] == 200

    def ask(self, user: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return self.server.tcp(method, path, body, {"Authorization": f"Bearer {self.tokens[user]}"})

    def submit(self, user: str, text: str) -> dict[str, Any]:
        status, made = self.ask(user, "POST", "/v1/workloads", {"text": text})
        assert status == 201, made
        return made

    def runs(self, user: str, text: str) -> dict[str, Any]:
        made = self.submit(user, text)
        until(lambda: self.seen(user, made["id"])["state"] == "RUNNING")
        return made

    def seen(self, user: str, id_: str) -> dict[str, Any]:
        return self.ask(user, "GET", f"/v1/workloads/{id_}")[1]


@pytest.fixture
def lab(server: RunningServer) -> Lab:
    return Lab(server)


def until(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def test_a_higher_priority_goes_first(server: RunningServer) -> None:
    first = server.submit("resources: {cpus: 2}\nrun: sleep 60\n")
    low = server.submit("name: low\nresources: {cpus: 2}\nrun: 'true'\n")
    high = server.submit("name: high\npriority: 5\nresources: {cpus: 2}\nrun: 'true'\n")
    shown = until(lambda: _is_behind(server, low["id"], 1))
    assert shown["message"] == "needs 2 CPUs; 0 of 2 are free"
    server.request("POST", f"/v1/workloads/{first['id']}/stop")
    ended = {name: server.ended(made["id"]) for name, made in {"low": low, "high": high}.items()}
    assert ended["high"]["started_at"] < ended["low"]["started_at"]


def test_one_that_passes_all_others_is_not_told_to_wait_for_them(server: RunningServer) -> None:
    first = server.submit("resources: {cpus: 1}\nrun: sleep 60\n")
    until(lambda: server.request("GET", f"/v1/workloads/{first['id']}")[1]["state"] == "RUNNING")
    low = server.submit("resources: {cpus: 2}\nrun: 'true'\n")
    until(lambda: _says(server, low["id"], "needs 2 CPUs"))
    high = server.submit("priority: 10\nresources: {cpus: 1}\nrun: 'true'\n")
    assert high["message"] is None
    assert "QUEUED" not in [line["state"] for line in server.ended(high["id"])["history"]]


def _says(server: RunningServer, id_: str, words: str) -> dict[str, Any] | None:
    _, found = server.request("GET", f"/v1/workloads/{id_}")
    return found if words in (found["message"] or "") else None


def _is_behind(server: RunningServer, id_: str, ahead: int) -> dict[str, Any] | None:
    _, found = server.request("GET", f"/v1/workloads/{id_}")
    return found if found["ahead"] == ahead else None


def test_that_the_queue_moves_is_no_line_of_a_history(server: RunningServer) -> None:
    blockers = [server.submit("resources: {cpus: 1}\nrun: sleep 60\n") for _ in range(2)]
    waiting = [server.submit("resources: {cpus: 2}\nrun: sleep 60\n") for _ in range(2)]
    assert _is_behind(server, waiting[1]["id"], 1)
    server.request("POST", f"/v1/workloads/{waiting[0]['id']}/stop")
    until(lambda: server.request("GET", f"/v1/workloads/{waiting[1]['id']}")[1]["ahead"] is None)
    server.request("POST", f"/v1/workloads/{blockers[0]['id']}/stop")
    server.ended(blockers[0]["id"])
    found = until(lambda: _says(server, waiting[1]["id"], "needs 2 CPUs; 1 of 2 are free"))
    assert [line["state"] for line in found["history"]].count("QUEUED") == 1


def test_a_list_shows_the_place_in_the_queue_as_it_is(server: RunningServer) -> None:
    server.submit("resources: {cpus: 2}\nrun: sleep 60\n")
    waiting = [server.submit("resources: {cpus: 2}\nrun: sleep 60\n") for _ in range(3)]
    server.request("POST", f"/v1/workloads/{waiting[0]['id']}/stop")

    def places() -> list[int | None]:
        _, listed = server.request("GET", "/v1/workloads?status=pending")
        return [item["ahead"] for item in listed["items"]]

    until(lambda: places() == [1, None])


def test_a_list_shows_the_place_of_those_far_behind_too(server: RunningServer) -> None:
    server.submit("resources: {cpus: 2}\nrun: sleep 600\n")
    batch = "---\n".join(f"{DOCUMENT}metadata: {{name: q{number}}}\n" for number in range(100))
    status, made = server.request("POST", "/v1/apply", {"text": batch})
    assert status == 200, made

    def places() -> list[int | None]:
        _, listed = server.request("GET", "/v1/workloads?status=pending&limit=200")
        return [item["ahead"] for item in listed["items"]]

    last = list(range(99, 0, -1))
    until(lambda: places() == [*last, None])
    _, listed = server.request("GET", "/v1/workloads?status=pending&limit=200")
    assert {item["reason"] for item in listed["items"]} == {"NO_AVAILABLE_RESOURCES"}
    server.request("POST", f"/v1/workloads/{listed['items'][-1]['id']}/stop")
    until(lambda: places() == [*last[1:], None])


def test_each_node_says_why_not(server: RunningServer) -> None:
    first = server.submit("resources: {cpus: 1}\nrun: sleep 60\n")
    waiting = server.submit("resources: {cpus: 2}\nrun: 'true'\n")
    explain = f"/v1/workloads/{waiting['id']}/explain"
    until(lambda: server.request("GET", explain)[1]["sentence"] == "needs 2 CPUs; 1 of 2 are free")
    _, found = server.request("GET", explain)
    assert found["ahead"] == 0
    [node] = found["nodes"]
    assert not node["fits"]
    assert node["obstacles"] == [{"key": "cpus", "message": "has 1 of 2 CPUs free, needs 2", "passes": True}]
    _, running = server.request("GET", f"/v1/workloads/{first['id']}/explain")
    assert running["nodes"] == []
    assert running["sentence"].startswith("it does not wait: it is ")


def test_what_no_node_has_is_refused_where_it_is_written(server: RunningServer) -> None:
    text = "name: x\nselectors:\n  node: elsewhere\n  labels: {disk: ssd}\nrun: 'true'\n"
    status, body = server.request("POST", "/v1/workloads", {"text": text, "source": "task.yaml"})
    assert status == 422
    found = {problem["field"]: problem for problem in body["problems"]}
    assert found["selectors.node"]["message"].startswith("asks for node elsewhere; there is ")
    assert found["selectors.node"]["where"] == "task.yaml:3:3"
    assert found["selectors.labels"]["message"] == "asks for nodes with the label disk=ssd; there is none"


def test_beyond_a_groups_limit_a_job_waits_with_that_reason(lab: Lab) -> None:
    lab.group("vision", limits={"workloads": 1})
    lab.user("ann", "vision")
    first = lab.runs("ann", "name: one\nrun: sleep 60\n")
    second = lab.submit("ann", "name: two\nrun: 'true'\n")
    assert second["message"] == "group vision may have 1 workload at once: 1 is taken, needs 1"
    assert (second["state"], second["reason"], second["status"]) == ("DENIED", "QUOTA", "pending")
    lab.group("vision", limits={"workloads": 2})
    assert lab.server.ended(second["id"])["state"] == "EXITED"
    steps = [line["state"] for line in lab.seen("ann", second["id"])["history"]]
    assert steps[:3] == ["INSERTED", "DENIED", "ASSIGNED"]
    lab.ask("ann", "POST", f"/v1/workloads/{first['id']}/stop")
    assert lab.server.ended(first["id"])["state"] == "STOPPED"


def test_what_a_limit_let_go_on_waits_for_room_like_all(lab: Lab) -> None:
    """The limit goes, the room is not there yet: refused no longer, and in the queue."""
    lab.group("vision", limits={"workloads": 1})
    lab.user("ann", "vision")
    lab.runs("ann", "name: one\nresources: {cpus: 2}\nrun: sleep 60\n")
    second = lab.submit("ann", "name: two\nresources: {cpus: 1}\nrun: 'true'\n")
    [listed] = lab.ask("ann", "GET", "/v1/workloads?state=DENIED")[1]["items"]
    assert listed["name"] == "two"
    lab.group("vision")
    until(lambda: lab.seen("ann", second["id"])["state"] == "QUEUED")
    seen = lab.seen("ann", second["id"])
    assert (seen["reason"], seen["message"]) == ("NO_AVAILABLE_RESOURCES", "needs 1 CPU; 0 of 2 are free")
    lab.ask("ann", "POST", f"/v1/workloads/{second['id']}/stop")
    assert lab.server.ended(second["id"])["state"] == "STOPPED"


def test_a_limit_of_each_member_leaves_the_others_alone(lab: Lab) -> None:
    lab.group("vision", limits_each={"cpus_milli": 500})
    lab.user("ann", "vision")
    lab.user("bob", "vision")
    lab.runs("ann", "name: one\nrun: sleep 60\n")
    assert "ann in group vision may have 0.5 CPUs" in lab.submit("ann", "name: two\nrun: 'true'\n")["message"]
    bobs = lab.submit("bob", "name: three\nrun: 'true'\n")
    assert lab.server.ended(bobs["id"])["state"] == "EXITED"
    status, body = lab.ask("bob", "POST", "/v1/workloads", {"text": "resources: {cpus: 1}\nrun: x\n"})
    assert status == 422
    assert "bob in group vision may have 0.5 at once" in body["detail"]


def test_groups_take_turns(lab: Lab) -> None:
    for group, user in (("one", "ann"), ("two", "bob")):
        lab.group(group)
        lab.user(user, group)
    blocker = lab.submit("root", "resources: {cpus: 2}\nrun: sleep 60\n")
    many = [lab.submit("ann", f"name: a{n}\nresources: {{cpus: 1}}\nrun: sleep 60\n") for n in range(3)]
    late = lab.submit("bob", "name: late\nresources: {cpus: 1}\nrun: sleep 60\n")
    lab.ask("root", "POST", f"/v1/workloads/{blocker['id']}/stop")
    until(lambda: lab.seen("bob", late["id"])["state"] == "RUNNING")
    until(lambda: [lab.seen("ann", each["id"])["state"] for each in many] == ["RUNNING", "QUEUED", "QUEUED"])


def test_what_says_no_max_duration_has_its_groups(lab: Lab) -> None:
    lab.group("vision", max_duration=1)
    lab.user("ann", "vision")
    made = lab.submit("ann", "name: endless\nrun: sleep 60\n")
    assert "It may run for 1s: group vision says so" in made["notices"][0]
    ended = lab.server.ended(made["id"])
    assert (ended["state"], ended["reason"]) == ("CRASHED", "TIME_LIMIT")
    assert lab.submit("ann", "name: short\nmax_duration: 60s\nrun: 'true'\n")["notices"] == []


def test_nothing_of_a_deactivated_user_starts_any_more_and_what_runs_goes_on(lab: Lab) -> None:
    lab.group("vision")
    lab.user("ann", "vision")
    runs = lab.submit("ann", "name: runs\nresources: {cpus: 2}\nrun: sleep 60\n")
    waits = lab.submit("ann", "name: waits\nrun: 'true'\n")
    lab.user("ann", "vision", active=False)
    until(lambda: lab.seen("root", waits["id"])["message"] == "ann is deactivated")
    seen = lab.seen("root", waits["id"])
    assert (seen["state"], seen["reason"]) == ("DENIED", "NOT_ALLOWED")
    assert lab.seen("root", runs["id"])["state"] == "RUNNING"
    lab.ask("root", "POST", f"/v1/workloads/{runs['id']}/stop")
    lab.server.ended(runs["id"])
    assert lab.seen("root", waits["id"])["message"] == "ann is deactivated"
    lab.user("ann", "vision", active=True)
    assert lab.server.ended(waits["id"])["state"] == "EXITED"


def test_a_group_goes_before_others_only_as_far_as_an_admin_allows(lab: Lab) -> None:
    lab.group("vision")
    lab.user("ann", "vision")
    lab.group("speech", max_priority=5)
    lab.user("bob", "speech")
    body = {"text": "name: high\npriority: 6\nrun: 'true'\n", "source": "train.yaml"}
    for user, group, most in (("ann", "vision", 0), ("bob", "speech", 5)):
        status, refused = lab.ask(user, "POST", "/v1/workloads", body)
        assert status == 422
        [problem] = refused["problems"]
        assert (problem["where"], problem["field"]) == ("train.yaml:2:1", "priority")
        assert problem["message"] == f"is 6; group {group} may have {most} at most"
        assert problem["hint"] == f"an admin can raise max_priority of group {group}"
    lab.submit("ann", "priority: -6\nrun: 'true'\n")
    lab.submit("bob", "priority: 5\nrun: 'true'\n")
    lab.submit("root", "priority: 1000\nrun: 'true'\n")


def test_priorities_and_limits_hold_after_a_restart(place: Path, lab: Lab) -> None:
    lab.group("vision", limits={"workloads": 1}, max_priority=1)
    lab.user("ann", "vision")
    first = lab.submit("ann", "name: one\nrun: sleep 60\n")
    until(lambda: lab.seen("ann", first["id"])["state"] == "RUNNING")
    low = lab.submit("ann", "name: low\nrun: sleep 60\n")
    high = lab.submit("ann", "name: high\npriority: 1\nrun: sleep 60\n")
    lab.server.kill()
    lab.server = start_server(place, lab.server.environ)
    assert lab.seen("ann", high["id"])["message"] == "group vision may have 1 workload at once: 1 is taken, needs 1"
    lab.ask("ann", "POST", f"/v1/workloads/{first['id']}/stop")
    until(lambda: lab.seen("ann", high["id"])["state"] == "RUNNING")
    assert "1 is taken" in lab.seen("ann", low["id"])["message"]
    lab.server.end()


def test_what_the_machine_can_no_longer_run_says_so_and_is_in_nobodys_way(place: Path) -> None:
    first = start_server(place, cpus="4")
    blocker = first.submit("resources: {cpus: 4}\nrun: sleep 300\n")
    until(lambda: first.request("GET", f"/v1/workloads/{blocker['id']}")[1]["state"] == "RUNNING")
    large = first.submit("name: large\nresources: {cpus: 4}\nrun: 'true'\n")
    first.kill()
    server = start_server(place, cpus="2")
    found = until(lambda: _says(server, large["id"], "can never start"))
    assert found["state"] == "DENIED"
    assert found["reason"] == "NO_NODE_FITS"
    assert "asks for 4 CPUs" in found["message"]
    assert found["message"].endswith("has 2; it starts once a node can run it")
    waits = server.submit("resources: {cpus: 1}\nrun: 'true'\n")
    assert server.request("GET", f"/v1/workloads/{waits['id']}")[1]["ahead"] is None
    server.kill()
    server = start_server(place, cpus="4")
    server.request("POST", f"/v1/workloads/{blocker['id']}/stop")
    assert server.ended(large["id"])["state"] == "EXITED"
    assert server.ended(waits["id"])["state"] == "EXITED"
    server.end()
