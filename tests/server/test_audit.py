"""What was refused is written down as what it was: who wanted to do which verb to what."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.test_roles import House, house

__all__ = ["house"]

Line = tuple[str, str, str, str]

TAKES_OVER = """\
apiVersion: v1
kind: User
metadata: {name: sees}
spec: {groups: [{name: pwm.all, policy: pwm.all}]}
---
apiVersion: v1
kind: User
metadata: {name: friend}
spec: {groups: [{name: pwm.all, policy: pwm.all}]}
---
apiVersion: v1
kind: Group
metadata: {name: friends}
"""
MINES = """\
apiVersion: v1
kind: Node
metadata: {name: mine, group: lab}
spec: {address: 'unix:///nowhere.sock'}
---
apiVersion: v1
kind: Storage
metadata: {name: hoard}
spec: {kind: nfs, nfs: {server: 10.0.0.1, path: /hoard}}
---
apiVersion: v1
kind: Volume
metadata: {name: coins, group: lab}
spec: {size: 1Mi}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claimed}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
name: digs
run: 'true'
"""


def refused(house: House, user: str) -> list[Line]:
    """Of one user, oldest first."""
    status, listed = house.ask("admin", "GET", f"/v1/audit?user={user}&limit=500")
    assert status == 200, listed
    denied = [entry for entry in listed["items"] if entry["result"] == "denied"]
    return [(e["verb"], e["kind"], e["group"], e["name"]) for e in reversed(denied)]


def apply(house: House, user: str, text: str, path: str = "/v1/apply") -> tuple[int, Any]:
    return house.ask(user, "POST", path, {"text": text, "source": "d.yaml"})


@pytest.fixture
def nosy(house: House) -> str:
    """Someone new who sees what is in the lab, so that every line is of this test."""
    name = f"nosy{len(house.tokens)}"
    policy = {"Workload": ["get"], "Volume": ["get"], "Storage": ["get"], "GPU": ["get"]}
    groups = [{"name": "lab", "policy": policy}]
    assert house.ask("admin", "PUT", f"/v1/users/{name}", {"name": name, "groups": groups})[0] == 200
    house.tokens[name] = house.ask("admin", "POST", "/v1/tokens", {"user": name})[1]["token"]
    return name


def test_each_document_that_was_refused_is_a_line(house, nosy):
    status, answer = apply(house, nosy, TAKES_OVER.replace("sees", nosy))
    assert (status, answer["message"]) == (403, "d.yaml cannot be applied; nothing was changed.")
    said = "Only an admin may change users, groups and policies."
    assert [(p["where"], p["message"]) for p in answer["problems"]] == [
        ("d.yaml:3:18", said),
        ("d.yaml:8:18", said),
        ("d.yaml:13:18", said),
    ]
    assert refused(house, nosy) == [
        ("create", "Group", "friends", "friends"),
        ("update", "User", "", nosy),
        ("create", "User", "", "friend"),
    ]


def test_of_every_kind_there_is_a_document_of(house, nosy):
    status, answer = apply(house, nosy, MINES)
    assert status == 403, answer
    assert sorted(p["message"] for p in answer["problems"]) == [
        "You may not create nodes in group lab.",
        "You may not create storages in group pwm.resource.",
        "You may not create volumes in group lab.",
        "You may not create volumes in group lab.",
        "You may not create workloads in group lab.",
    ]
    assert refused(house, nosy) == [
        ("create", "Storage", "pwm.resource", "hoard"),
        ("create", "Node", "lab", "mine"),
        ("create", "Volume", "lab", "coins"),
        ("create", "Volume", "lab", "claimed"),
        ("create", "Workload", "lab", "digs"),
    ]


def test_one_that_is_refused_alone_says_so_itself(house, nosy):
    status, answer = apply(house, nosy, MINES.partition("---")[0])
    assert (status, answer["message"]) == (403, "You may not create nodes in group lab.")
    assert apply(house, nosy, MINES.partition("---")[0].replace("mine", "other"))[0] == 403
    assert apply(house, nosy, MINES.partition("---")[0])[0] == 403, "which is the same once more"
    assert refused(house, nosy) == [("create", "Node", "lab", "mine"), ("create", "Node", "lab", "other")]


def test_one_that_is_refused_among_others_is_named(house, nosy):
    other = (
        "kind: Workload\napiVersion: v1\nmetadata: {name: digs, group: other}\nspec: {driver: pwm.docker, run: ls}\n"
    )
    status, answer = apply(house, nosy, f"{other}---\n{MINES.partition('---')[0]}")
    assert (status, answer["message"]) == (403, "d.yaml cannot be applied; nothing was changed.")
    assert [(p["where"], p["message"]) for p in answer["problems"]] == [
        ("d.yaml:8:18", "You may not create nodes in group lab.")
    ]


def test_deleting_and_stopping_whole_files_is_no_way_around_it(house, nosy):
    thing = {"text": "name: stays\nrun: sleep 600\n"}
    assert house.ask("has", "POST", "/v1/workloads", thing)[0] == 201
    assert house.ask("has", "POST", "/v1/volumes", {"name": "claimed", "size": "1Mi"})[0] == 201
    text = f"{thing['text']}---\n{MINES.split('---')[3]}---\n{TAKES_OVER.replace('sees', nosy)}"
    for path in ("/v1/stop", "/v1/delete"):
        status, answer = apply(house, nosy, text, path)
        assert status == 200, answer
    assert [(one["kind"], one["name"], one["result"]) for one in answer["results"][:2]] == [
        ("Task", "stays", "failed"),
        ("PersistentVolumeClaim", "claimed", "failed"),
    ]
    assert refused(house, nosy) == [
        ("stop", "Workload", "lab", "stays"),
        ("delete", "Workload", "lab", "stays"),
        ("delete", "Volume", "lab", "claimed"),
        ("delete", "User", "", nosy),
        ("delete", "User", "", "friend"),
        ("delete", "Group", "friends", "friends"),
    ]


def test_a_refused_request_is_written_down_with_the_name_in_its_address(house, nosy):
    thing = house.made("workloads")
    assert house.ask(nosy, "POST", f"/v1/workloads/{thing}/stop")[0] == 403
    assert house.ask(nosy, "DELETE", "/v1/workloads/bw?group=lab")[0] == 403
    assert house.ask(nosy, "PUT", f"/v1/users/{nosy}", {"name": nosy})[0] == 403
    assert house.ask(nosy, "POST", "/v1/volumes", {"name": "new", "size": "1Mi"})[0] == 403
    assert house.ask(nosy, "GET", "/v1/audit")[0] == 403
    assert refused(house, nosy) == [
        ("stop", "Workload", "", thing),
        ("delete", "Workload", "lab", "bw"),
        ("update", "User", "", nosy),
        ("create", "Volume", "", ""),
        ("get", "Audit", "", ""),
    ]
    [stopped] = house.ask("admin", "GET", f"/v1/audit?user={nosy}&name={thing}")[1]["items"]
    assert stopped["detail"] == f"POST /v1/workloads/{thing}/stop"


def test_a_token_of_somebody_else_that_was_refused_names_them(house, nosy):
    assert house.ask(nosy, "POST", "/v1/tokens", {"user": "admin"})[0] == 403
    assert house.ask(nosy, "GET", "/v1/tokens?user=friend")[0] == 403
    assert refused(house, nosy) == [("create", "Token", "", "admin"), ("get", "Token", "", "friend")]
