"""What those who rule one group, or a part of all, can reach beyond it."""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server.test_attempts import until
from tests.server.test_people import a_group, a_user
from tests.server.test_roles import House, house

__all__ = ["house"]

LAB = [{"name": "lab", "policy": "pwm.all"}]
NFS = """kind: Storage
apiVersion: v1
metadata: {{name: {name}, group: {group}}}
spec: {{kind: nfs, nfs: {{server: 10.0.0.1, path: /export}}}}
"""
NODE = """kind: Node
apiVersion: v1
metadata: {{name: {name}, group: {group}}}
spec: {{address: '{address}'}}
"""


def applied(house: House, user: str, text: str) -> tuple[int, Any]:
    return house.ask(user, "POST", "/v1/apply", {"text": text, "source": "a.yaml"})


@pytest.mark.parametrize("text", [NFS, NODE])
def test_nodes_and_storages_are_not_a_groups_to_write_down(house, text):
    """A node is reached with the server's keys, and an export can lie around another group's."""
    theirs = text.format(name="mine", group="lab", address="unix:///run/docker.sock")
    status, answer = applied(house, "has", theirs)
    assert (status, answer["code"]) == (403, "forbidden"), answer
    assert applied(house, "admin", theirs)[0] == 200
    _, answer = house.ask("has", "POST", "/v1/delete", {"text": theirs})
    assert answer["results"][0]["result"] == "failed"
    _, answer = house.ask("admin", "POST", "/v1/delete", {"text": theirs})
    assert answer["results"][0]["result"] == "deleted"


def test_who_has_the_verb_in_all_groups_writes_them_down_without_being_an_admin(house):
    a_user(house, "racks", [{"name": "pwm.all", "policy": {"Storage": ["get", "apply", "delete"]}}])
    text = NFS.format(name="theirs", group="lab", address="")
    assert applied(house, "racks", text)[0] == 200
    assert house.ask("racks", "DELETE", "/v1/storages/theirs")[0] == 200
    assert applied(house, "racks", NODE.format(name="n", group="lab", address="tcp://localhost:1"))[0] == 403


def test_the_disk_of_a_node_is_its_own_and_in_its_group(house):
    [disk] = [each["name"] for each in house.ask("admin", "GET", "/v1/storages")[1]["items"]]
    status, answer = applied(house, "admin", NFS.format(name=disk, group="lab"))
    said = f"Storage {disk} already exists in another group."
    assert (status, answer["problems"][0]["message"]) == (422, said)
    status, answer = applied(house, "admin", NFS.format(name=disk, group="pwm.resource"))
    node = disk.removesuffix("-local")
    assert status == 422
    assert answer["problems"] == [
        {
            "where": "a.yaml:3:18",
            "field": "metadata.name",
            "message": f"Storage {disk} is what the disk of node {node} is called.",
            "hint": "take another name",
        }
    ]
    assert applied(house, "admin", NFS.format(name="later-local", group="lab"))[0] == 200
    status, answer = applied(house, "admin", NODE.format(name="later", group="lab", address="tcp://localhost:1"))
    assert answer["problems"][0]["message"] == "Storage later-local is what the disk of node later is called."
    assert house.ask("admin", "DELETE", "/v1/storages/later-local")[0] == 200


def test_an_address_is_one_node(house):
    first = NODE.format(name="first", group="lab", address="tcp://localhost:7")
    assert applied(house, "admin", first)[0] == 200
    status, answer = applied(house, "admin", first.replace("first", "second"))
    [problem] = answer["problems"]
    assert (status, problem["field"], problem["message"]) == (422, "spec.address", "Node first has that address.")
    new = NODE.format(name="new", group="lab", address="tcp://localhost:8")
    status, answer = applied(house, "admin", f"{new}---\n{new.replace('new', 'newer')}")
    assert (status, [each["where"] for each in answer["problems"]]) == (422, ["a.yaml:4:17", "a.yaml:9:17"])
    moved = f"{first.replace('localhost:7', 'localhost:8')}---\n{first.replace('first', 'second')}"
    assert applied(house, "admin", moved)[0] == 200, "what one gives up, another may have"
    assert house.ask("admin", "DELETE", "/v1/nodes/second")[0] == 200
    assert house.ask("admin", "DELETE", "/v1/nodes/first")[0] == 200


