"""The database's own room: when something else has filled the disk, and goes on, what is small is still written."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.domain.workloads import Workload
from penstock.errors import StorageFull
from penstock.store.database import Database
from tests.disks import KINDS, filled, small_disk
from tests.store.making import a_workload

MANY = 500


async def added(db: Database, number: int = 1) -> list[str]:
    made = [a_workload() for _ in range(number)]
    await asyncio.gather(*(db.write(lambda tx, each=each: tx.workloads.add(each)) for each in made))
    return [each.id for each in made]


async def add_without_end(db: Database) -> None:
    while True:
        await added(db, MANY)


async def kept(db: Database) -> list[str]:
    found: list[Workload] = await db.read(lambda tx: tx.workloads.active())
    return [each.id for each in found]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_disk_that_is_filled_for_good_does_not_keep_a_server_from_writing(place: Path, kind: str) -> None:
    with small_disk(place, kind, 200) as disk:
        url = f"sqlite:///{disk}/penstock.db"
        async with await Database.open(url) as db:
            ids = await added(db)
        with filled(disk):
            for _ in range(2):  # and the next server, too
                async with await Database.open(url) as db:
                    ids += await added(db, MANY)
                    assert await kept(db) == ids
        async with await Database.open(url) as db:
            assert await kept(db) == ids


async def test_a_server_that_was_killed_on_a_full_disk_has_all_it_answered(place: Path) -> None:
    with small_disk(place, "tmpfs", 200) as disk:
        url = f"sqlite:///{disk}/penstock.db"
        async with await Database.open(url) as db:
            ids = await added(db)
        with filled(disk):
            program = (
                "import asyncio, os\n"
                "from tests.store.test_reserve import Database, added\n"
                "async def main():\n"
                f"    db = await Database.open('{url}')\n"
                "    print(*await added(db, 100), flush=True)\n"
                "    os.kill(os.getpid(), 9)\n"
                "asyncio.run(main())\n"
            )
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
            async with await Database.open(url) as db:
                assert await kept(db) == ids + done.stdout.split()
                assert len(done.stdout.split()) == 100


async def test_what_is_too_much_for_its_room_keeps_nothing_else_from_being_written(place: Path) -> None:
    with small_disk(place, "tmpfs", 200) as disk:
        async with await Database.open(f"sqlite:///{disk}/penstock.db") as db:
            await added(db)
            with filled(disk):
                vast = a_workload(message="x" * (40 << 20))
                both = [db.write(lambda tx: tx.workloads.add(vast)), added(db, 20)]
                too_much, few = await asyncio.gather(*both, return_exceptions=True)
                assert isinstance(too_much, StorageFull)
                assert len(few) == 20
                await added(db, MANY)


async def test_its_room_is_taken_again_when_the_disk_has_some(place: Path) -> None:
    with small_disk(place, "tmpfs", 200) as disk:
        url = f"sqlite:///{disk}/penstock.db"
        async with await Database.open(url) as db:
            await added(db)
            with filled(disk), pytest.raises(StorageFull):
                await add_without_end(db)
            await added(db, 2)
            with filled(disk):
                await added(db, MANY)


async def test_others_may_read_and_write_the_database_meanwhile_and_find_it_whole_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "penstock.db"
    counted = "SELECT count(*) FROM workloads"
    async with await Database.open(f"sqlite:///{path}") as db:
        ids = await added(db, 3)
        with sqlite3.connect(path) as other:
            assert other.execute(counted).fetchone() == (3,)
            other.execute("DELETE FROM workloads WHERE id = ?", (ids[0],))
        other.close()
        assert await kept(db) == ids[1:]
    alone = tmp_path / "copied.db"
    alone.write_bytes(path.read_bytes())
    with sqlite3.connect(alone) as copy:
        assert copy.execute(counted).fetchone() == (2,)
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    copy.close()
    with sqlite3.connect(path) as whole:  # as the next version's server may find it, too
        assert whole.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    whole.close()
    for leftover in (f"{path}-wal", f"{path}-shm"):
        assert not os.path.exists(leftover)  # noqa: PTH110
    async with await Database.open(f"sqlite:///{path}") as db:
        assert await kept(db) == ids[1:]
