"""Below `min_free` the server takes no new work, says so, and goes on by itself when there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Program
from tests.running import RunningServer, start_server

ALL_OF_IT = "1000Ti"
SHORT = "below 1000Ti it takes no new work (min_free)"
WAITS = {"text": "name: waits\nresources: {cpus: 2}\nrun: echo ran\n"}
KEY = {"Idempotency-Key": "before"}


@pytest.fixture
def made(place: Path) -> dict[str, Any]:
    """A volume, a job that has ended, and one that waits for room; the server is gone."""
    server = start_server(place, cpus="2")
    assert server.request("POST", "/v1/volumes", {"name": "data", "size": "1Gi"})[0] == 201
    ended = server.submit("name: ended\nrun: echo kept > /volume/it\nvolumes: {/volume: data}\n")
    assert server.ended(ended["id"])["state"] == "EXITED"
    holds = server.submit("name: holds\nresources: {cpus: 1}\nrun: sleep 600\n")
    status, waits = server.request("POST", "/v1/workloads", WAITS, KEY)
    assert status == 201
    server.kill()
    return {"ended": ended["id"], "holds": holds["id"], "waits": waits["id"]}


@pytest.fixture
def short(place: Path, made: dict[str, Any]) -> Iterator[RunningServer]:
    server = start_server(place, cpus="2", min_free=ALL_OF_IT)
    yield server
    server.end()


def test_new_work_is_refused_whatever_it_is(short: RunningServer, made: dict[str, Any]) -> None:
    task = {"text": "run: 'true'\n"}
    asked = [
        ("/v1/workloads", task),
        ("/v1/workloads", task | {"dry_run": True}),
        ("/v1/workloads/ended/retry", {}),
        ("/v1/volumes", {"name": "more", "size": "1Gi"}),
        ("/v1/apply", {"text": "name: applied\nrun: 'true'\n"}),
    ]
    answers = [(path, *short.request("POST", path, body)) for path, body in asked]
    for path, status, answer in [*answers, ("an upload", *short.request("PUT", "/v1/uploads", {}))]:
        assert (status, answer["code"]) == (507, "storage_full"), (path, answer)
        assert SHORT in answer["message"]
    assert short.request("GET", "/v1/volumes/more")[0] == 404
    assert any("free in" in notice and SHORT in notice for notice in short.notices)


def test_what_was_made_before_is_answered_again(short: RunningServer, made: dict[str, Any]) -> None:
    status, answer = short.request("POST", "/v1/workloads", WAITS, KEY)
    assert (status, answer["id"]) == (201, made["waits"])


def test_what_waits_says_so_and_starts_when_there_is_room(
    short: RunningServer, made: dict[str, Any], place: Path
) -> None:
    short.request("POST", f"/v1/workloads/{made['holds']}/stop")
    assert short.ended(made["holds"])["state"] == "STOPPED"
    found = short.request("GET", f"/v1/workloads/{made['waits']}")[1]
    assert found["status"] == "pending"
    assert "has an almost full disk" in found["message"]
    assert SHORT in found["message"]
    short.kill()
    again = start_server(place, cpus="2")
    short.process, short.socket = again.process, again.socket
    ended = short.ended(made["waits"])
    assert (ended["state"], ended["attempt"]) == ("EXITED", 1)


def test_a_shell_on_a_volume_opens_all_the_same(short: RunningServer, tmp_path: Path) -> None:
    shown = Program(short.environ, tmp_path)("volumes", "shell", "data", "--", "cat", "it")
    assert shown.out == "kept\n", shown.err
