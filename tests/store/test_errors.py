"""Full disks, read-only directories, a database that goes away: clear errors, and on it goes afterwards."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import psycopg.errors
import pytest

from penstock.errors import PenstockError, StartRefused, StorageFull, Unavailable
from penstock.store.connections import translated
from penstock.store.database import Database
from tests.postgresql import Cluster
from tests.store.making import a_workload

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def fill(file: Path) -> None:
    """Until nothing more fits."""
    with file.open("wb", buffering=0) as out, suppress(OSError):
        while True:
            out.write(bytes(4096))


async def add_without_end(db: Database, kept: list[str]) -> None:
    while True:
        workload = a_workload()
        await db.write(lambda tx, workload=workload: tx.workloads.add(workload))
        kept.append(workload.id)


@needs_root
async def test_a_full_disk_is_said_and_what_was_answered_before_is_still_there(small_disk: Path):
    kept: list[str] = []
    async with await Database.open(f"sqlite:///{small_disk}/penstock.db") as db:
        with pytest.raises(StorageFull, match="full") as full:
            await add_without_end(db, kept)
        assert full.value.status == 507
        found = await db.read(lambda tx: tx.workloads.active())
        assert [workload.id for workload in found] == kept


@needs_root
async def test_when_there_is_room_again_writing_goes_on(small_disk: Path):
    filler = small_disk / "filler"
    async with await Database.open(f"sqlite:///{small_disk}/penstock.db") as db:
        fill(filler)
        results = await asyncio.gather(
            *(db.write(lambda tx: tx.workloads.add(a_workload())) for _ in range(200)), return_exceptions=True
        )
        assert any(isinstance(result, StorageFull) for result in results)
        assert all(result is None or isinstance(result, StorageFull) for result in results)
        filler.unlink()
        await db.write(lambda tx: tx.workloads.add(a_workload()))
        assert len(await db.read(lambda tx: tx.workloads.active())) == results.count(None) + 1


@needs_root
async def test_no_room_for_even_an_empty_database_stops_the_start(small_disk: Path):
    fill(small_disk / "filler")
    with pytest.raises(StartRefused, match="full"):
        await Database.open(f"sqlite:///{small_disk}/penstock.db")


@needs_root
async def test_a_read_only_directory_stops_the_start(small_disk: Path):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StartRefused, match=r"penstock\.db cannot be written: Read-only file system"):
        await Database.open(f"sqlite:///{small_disk}/penstock.db")


@needs_root
async def test_a_database_on_a_disk_that_has_become_read_only_stops_the_start(small_disk: Path):
    async with await Database.open(f"sqlite:///{small_disk}/penstock.db"):
        pass
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StartRefused, match="Read-only"):
        await Database.open(f"sqlite:///{small_disk}/penstock.db")


async def test_a_file_that_is_no_database_stops_the_start(tmp_path: Path):
    (tmp_path / "penstock.db").write_text("a shopping list\n" * 100)
    with pytest.raises(StartRefused, match="not a database"):
        await Database.open(f"sqlite:///{tmp_path}/penstock.db")


async def test_another_program_that_holds_sqlite_is_waited_for_and_then_named(tmp_path: Path):
    path = tmp_path / "penstock.db"
    async with await Database.open(f"sqlite:///{path}") as db:
        await db.write(lambda tx: tx._cursor.execute("PRAGMA busy_timeout=10").fetchone())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked by another program"):
            await db.write(lambda tx: tx.workloads.add(a_workload()))
        assert await db.read(lambda tx: tx.workloads.active()) == []
        other.execute("ROLLBACK")
        other.close()
        await db.write(lambda tx: tx.workloads.add(a_workload()))


async def test_a_lost_connection_to_postgresql_is_said_and_mended(postgresql: Cluster):
    kill = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )
    async with await Database.open(postgresql.new_schema()) as db:
        await db.write(lambda tx: tx.workloads.add(a_workload()))

        def killed_while_writing(tx):
            tx.workloads.add(a_workload())
            postgresql.execute(kill)
            tx.workloads.add(a_workload())

        with pytest.raises(Unavailable, match="The database"):
            await db.write(killed_while_writing)
        await db.write(lambda tx: tx.workloads.add(a_workload()))
        assert len(await db.read(lambda tx: tx.workloads.active())) == 2


async def test_a_connection_lost_between_two_requests_is_not_even_noticed(postgresql: Cluster):
    kill = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )
    async with await Database.open(postgresql.new_schema()) as db:
        postgresql.execute(kill)
        await db.write(lambda tx: tx.workloads.add(a_workload()))
        assert len(await db.read(lambda tx: tx.workloads.active())) == 1


async def test_while_postgresql_is_down_requests_fail_clearly_and_afterwards_they_work(postgresql: Cluster):
    async with await Database.open(postgresql.new_schema()) as db:
        postgresql.stop()
        try:
            for _ in range(2):
                with pytest.raises(Unavailable, match="The database"):
                    await db.write(lambda tx: tx.workloads.add(a_workload()))
                with pytest.raises(Unavailable, match="The database"):
                    await db.read(lambda tx: tx.workloads.active())
        finally:
            postgresql.start()
        await db.write(lambda tx: tx.workloads.add(a_workload()))
        assert len(await db.read(lambda tx: tx.workloads.active())) == 1


async def test_a_second_server_on_one_postgresql_database_is_refused(postgresql: Cluster):
    url = postgresql.new_schema()
    async with await Database.open(url):
        with pytest.raises(StartRefused, match="in use by another server"):
            await Database.open(url)
    async with await Database.open(url):
        pass


async def test_a_postgresql_that_is_not_there_stops_the_start(tmp_path: Path):
    with pytest.raises(StartRefused, match="does not answer"):
        await Database.open(f"postgresql+psycopg://nobody@/none?host={tmp_path}")


PRIMARY = {
    "ERROR": 1, "INTERNAL": 2, "PERM": 3, "ABORT": 4, "BUSY": 5, "LOCKED": 6, "NOMEM": 7, "READONLY": 8,
    "INTERRUPT": 9, "IOERR": 10, "CORRUPT": 11, "NOTFOUND": 12, "FULL": 13, "CANTOPEN": 14, "PROTOCOL": 15,
    "EMPTY": 16, "SCHEMA": 17, "TOOBIG": 18, "CONSTRAINT": 19, "MISMATCH": 20, "MISUSE": 21, "NOLFS": 22,
    "AUTH": 23, "FORMAT": 24, "RANGE": 25, "NOTADB": 26,
}  # fmt: skip
DEFECTS = {"ERROR", "INTERNAL", "ABORT", "INTERRUPT", "NOTFOUND", "EMPTY", "SCHEMA", "TOOBIG", "CONSTRAINT"} | {
    "MISMATCH",
    "MISUSE",
    "NOLFS",
    "AUTH",
    "FORMAT",
    "RANGE",
}
"""What SQLite says when the fault is in our statement or our use of it."""


def test_everything_sqlite_can_say_is_either_of_the_disk_or_a_defect_of_ours():
    for name, number in PRIMARY.items():
        error = sqlite3.OperationalError("said")
        error.sqlite_errorcode = number
        ours = translated(error)
        assert isinstance(ours, PenstockError) == (name not in DEFECTS), name


def test_everything_postgresql_can_say_of_its_disk_or_connection_is_an_error_of_ours():
    known = {kind for kind in vars(psycopg.errors).values() if isinstance(getattr(kind, "sqlstate", None), str)}
    of_outside = {kind for kind in known if kind.sqlstate[:2] in ("08", "53", "57", "58", "XX")}
    assert len(of_outside) > 20
    for kind in of_outside:
        assert isinstance(translated(kind("said")), Unavailable | StorageFull), kind
    for kind in (psycopg.errors.UniqueViolation, psycopg.errors.SyntaxError, psycopg.errors.UndefinedTable):
        assert isinstance(translated(kind("said")), kind)


def test_what_the_database_said_is_kept_as_the_cause():
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
    ours = translated(error)
    assert isinstance(ours, Unavailable)
    assert ours.__cause__ is error
    assert "disk I/O error" in ours.message


async def test_a_missing_driver_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StartRefused, match="PostgreSQL is missing") as refused:
        await Database.open("postgresql://nobody@/none")
    assert "pip install '.[postgresql]'" in (refused.value.hint or "")
