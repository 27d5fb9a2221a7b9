"""`top`, `inspect`, `port-forward` and `ssh-proxy` on a cluster, as a person uses them."""

from __future__ import annotations

import json
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import SECONDS, Program
from tests.cli.test_port_forward import HTTP, forwarding, listening, whole
from tests.e2e.kubernetes.house import House, house
from tests.engines.contract.inspect import ECHO
from tests.rig.cluster import Rig


@pytest.fixture(scope="module")
def home(rig: Rig) -> Iterator[House]:
    place = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    try:
        with house(rig, place) as made:
            yield made
    finally:
        shutil.rmtree(place)


@pytest.fixture
def penstock(home: House, tmp_path: Path) -> Iterator[Program]:
    program = Program(home.server.environ, tmp_path)
    yield program
    program.end()


@pytest.fixture(scope="module")
def echo(home: House) -> int:
    return listening(home.server, "echo", ECHO)


def test_a_page_of_a_pod_opens_in_a_browser(home: House, penstock: Program) -> None:
    port = listening(home.server, "site", HTTP)
    with forwarding(penstock, "site", f"0:{port}") as forward:
        address = f"http://127.0.0.1:{forward.ports[0]}"
        assert urllib.request.urlopen(f"{address}/", timeout=SECONDS).read() == b"hello\n"
        assert len(urllib.request.urlopen(f"{address}/blob", timeout=SECONDS).read()) == 3_000_000
        assert forward.said == []


def test_where_nothing_listens_that_is_said(penstock: Program, echo: int) -> None:
    done = penstock("ssh-proxy", "echo", "1")
    assert (done.code, done.out) == (6, "")
    assert "nothing of it listens on port 1" in done.err


def test_connections_that_break_in_the_cluster_end_and_the_next_ones_work(
    home: House, penstock: Program, echo: int
) -> None:
    with forwarding(penstock, "echo", f"0:{echo}") as forward:
        first = forward.connect()
        first.sendall(b"x")
        assert first.recv(1) == b"x"
        home.proxy.now(home.proxy.cut)
        assert whole(first) == b""
        forward.until_said("the connection to the program through")
        with forward.connect() as second:
            second.sendall(b"y")
            assert second.recv(1) == b"y"


def test_what_it_uses_and_what_the_cluster_knows_of_it_are_shown(home: House, penstock: Program, echo: int) -> None:
    shown = penstock("top", "echo")
    assert shown.code == 0, shown.err
    assert "echo.py" in shown.out
    found = json.loads(penstock("inspect", "echo").out)
    assert [pod["kind"] for pod in found["found"]["pods"]] == ["Pod"]
    nodes = json.loads(penstock("top", "node", "-o", "json").out)
    assert {node["name"] for node in nodes} == {node.name for node in home.rig.nodes}
    assert {node["memory_used_bytes"] for node in nodes} == {None}
    said = "what it does is not seen: the service account penstock/penstock-nodes is not there"
    assert all(node["message"].startswith(said) for node in nodes)
