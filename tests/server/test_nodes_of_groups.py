"""Nodes belong to groups: another group's node reads as if it were not there, in every list of nodes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import start_server
from tests.server.test_roles import House

NODE = """\
---
apiVersion: v1
kind: Node
metadata: {{name: {name}, group: {group}}}
spec: {{address: 'unix://{place}/{name}.sock', gpus: [{{product_name: A10, memory: 24Gi}}]}}
"""
MEMBERS = {
    "of-lab": [{"name": "lab", "policy": {"GPU": ["get"]}}],
    "of-both": [{"name": "lab", "policy": "pwm.all"}, {"name": "pwm.resource", "policy": {"CPU": ["get"]}}],
    "of-other": [{"name": "other", "policy": "pwm.all"}],
    "without": [{"name": "lab", "policy": {"Volume": ["get"]}}],
}
ALL = ["lab01", "other01", "shared01"]
LISTS = ("/v1/nodes", "/v1/nodes/top", "/v1/gpus", "/v1/documents?kind=Node")


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """Of three Docker hosts, none of which answers: whose they are does not depend on that."""
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    place.chmod(0o711)
    server = start_server(place, engine="docker")
    _, first = server.request("POST", "/v1/adm/init", {})
    house = House(server, {"admin": first["token"]})
    for group in ("lab", "other"):
        assert house.ask("admin", "PUT", f"/v1/groups/{group}", {"name": group})[0] == 200
    for name, groups in MEMBERS.items():
        assert house.ask("admin", "PUT", f"/v1/users/{name}", {"name": name, "groups": groups})[0] == 200
        house.tokens[name] = house.ask("admin", "POST", "/v1/tokens", {"user": name})[1]["token"]
    groups = {"lab01": "lab", "other01": "other", "shared01": "pwm.resource"}
    text = "".join(NODE.format(name=name, group=group, place=place) for name, group in groups.items())
    status, made = house.ask("admin", "POST", "/v1/apply", {"text": text, "source": "nodes.yaml"})
    assert (status, [one["result"] for one in made["results"]]) == (200, ["created"] * 3), made
    yield house
    server.end()
    shutil.rmtree(place)


def names(house: House, user: str, path: str) -> list[str]:
    status, found = house.ask(user, "GET", path)
    assert status == 200, found
    return [str(item.get("node") or item["name"]) for item in found["items"]]


@pytest.mark.parametrize("path", LISTS)
def test_each_sees_the_nodes_of_their_groups(house, path):
    more = "&" if "?" in path else "?"
    assert names(house, "admin", path) == ALL
    assert names(house, "of-lab", path) == ["lab01"]
    assert names(house, "of-both", path) == ["lab01", "shared01"]
    assert names(house, "of-other", path) == ["other01"]
    assert names(house, "admin", f"{path}{more}group=lab") == ["lab01"]
    assert names(house, "of-both", f"{path}{more}group=pwm.resource") == ["shared01"]
    assert house.ask("without", "GET", path)[0] == 403


@pytest.mark.parametrize("path", LISTS)
def test_another_groups_node_is_like_one_that_is_not_there(house, path):
    more = "&" if "?" in path else "?"
    ending = "/A10" if path == "/v1/gpus" else ""
    for name in ("other01", "nosuch"):
        assert names(house, "of-lab", f"{path}{more}name={name}{ending}") == []
    assert names(house, "of-other", f"{path}{more}name=other01{ending}") == ["other01"]
    after_theirs = house.ask("of-lab", "GET", f"{path}{more}cursor=other01{ending}")
    after_none = house.ask("of-lab", "GET", f"{path}{more}cursor=nosuch{ending}")
    assert after_theirs == after_none
    assert after_none[0] == 422


def test_what_belongs_to_the_server_is_asked_in_any_group_of_ones_own(house):
    for path in ("/v1/whoami", "/v1/users", "/v1/tokens"):
        assert house.ask("of-both", "GET", f"{path}?group=pwm.resource")[0] == 200
    text = {"text": "name: a\nrun: b\n", "to": "document"}
    assert house.ask("of-both", "POST", "/v1/convert?group=pwm.resource", text)[0] == 200
    assert house.ask("of-both", "GET", "/v1/audit?group=pwm.resource")[0] == 403


def test_a_group_that_is_not_ones_own_has_no_nodes_to_speak_of(house):
    not_theirs = house.ask("of-lab", "GET", "/v1/nodes?group=other")
    not_there = house.ask("of-lab", "GET", "/v1/nodes?group=nosuch")
    assert not_theirs[0] == not_there[0] == 404
    assert str(not_theirs[1]).replace("other", "nosuch") == str(not_there[1])