def test_to_stop_everyones_jobs_takes_the_verb_in_all_groups(house):
    a_user(
        house, "watcher", [{"name": "other", "policy": "pwm.all"}, {"name": "pwm.all", "policy": {"Workload": ["get"]}}]
    )
    _, job = house.ask("has", "POST", "/v1/workloads", {"text": "name: kept\nrun: sleep 600\n"})
    for path in ("/v1/workloads/stop", "/tasks/stop"):
        status, answer = house.ask("watcher", "POST", f"{path}?all_users=true")
        assert (status, answer["code"]) == (403, "forbidden")
    history = house.ask("has", "GET", f"/v1/workloads/{job['id']}")[1]["history"]
    assert not {"REQUESTED_CANCEL", "STOPPED"} & {change["state"] for change in history}
    house.ask("has", "POST", f"/v1/workloads/{job['id']}/stop")


def test_users_of_a_volume_are_named_to_those_who_may_see_them(house):
    a_user(
        house,
        "reader",
        [{"name": "other", "policy": "pwm.all"}, {"name": "lab", "policy": {"Volume": ["get", "delete"]}}],
    )
    _, volume = house.ask("has", "POST", "/v1/volumes", {"name": "common", "size": "1Mi"})
    text = "name: secret-project\nvolumes: {/data: common}\nrun: sleep 600\n"
    _, job = house.ask("has", "POST", "/v1/workloads", {"text": text})
    [use] = house.ask("has", "GET", f"/v1/volumes/{volume['id']}")[1]["used_by"]
    assert (use["id"], use["name"]) == (job["id"], "secret-project")
    [use] = house.ask("reader", "GET", f"/v1/volumes/{volume['id']}")[1]["used_by"]
    assert (use["id"], use["name"]) == ("", "1 workload of other groups")
    status, answer = house.ask("reader", "DELETE", f"/v1/volumes/{volume['id']}")
    assert (status, answer["message"]) == (409, "Volume common is in use by 1 workload of other groups.")
    house.ask("has", "POST", f"/v1/workloads/{job['id']}/stop")


def test_what_differs_is_told_to_those_who_may_see_it(house):
    a_user(house, "blind-writer", [{"name": "lab", "policy": {"Workload": ["apply"], "Node": ["use"]}}])
    text = "name: hidden\nenvs: {DB: confidential}\nrun: sleep 600\n"
    assert applied(house, "has", text)[0] == 200
    for user, told in (("has", True), ("blind-writer", False)):
        status, answer = applied(house, user, text.replace("confidential", "mine"))
        assert status == 422
        assert "and different" in answer["problems"][0]["message"]
        assert ("confidential" in str(answer)) is told
    house.ask("has", "POST", "/v1/workloads/hidden/stop")


def test_what_the_server_counts_is_for_those_who_look_after_it(house):
    a_user(house, "prometheus", [{"name": "pwm.all", "policy": {"Server": ["inspect"]}}])
    assert house.ask("has", "GET", "/metrics")[0] == 403
    assert "penstock_" in house.ask("prometheus", "GET", "/metrics")[1]


@pytest.mark.parametrize("path", ["/v1/server", "/v1/doctor"])
def test_what_the_server_is_and_lacks_is_for_those_who_work_here(house, path):
    """It names directories of its machine."""
    status, answer = house.ask("alone", "GET", path)
    assert (status, answer["message"]) == (403, "You are not a member of any group on this server.")
    assert "penstock adm user apply" in answer["hint"]
    for user in ("has", "blind", "admin"):
        assert house.ask(user, "GET", path)[0] == 200
    assert house.ask("alone", "GET", "/v1/whoami")[0] == 200


