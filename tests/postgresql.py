"""A throw-away PostgreSQL cluster: Debian's programs, a Unix socket in a short directory, no port."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
OPTIONS = "-c listen_addresses='' -c fsync=off -c full_page_writes=off -c shared_buffers=16MB -c max_connections=50"


class Cluster:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._made = 0

    def new_database(self) -> str:
        """The address of an empty one."""
        self._made += 1
        self.execute(f"CREATE DATABASE test{self._made}")
        return self._url(f"test{self._made}")

    def new_schema(self) -> str:
        """The address of an empty corner of one, which is faster to make."""
        self._made += 1
        self.execute(f"CREATE SCHEMA test{self._made}")
        return f"{self._url('postgres')}&options=-csearch_path%3Dtest{self._made}"

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self.directory}"

    def execute(self, statement: str) -> None:
        with psycopg.connect(host=str(self.directory), user="postgres", autocommit=True) as connection:
            connection.execute(statement)

    def dump(self, url: str, *options: str) -> str:
        """The database as SQL, without what differs from one dump to the next."""
        text = self._run("pg_dump", "--no-owner", *options, "-d", _for_programs(url))
        return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("--", "\\", "\n")))

    def load(self, url: str, file: Path) -> None:
        self._run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", _for_programs(url), text=file.read_text())

    def start(self) -> None:
        log = self.directory / "log"
        self._run("pg_ctl", "start", "--wait", "-D", self._data, "-l", log, "-o", f"{OPTIONS} -k {self.directory}")

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "--wait", "-D", self._data, "-m", "immediate")

    def initialise(self) -> None:
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _run(self, program: str, *arguments: str | Path, text: str = "") -> str:
        account = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            # Files, not pipes: the server that pg_ctl starts would keep a pipe open.
            done = subprocess.run(
                [PROGRAMS / program, *arguments], cwd="/", input=text, stdout=out, stderr=err, text=True, **account
            )
            out.seek(0), err.seek(0)
            assert done.returncode == 0, err.read()
            return out.read()


def _for_programs(url: str) -> str:
    return url.replace("+psycopg", "")


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    directory = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(directory, "postgres", "postgres")
    cluster = Cluster(directory)
    try:
        cluster.initialise()
        cluster.start()
        yield cluster
    finally:
        if (directory / "data" / "postmaster.pid").exists():
            cluster.stop()
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Cluster]:
    if not (PROGRAMS / "initdb").exists():
        pytest.skip("PostgreSQL 15 binaries are missing: apt-get install -y postgresql-15")
    with running_cluster() as cluster:
        yield cluster
