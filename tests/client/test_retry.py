"""Waiting for a server that went away."""

from __future__ import annotations

import socket
from pathlib import Path
from time import monotonic

import pytest

from penstock.client.api import Client
from penstock.client.retry import AWAY, ServerWait
from penstock.errors import NotFound, Unreachable
from tests.client.test_http import hangs_up, ok, peer, says


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_it_asks_until_there_is_an_answer_and_says_so_once():
    said: list[str] = []
    gone = says(b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>")
    with peer(
        hangs_up, hangs_up, gone, hangs_up, ok(b'{"a": 1}'), hangs_up, ok(b"{}"), *[hangs_up] * 2, ok(b"[]")
    ) as it:
        client = Client(it.url)
        patience = ServerWait(client, said.append)
        assert patience.ask(lambda: client.get("/x")) == {"a": 1}
        assert (said, patience.absences) == ([AWAY], 1)
        assert patience.ask(lambda: client.get("/x")) == {}
        assert (said, patience.absences) == ([AWAY], 1)
        assert patience.ask(lambda: client.get("/x")) == []
        assert (said, patience.absences) == ([AWAY, AWAY], 2)


def test_an_error_of_the_server_is_an_answer():
    body = b'{"code":"not_found","message":"Task x not found"}'
    with peer(says(b"HTTP/1.1 404 x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))) as server:
        client = Client(server.url)
        with pytest.raises(NotFound):
            ServerWait(client, pytest.fail).ask(lambda: client.get("/x"))


def test_it_gives_up_in_the_end():
    said: list[str] = []
    client = Client("http://127.0.0.1:1")
    with pytest.raises(Unreachable, match=r"The server did not come back within 0s: No server answers at ") as caught:
        ServerWait(client, said.append, seconds=0.1).ask(lambda: client.get("/x"))
    assert said == [AWAY]
    assert caught.value.hint
    assert caught.value.hint.startswith("the jobs go on; ")


def test_it_waits_no_longer_than_whoever_asks():
    client = Client("http://127.0.0.1:1")
    with pytest.raises(Unreachable, match="The server did not come back within 0s"):
        ServerWait(client, lambda _: None).ask(lambda: client.get("/x"), until=monotonic())


def listener(path: Path) -> socket.socket:
    path.parent.mkdir(exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return listening


@pytest.fixture
def sockets(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("PENSTOCK_SYSTEM_SOCKET", str(place / "system.sock"))
    monkeypatch.setenv("PENSTOCK_DATA_DIR", str(place))
    return place / "system.sock", place / "penstock.sock"


def test_a_machines_server_that_is_down_is_told_and_no_other_takes_its_place(sockets):
    system, mine = sockets
    listener(system).close()
    with listener(mine), pytest.raises(Unreachable, match=r"The machine's server is down\.") as caught:
        Client(start=pytest.fail).get("/x")
    assert caught.value.hint == (
        f"sudo penstock server start --system (if it is gone for good: sudo rm {system}; "
        "for a server of your own beside it: export PENSTOCK_MODE=user)"
    )


def test_the_server_waited_for_is_the_one_that_answered(sockets):
    system, mine = sockets
    client = Client(start=pytest.fail)
    with listener(system) as first:
        client._connect().close()
        first.accept()[0].close()
    system.unlink()
    client.stay()
    with listener(mine), pytest.raises(Unreachable, match="No server is running"):
        client.get("/x")
