"""What restarts a server that hangs, and leaves alone one that waits or has too much to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

from tests.postgresql import Cluster, postgresql
from tests.running import RunningServer, server_environ, start_server
from tests.server.test_exhaustion import dial
from tests.server.test_replicas import Standby

__all__ = ["postgresql"]


def asked(environ: dict[str, str]) -> tuple[int, str]:
    """As a liveness probe in a server's pod does it."""
    command = [sys.executable, "-m", "penstock.server.liveness"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_one_that_hangs_is_not_alive(module_server: RunningServer) -> None:
    assert asked(module_server.environ) == (0, "HTTP/1.1 200 OK\n")
    os.kill(module_server.process.pid, signal.SIGSTOP)
    try:
        code, said = asked(module_server.environ)
    finally:
        os.kill(module_server.process.pid, signal.SIGCONT)
    assert (code, said) == (1, f"no answer at {module_server.socket}: timed out\n")
    assert asked(module_server.environ)[0] == 0


def test_one_that_does_not_listen_yet_is_left_to_it(place) -> None:
    assert asked(server_environ(place)) == (0, "it does not listen yet\n")
    server = start_server(place)
    server.kill()
    assert server.socket.exists()
    assert asked(server.environ) == (0, "it does not listen yet\n")


def test_one_that_stands_by_is_left_to_it(place, postgresql: Cluster) -> None:
    url = postgresql.new_schema()
    first = start_server(place, database_url=url, replica="wait")
    (place / "second").mkdir()
    second = Standby(place / "second", url)
    try:
        second.until_it_says("standing by to take over")
        assert asked(second.environ) == (0, "it does not listen yet\n")
    finally:
        second.end()
        first.end()


def test_without_its_database_it_is_alive(place, postgresql: Cluster) -> None:
    server = start_server(place, database_url=postgresql.new_schema())
    postgresql.stop()
    try:
        assert server.request("GET", "/v1/workloads")[0] == 503
        assert asked(server.environ)[0] == 0
    finally:
        postgresql.start()
    server.end()


def test_however_many_strangers_there_are_it_is_alive(place) -> None:
    server = start_server(place, address_connections="5")
    with ExitStack() as stack:
        *_, last = [stack.enter_context(dial(server)) for _ in range(10)]
        assert last.recv(100).split()[1] == b"503"
        assert asked(server.environ)[0] == 0
    server.end()
