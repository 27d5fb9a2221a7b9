"""Two servers on one PostgreSQL database: one works, the other stands by and takes over; never both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgresql import Cluster, postgresql
from tests.running import RunningServer, StartFailed, _first_line, server_environ, start_server

__all__ = ["postgresql"]


class Standby:
    """A server that was started and may not be ready yet."""

    def __init__(self, place: Path, url: str) -> None:
        self.place = place
        self.environ = server_environ(place) | {"PENSTOCK_DATABASE_URL": url, "PENSTOCK_REPLICA": "wait"}
        self._hear, say = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.server"],
            env=self.environ | {"PENSTOCK_READY_FD": str(say)},
            pass_fds=[say],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        os.close(say)

    def until_it_says(self, words: str) -> str:
        """The line of its log that has them."""
        assert self.process.stderr
        for line in self.process.stderr:
            if words in line.decode():
                return line.decode()
        raise AssertionError(f"ended without saying '{words}'")

    def ready(self) -> RunningServer:
        answer = _first_line(self._hear)
        return RunningServer(self.process, self.place, Path(answer["socket"]), answer["address"], [], self.environ)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr
        self.process.stderr.close()
        os.close(self._hear)


@pytest.fixture
def places(place: Path) -> tuple[Path, Path]:
    made = (place / "one", place / "two")
    for each in made:
        each.mkdir(mode=0o711)
    return made


@pytest.fixture
def url(postgresql: Cluster) -> str:
    return postgresql.new_schema()


@pytest.fixture
def first(places: tuple[Path, Path], url: str) -> Iterator[RunningServer]:
    server = start_server(places[0], database_url=url, replica="wait")
    yield server
    server.kill()


@pytest.fixture
def second(places: tuple[Path, Path], url: str, first: RunningServer) -> Iterator[Standby]:
    standby = Standby(places[1], url)
    standby.until_it_says("standing by to take over")
    yield standby
    standby.end()


def test_the_second_stands_by_and_takes_over_when_the_first_is_killed(first: RunningServer, second: Standby):
    first.request("POST", "/v1/volumes", {"name": "kept", "size": "1Gi"})
    assert not (second.place / "data" / "penstock.sock").exists()
    first.kill()
    taken_over = second.ready()
    _, volumes = taken_over.request("GET", "/v1/volumes")
    assert [volume["name"] for volume in volumes["items"]] == ["kept"]
    assert taken_over.ended(taken_over.submit("run: echo on the second\n")["id"])["status"] == "completed"
    taken_over.end()


def test_with_one_disk_for_both_the_second_has_the_logs_too(first: RunningServer, url: str):
    done = first.submit("run: echo kept on the disk\n")["id"]
    first.ended(done)
    second = Standby(first.place, url)
    try:
        second.until_it_says("standing by to take over")
        first.kill()
        taken_over = second.ready()
        assert taken_over.request("GET", f"/v1/workloads/{done}/logs")[1] == "kept on the disk\n"
        taken_over.end()
    finally:
        second.end()


def test_a_first_that_is_stopped_in_order_is_followed_too(first: RunningServer, second: Standby):
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(30) == 0
    second.ready().end()


def test_one_that_loses_its_hold_on_the_database_ends_at_once(
    first: RunningServer, second: Standby, postgresql: Cluster
):
    with psycopg.connect(host=str(postgresql.directory), user="postgres", autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype='advisory' AND granted")
    assert first.process.wait(30) == 1
    assert "lost the hold on the database" in (first.place / "server.log").read_text()
    second.ready().end()


def test_a_standby_that_is_told_to_stop_stops(second: Standby):
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(30) == 0


def test_one_that_does_not_wait_is_refused_while_another_works(first: RunningServer, place: Path, url: str):
    with pytest.raises(StartFailed, match="in use by another server"):
        start_server(place, database_url=url)


def test_sqlite_is_for_one_server(place: Path):
    with pytest.raises(StartFailed, match="needs PostgreSQL"):
        start_server(place, replica="wait")