def test_who_may_not_see_jobs_is_not_told_their_names_by_after(house):
    a_user(house, "guesser", [{"name": "lab", "policy": {"Workload": ["apply"], "Node": ["use"]}}])
    _, job = house.ask("has", "POST", "/v1/workloads", {"text": "name: rumour\nrun: sleep 600\n"})
    for ref in ("rumour", job["id"]):
        said = {}
        for name in (ref, "never-was"):
            text = f"name: late\nafter: {name}\nrun: 'true'\n"
            for body in ({"text": text, "dry_run": True}, {"text": text}, {"text": "run: 'true'\n", "after": [name]}):
                status, answer = house.ask("guesser", "POST", "/v1/workloads", body)
                assert status == 422, answer
                said.setdefault(name, []).append(str(answer).replace(name, "NAME"))
            status, answer = applied(house, "guesser", text)
            said[name].append(str(answer).replace(name, "NAME"))
            assert status == 422, answer
        assert said[ref] == said["never-was"]
    house.ask("has", "POST", f"/v1/workloads/{job['id']}/stop")


def test_a_file_with_after_can_be_applied_again_by_who_may_not_see_jobs(house):
    a_user(house, "dropper", [{"name": "lab", "policy": {"Workload": ["apply", "cancel"], "Node": ["use"]}}])
    text = "name: first-of-two\nrun: sleep 600\n---\nname: second-of-two\nafter: first-of-two\nrun: 'true'\n"
    for result in ("created", "not changed"):
        status, answer = applied(house, "dropper", text)
        assert (status, [each["result"] for each in answer["results"]]) == (200, [result] * 2), answer
    house.ask("has", "POST", "/v1/stop", {"text": text})


def test_all_groups_are_no_group_that_can_be_written_down(house):
    status, answer = house.ask("admin", "PUT", "/v1/groups/pwm.all", {"name": "pwm.all"})
    assert (status, answer["problems"][0]["message"]) == (422, "pwm.all means all groups and is none")


def test_a_group_that_is_made_again_has_nothing_of_the_one_before(house):
    a_group(house, "reborn")
    _, job = house.ask("admin", "POST", "/v1/workloads?group=reborn", {"text": "name: old\nrun: echo secret\n"})
    assert house.ask("admin", "GET", f"/v1/workloads/{job['id']}/wait?timeout=60")[1]["ended_at"]
    status, answer = house.ask("admin", "DELETE", "/v1/groups/reborn")
    assert (status, answer["message"]) == (409, f"Group reborn has workloads that have ended: old ({job['id']}).")
    assert answer["hint"] == "First penstock delete wk NAME -g reborn"
    assert house.ask("admin", "DELETE", f"/v1/workloads/{job['id']}")[0] == 200
    assert house.ask("admin", "DELETE", "/v1/groups/reborn")[0] == 200


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_for_others_takes_an_admin(house):
    """Whoever has it is them, so the right to make one would be the right to everything."""
    a_user(house, "clerk", [{"name": "pwm.all", "policy": {"Token": ["get", "apply", "delete"]}}])
    me = house.ask("admin", "GET", "/v1/whoami")[1]["user"]
    status, answer = house.ask("clerk", "POST", "/v1/tokens", {"user": me})
    assert (status, answer["message"]) == (403, "Only an admin may make or see tokens of others.")
    status, listed = house.ask("clerk", "GET", f"/v1/tokens?user={me}")
    assert status == 200
    assert house.ask("clerk", "POST", f"/v1/tokens/{listed['items'][0]['id']}/rotate")[0] == 404
    _, extra = house.ask("admin", "POST", "/v1/tokens", {})
    assert house.ask("clerk", "DELETE", f"/v1/tokens/{extra['id']}")[0] == 200


def test_a_token_that_ends_makes_none_that_ends_later(house):
    _, short = house.ask("admin", "POST", "/v1/tokens", {"expires": "1h"})
    _, endless = house.ask("admin", "POST", "/v1/tokens", {"user": "has"})
    house.tokens["short-lived"] = short["token"]
    _, theirs = house.ask("short-lived", "POST", "/v1/tokens", {"user": "has"})
    _, rotated = house.ask("short-lived", "POST", f"/v1/tokens/{endless['id']}/rotate")
    assert endless["expires_at"] is None
    assert theirs["expires_at"] == rotated["expires_at"] == short["expires_at"]


# -- those who are in ------------------------------------------------------------------------------------------------


