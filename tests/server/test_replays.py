"""A request that is sent again under its idempotency key: the same caller, group and body, and what it made."""

from __future__ import annotations

import os
import subprocess
from typing import Any
from uuid import uuid4

import pytest

from tests.server.test_attempts import until
from tests.server.test_people import a_group, a_user
from tests.server.test_roles import House, house

__all__ = ["house"]

BOTH = [{"name": "lab", "policy": "pwm.all"}, {"name": "other", "policy": "pwm.all"}]
TASK = {"text": "name: once\nrun: 'true'\n"}
VOLUME = {"name": "once", "size": "1Mi"}


def sent(house: House, user: str, path: str, body: Any, key: str) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {house.tokens[user]}", "Idempotency-Key": key}
    return house.server.tcp("POST", path, body, headers)


def a_key() -> str:
    return uuid4().hex


@pytest.mark.parametrize(("path", "body"), [("/v1/workloads", TASK), ("/v1/volumes", VOLUME)])
def test_a_key_is_for_one_group(house, path, body):
    a_user(house, "both", BOTH)
    key, body = a_key(), {name: said.replace("once", f"of{a_key()[:8]}") for name, said in body.items()}
    status, first = sent(house, "both", f"{path}?group=lab", body, key)
    assert status == 201, first
    assert sent(house, "both", f"{path}?group=lab", body, key)[1]["id"] == first["id"]
    status, answer = sent(house, "both", f"{path}?group=other", body, key)
    assert (status, answer["message"]) == (409, "This Idempotency-Key was used for a different request.")


@pytest.mark.parametrize(("path", "body"), [("/v1/workloads", TASK), ("/v1/volumes", VOLUME)])
def test_a_key_gives_nothing_to_who_lost_the_right(house, path, body):
    a_user(house, "leaver", BOTH)
    key, body = a_key(), {name: said.replace("once", f"of{a_key()[:8]}") for name, said in body.items()}
    status, first = sent(house, "leaver", path, body, key)
    assert (status, first["group"]) == (201, "lab")
    house.ask("admin", "PUT", "/v1/users/leaver", {"name": "leaver", "groups": BOTH[1:]})
    status, answer = sent(house, "leaver", path, body, key)
    assert (status, first["id"] in str(answer)) == (409, False), answer
    status, answer = sent(house, "leaver", f"{path}?group=lab", body, key)
    assert (status, first["id"] in str(answer)) == (404, False), answer


def test_a_key_of_a_retry_gives_nothing_of_a_group_one_has_left(house):
    a_user(house, "retrier", BOTH)
    name, key = f"of{a_key()[:8]}", a_key()
    text = {"text": f"name: {name}\nrun: exit 3\n"}
    _, left = sent(house, "retrier", "/v1/workloads?group=lab", text, a_key())
    until(house.server, left["id"], lambda found: found["state"] == "CRASHED")
    assert sent(house, "retrier", f"/v1/workloads/{name}/retry", {}, key)[1]["id"] == left["id"]
    house.ask(
        "admin", "PUT", "/v1/users/retrier", {"name": "retrier", "groups": [BOTH[1], {"name": "lab", "policy": {}}]}
    )
    _, stays = sent(house, "retrier", "/v1/workloads?group=other", text, a_key())
    until(house.server, stays["id"], lambda found: found["state"] == "CRASHED")
    status, answer = sent(house, "retrier", f"/v1/workloads/{name}/retry", {}, key)
    assert (status in (404, 409), left["id"] in str(answer)) == (True, False), answer


@pytest.mark.parametrize(("path", "body"), [("/v1/workloads", TASK), ("/v1/volumes", VOLUME)])
def test_what_was_made_and_is_gone_is_not_made_again(house, path, body):
    key, body = a_key(), {name: said.replace("once", f"of{a_key()[:8]}") for name, said in body.items()}
    status, first = sent(house, "has", path, body, key)
    assert status == 201, first
    if path == "/v1/workloads":
        house.ask("has", "GET", f"/v1/workloads/{first['id']}/wait?timeout=60")
    assert house.ask("has", "DELETE", f"{path}/{first['id']}")[0] == 200
    for _ in range(2):
        status, answer = sent(house, "has", path, body, key)
        kind = "Workload" if path == "/v1/workloads" else "Volume"
        said = f"{kind} {first['id']}, which this Idempotency-Key made, no longer exists."
        assert (status, answer["message"]) == (409, said)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a full disk is mounted")
def test_a_volume_that_could_not_be_made_may_be_asked_for_again_under_its_key(house):
    volumes, key = house.server.place / "data" / "volumes", a_key()
    volumes.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "full", str(volumes)], check=True)
    body = {"name": f"of{a_key()[:8]}", "size": "1Mi"}
    status, answer = sent(house, "has", "/v1/volumes", body, key)
    subprocess.run(["umount", str(volumes)], check=True)
    assert (status, answer["code"]) == (507, "storage_full"), answer
    status, answer = sent(house, "has", "/v1/volumes", body, key)
    assert (status, answer["name"]) == (201, body["name"])


def test_a_user_of_the_same_name_later_has_nothing_of_the_keys_before(house):
    a_group(house, "twins")
    twins = [{"name": "twins", "policy": "pwm.all"}]
    a_user(house, "twin", twins)
    key = a_key()
    _, first = sent(house, "twin", "/v1/workloads", TASK, key)
    assert house.ask("admin", "DELETE", "/v1/users/twin")[0] == 200
    a_user(house, "twin", twins)
    status, second = sent(house, "twin", "/v1/workloads", TASK, key)
    assert (status, second["id"] == first["id"]) == (201, False)
