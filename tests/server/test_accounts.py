"""A Unix account that is given away, on the machine or in a user's document, brings nothing of the old one."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import running
from tests.running import RunningServer, start_server
from tests.server.test_identity import speak_as

UID = 42_421
WRAPPER = """#!/bin/sh
exec unshare -m sh -c 'mount --bind {passwd} /etc/passwd && exec {python} "$@"' sh "$@"
"""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a server for everyone on the machine")


class Machine:
    """A system server that has a list of accounts of its own."""

    def __init__(self, server: RunningServer, passwd: Path) -> None:
        self.server = server
        self._passwd = passwd
        self._others = passwd.read_text()

    def give(self, name: str, uid: int = UID) -> None:
        """As `userdel` and `useradd` do it: the number goes to another name."""
        self._passwd.write_text(f"{self._others}{name}:x:{uid}:{uid}::/:/bin/sh\n")

    def ask(self, method: str, path: str, body: Any = None, uid: int = UID) -> tuple[int, Any]:
        status, text = speak_as(uid, self.server.socket, method, path, json.dumps(body) if body is not None else "")
        return status, json.loads(text)

    def name(self, not_any_more: str = "") -> str:
        """Who the server takes the account for; what it looked up a moment ago may be what it says first."""
        until = time.monotonic() + 20
        while (name := self.ask("GET", "/v1/whoami")[1]["user"]) == not_any_more and time.monotonic() < until:
            time.sleep(0.1)
        return str(name)


@pytest.fixture
def machine(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    passwd, wrapper = place / "passwd", place / "python"
    passwd.write_text(Path("/etc/passwd").read_text())
    passwd.chmod(0o644)
    wrapper.write_text(WRAPPER.format(passwd=passwd, python=sys.executable))
    wrapper.chmod(0o755)
    monkeypatch.setattr(running, "SERVER", (str(wrapper), *running.SERVER[1:]))
    server = start_server(place, {"MALLOC_ARENA_MAX": "2"}, mode="system")  # its own process, not a fork of this one
    yield Machine(server, passwd)
    server.end()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_number_that_another_account_has_by_now_is_that_accounts(machine):
    machine.give("alice")
    assert machine.name() == "alice"
    _, job = machine.ask("POST", "/v1/workloads", {"text": "name: hers\nrun: sleep 600\n"})
    _, token = machine.ask("POST", "/v1/tokens", {})
    hers = bearer(token["token"])
    assert machine.server.tcp("GET", "/v1/whoami", None, hers)[1]["uid"] == UID
    machine.give("bob")
    assert machine.name("alice") == "bob"
    assert machine.ask("GET", f"/v1/workloads/{job['id']}")[0] == 404
    assert machine.ask("GET", "/v1/tokens")[1]["items"] == []
    _, me = machine.server.tcp("GET", "/v1/whoami", None, hers)
    assert (me["user"], me["uid"]) == ("alice", None)
    status, answer = machine.server.tcp("POST", "/v1/workloads", {"text": "run: id -u\n"}, hers)
    assert (status, answer["code"]) == (403, "forbidden"), "it would run as bob's account"


@pytest.fixture
def admin(machine: Machine) -> dict[str, str]:
    status, first = machine.server.request("POST", "/v1/adm/init", {})
    assert status == 201, first
    return bearer(first["token"])


def written(machine: Machine, admin: dict[str, str], name: str, uid: int | None) -> tuple[int, Any]:
    said = f"\n  uid: {uid}" if uid else ""
    text = f"kind: Group\napiVersion: v1\nmetadata: {{name: {name}}}\n---\n"
    text += f"kind: User\napiVersion: v1\nmetadata: {{name: {name}}}\nspec:\n"
    text += f"  groups:\n  - {{name: {name}, policy: pwm.all}}\n  - {{name: pwm.resource, policy: pwm.all}}{said}\n"
    return machine.server.tcp("POST", "/v1/apply", {"text": text, "source": "a.yaml"}, admin)


def runs_as(machine: Machine, headers: dict[str, str]) -> str | int:
    """The account a job of theirs has, or the status of the refusal."""
    status, job = machine.server.tcp("POST", "/v1/workloads", {"text": "run: id -u\n"}, headers)
    if status != 201:
        return status
    machine.server.tcp("GET", f"/v1/workloads/{job['id']}/wait?timeout=60", None, headers)
    return str(machine.server.tcp("GET", f"/v1/workloads/{job['id']}/logs", None, headers)[1]).strip()


def test_an_account_in_a_users_document_is_theirs_as_long_as_it_stands_there(machine, admin):
    def result(name: str, uid: int | None) -> Any:
        status, answer = written(machine, admin, name, uid)
        return answer["results"][1]["result"] if status == 200 else answer["problems"][0]

    assert result("remote", UID) == "created"
    token = machine.server.tcp("POST", "/v1/tokens", {"user": "remote"}, admin)[1]["token"]
    second = machine.server.tcp("POST", "/v1/tokens", {}, bearer(token))[1]["token"]
    assert runs_as(machine, bearer(token)) == runs_as(machine, bearer(second)) == str(UID)
    taken = result("heir", UID)
    assert (taken["field"], taken["message"]) == ("spec.uid", f"{UID} is the account of user remote")
    assert result("remote", UID + 1) == "configured"
    assert [runs_as(machine, bearer(each)) for each in (token, second)] == [str(UID + 1)] * 2
    assert result("heir", UID) == "created"
    assert result("remote", None) == "configured"
    assert [runs_as(machine, bearer(each)) for each in (token, second)] == [403, 403]
    assert machine.server.tcp("DELETE", "/v1/users/heir", None, admin)[0] == 200
    assert result("remote", UID) == "configured"
    assert runs_as(machine, bearer(second)) == str(UID)