@contextmanager
def listening(house: House, user: str, path: str) -> Iterator[Iterator[bytes]]:
    """The lines of an answer that goes on."""
    host, _, port = house.server.address.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {house.tokens[user]}\r\n\r\n".encode()
        )
        yield iter(line.makefile("rb"))


def chatter(house: House) -> str:
    _, job = house.ask("has", "POST", "/v1/workloads", {"text": "run: while sleep 0.1; do echo on; done\n"})
    until(house.server, job["id"], lambda found: found["state"] == "RUNNING")
    return str(job["id"])


def reads_on(lines: Iterator[bytes]) -> None:
    assert next(lines) == b"HTTP/1.1 200 OK\r\n"
    assert b"on\n" in lines


LOGS = ["/v1/workloads/{}/logs?follow=true", "/tasks/{}/logs"]


@pytest.mark.parametrize("path", LOGS)
def test_who_is_taken_out_of_the_group_reads_no_further(house, path):
    job = chatter(house)
    both = [*LAB, {"name": "other", "policy": "pwm.all"}]
    a_user(house, "mover", both)
    with listening(house, "mover", path.format(job)) as lines:
        reads_on(lines)
        house.ask("admin", "PUT", "/v1/users/mover", {"name": "mover", "groups": both[1:]})
        assert list(lines)[-1] == b"\r\n"
    house.ask("has", "POST", f"/v1/workloads/{job}/stop")


@pytest.mark.parametrize("path", LOGS)
def test_who_came_with_a_token_that_is_taken_back_reads_no_further(house, path):
    job = chatter(house)
    _, made = house.ask("has", "POST", "/v1/tokens", {})
    house.tokens["lent"] = made["token"]
    with listening(house, "lent", path.format(job)) as lines:
        reads_on(lines)
        assert house.ask("has", "DELETE", f"/v1/tokens/{made['id']}")[0] == 200
        assert list(lines)[-1] == b"\r\n"
    house.ask("has", "POST", f"/v1/workloads/{job}/stop")


def test_who_is_deactivated_while_they_wait_is_told_nothing(house):
    job = chatter(house)
    a_user(house, "waiter", LAB)
    answers: list[tuple[int, Any]] = []
    path = f"/v1/workloads/{job}/wait?timeout=5"
    waiting = threading.Thread(target=lambda: answers.append(house.ask("waiter", "GET", path)))
    waiting.start()
    assert house.ask("admin", "PUT", "/v1/users/waiter", {"name": "waiter", "groups": LAB, "active": False})[0] == 200
    waiting.join(60)
    [(status, answer)] = answers
    assert (status, answer["message"]) == (403, "waiter is deactivated.")
    house.ask("has", "POST", f"/v1/workloads/{job}/stop")


# -- the audit -------------------------------------------------------------------------------------------------------


def lines_of(house: House, user: str) -> list[tuple[str, str, str, str]]:
    _, listed = house.ask("admin", "GET", f"/v1/audit?user={user}")
    return [(each["verb"], each["kind"], each["name"], each["result"]) for each in listed["items"]]


def test_what_a_deactivated_user_tries_is_kept(house):
    a_user(house, "banned", LAB)
    house.ask("admin", "PUT", "/v1/users/banned", {"name": "banned", "groups": LAB, "active": False})
    assert house.ask("banned", "DELETE", "/v1/workloads/something")[0] == 403
    assert lines_of(house, "banned") == [("delete", "Workload", "something", "denied")]


def test_whose_token_was_taken_back_is_kept(house):
    a_user(house, "loser", LAB)
    _, made = house.ask("loser", "POST", "/v1/tokens", {})
    assert house.ask("loser", "DELETE", f"/v1/tokens/{made['id']}")[0] == 200
    assert lines_of(house, "loser")[0] == ("delete", "Token", "loser", "done")


def test_the_database_itself_keeps_the_audit_as_it_is(house):
    house.made("volumes")
    path = house.ask("admin", "GET", "/v1/server")[1]["data_dir"]
    with sqlite3.connect(f"{path}/penstock.db") as database:
        for deed in ("UPDATE audit SET user_name = 'nobody'", "DELETE FROM audit"):
            with pytest.raises(sqlite3.IntegrityError, match="the audit is only added to"):
                database.execute(deed)
    database.close()
