"""Reading, writing and waiting, as the rest of the server does it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.errors import NotFound, StartRefused, Unavailable
from penstock.store.database import READERS, Database
from tests.store.making import ACCOUNT, a_volume, a_workload


async def test_what_was_written_is_there_after_closing_and_opening_again(url: str):
    workload = a_workload()
    async with await Database.open(url) as db:
        await db.write(lambda tx: tx.workloads.add(workload))
    async with await Database.open(url) as db:
        assert await db.read(lambda tx: tx.workloads.get(workload.id)) == workload


async def test_an_error_goes_to_its_caller_and_undoes_only_what_that_caller_wrote(db: Database):
    kept, dropped, later = a_volume("kept"), a_volume("dropped"), a_volume("later")

    def fail(tx):
        tx.volumes.add(dropped, ACCOUNT)
        raise NotFound("no such thing")

    results = await asyncio.gather(
        db.write(lambda tx: tx.volumes.add(kept, ACCOUNT)),
        db.write(fail),
        db.write(lambda tx: tx.volumes.add(later, ACCOUNT)),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), NotFound, type(None)]
    found, _ = await db.read(lambda tx: tx.volumes.page(("ann",)))
    assert [volume.name for volume in found] == ["later", "kept"]


async def test_a_broken_rule_of_the_schema_undoes_only_its_own_write(db: Database):
    first = a_workload()
    results = await asyncio.gather(
        db.write(lambda tx: tx.workloads.add(first)),
        db.write(lambda tx: tx.workloads.add(first)),
        db.write(lambda tx: tx.workloads.add(a_workload())),
        return_exceptions=True,
    )
    assert results[0] is results[2] is None
    assert "unique" in str(results[1]).lower()
    assert len(await db.read(lambda tx: tx.workloads.active())) == 2


async def test_many_writes_share_a_commit(db: Database):
    hold, taken = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def block(tx):
        loop.call_soon_threadsafe(taken.set)
        hold.wait()
        tx.workloads.add(a_workload())

    before = db.version
    first = asyncio.create_task(db.write(block))
    await taken.wait()
    others = [asyncio.create_task(db.write(lambda tx: tx.workloads.add(a_workload()))) for _ in range(100)]
    await asyncio.sleep(0)
    hold.set()
    await asyncio.gather(first, *others)
    assert db.version == before + 2
    assert len(await db.read(lambda tx: tx.workloads.active())) == 101


async def test_a_reader_sees_one_moment_of_the_whole_database(db: Database):
    read_once, written = threading.Event(), threading.Event()

    def read_twice(tx):
        before = len(tx.workloads.active())
        read_once.set()
        assert written.wait(10)
        return before, len(tx.workloads.active())

    reading = asyncio.create_task(db.read(read_twice))
    await asyncio.to_thread(read_once.wait)
    await db.write(lambda tx: tx.workloads.add(a_workload()))
    written.set()
    assert await reading == (0, 0)
    assert len(await db.read(lambda tx: tx.workloads.active())) == 1


async def test_a_reader_cannot_write(db: Database):
    with pytest.raises(Exception, match=r"(?i)read-?only"):
        await db.read(lambda tx: tx.workloads.add(a_workload()))
    assert await db.read(lambda tx: tx.workloads.active()) == []


async def test_as_many_reads_as_there_are_readers_run_at_once(db: Database):
    together = threading.Barrier(READERS)
    await asyncio.gather(*(db.read(lambda tx: together.wait(10)) for _ in range(READERS)))


async def test_a_waiter_hears_of_a_change(db: Database):
    seen = db.version
    waiting = asyncio.create_task(db.changed(seen, 60))
    await asyncio.sleep(0)
    await db.write(lambda tx: tx.workloads.add(a_workload()))
    assert await waiting == db.version != seen


async def test_a_waiter_who_is_behind_does_not_wait(db: Database):
    assert await db.changed(db.version - 1, 60) == db.version


async def test_a_waiter_gives_up_after_its_time(db: Database):
    assert await db.changed(db.version, 0.01) == db.version


async def test_a_write_that_changed_nothing_wakes_nobody(db: Database):
    seen = db.version
    await db.write(lambda tx: tx.volumes.remove("abcdefgh"))
    with pytest.raises(NotFound):
        await db.write(raise_not_found)
    assert db.version == seen


def raise_not_found(tx):
    raise NotFound("no such thing")


async def test_a_thousand_waiters_all_hear_of_one_change(db: Database):
    waiting = [asyncio.create_task(db.changed(db.version, 60)) for _ in range(1000)]
    await asyncio.sleep(0)
    await db.write(lambda tx: tx.workloads.add(a_workload()))
    assert set(await asyncio.gather(*waiting)) == {db.version}


async def test_a_number_seen_before_a_restart_is_not_met_again(url: str):
    async with await Database.open(url) as db:
        seen = db.version
    async with await Database.open(url) as db:
        assert db.version != seen


async def test_a_write_given_up_while_it_waits_is_not_made(db: Database):
    hold, taken = threading.Event(), threading.Event()

    def block(tx):
        taken.set()
        hold.wait()

    first = asyncio.create_task(db.write(block))
    await asyncio.to_thread(taken.wait)
    given_up = asyncio.create_task(db.write(lambda tx: tx.workloads.add(a_workload())))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.sleep(0)
    hold.set()
    await first
    assert await db.write(lambda tx: tx.workloads.active()) == []


async def test_what_is_queued_when_closing_is_still_done_and_later_calls_are_refused(url: str):
    db = await Database.open(url)
    writes = [asyncio.create_task(db.write(lambda tx: tx.workloads.add(a_workload()))) for _ in range(10)]
    waiter = asyncio.create_task(db.changed(db.version, 60))
    await asyncio.sleep(0)
    await db.close()
    await asyncio.gather(*writes, waiter)
    with pytest.raises(Unavailable, match="stopping"):
        await db.read(lambda tx: tx.workloads.active())
    await db.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("store-")]


async def test_even_stop_iteration_reaches_its_caller(db: Database):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await db.read(lambda tx: next(iter([])))


async def test_a_fresh_database_does_not_cost_the_import_of_alembic(tmp_path: Path):
    program = (
        "import asyncio, sys\n"
        "from penstock.store.database import Database\n"
        f"asyncio.run(asyncio.wait_for(Database.open('sqlite:///{tmp_path}/p.db'), 10))\n"
        "print('alembic' in sys.modules, 'psycopg' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


async def test_sqlite_is_durable_and_private(tmp_path: Path):
    path = tmp_path / "new" / "penstock.db"
    async with await Database.open(f"sqlite:///{path}") as db:
        await db.write(lambda tx: tx.workloads.add(a_workload()))
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        pragmas = await db.write(lambda tx: [tx._cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in names])
        assert pragmas == ["wal", 2, 1, 10_000]
        assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    files = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert files == dict.fromkeys(("penstock.db", "penstock.db-shm", "penstock.db-wal"), 0o600)


@pytest.mark.parametrize(
    "address", ["nonsense", "mysql://x/y", "sqlite://", "sqlite:///:memory:", "sqlite+aiosqlite:///x"]
)
async def test_an_address_that_will_not_do_is_refused_with_examples(address: str):
    with pytest.raises(StartRefused) as refused:
        await Database.open(address)
    assert "sqlite:////" in (refused.value.hint or "")
