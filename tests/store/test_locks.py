"""GPUs and CPUs that one workload has and no other: rows that cannot be written twice."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Wants, Workload
from penstock.services.reconcile.records import UNPLACED
from penstock.store.connections import make_engine, parse_url
from penstock.store.database import Database
from penstock.store.session import DatabaseSession, Store
from tests.store.making import a_workload, run_until
from tests.store.release import RELEASED, RUNNING

GPUS = {"gpus": (("GPU-0", "GPU-1"), ("GPU-2",)), "hosts": ("dgx1", "dgx2")}


def place(tx: Store, workload: Workload, **given: Any) -> list[str]:
    """Those that have some of it; nobody, if it was placed."""
    holders = tx.locks.take(workload.model_copy(update=given))
    if not holders:
        moved = tx.workloads.move(workload, State.ASSIGNED, Reason.PLACED)
        tx.workloads.move(moved, State.LAUNCHING, Reason.PLACED, **given)
    return holders


async def audited(db: Database) -> list[tuple[str, str, str, str]]:
    entries, _ = await db.read(lambda tx: tx.audit.page())
    return sorted((entry.verb, entry.kind, entry.name, entry.id) for entry in entries)


async def test_what_one_has_no_other_gets_until_it_has_ended(db):
    one, two = a_workload("one"), a_workload("two")
    await db.write(lambda tx: (tx.workloads.add(one), tx.workloads.add(two)))
    assert await db.write(lambda tx: place(tx, one, **GPUS)) == []
    wanted = {"gpus": (("GPU-3", "GPU-2"),), "hosts": ("dgx2",)}
    assert await db.write(lambda tx: place(tx, two, **wanted)) == [one.id]

    def end(tx: Store) -> None:
        found = run_until(tx, tx.workloads.get(one.id), State.RUNNING)
        tx.workloads.move(found, State.EXITED, Reason.FINISHED, **UNPLACED)

    await db.write(end)
    assert await db.write(lambda tx: place(tx, two, **wanted)) == []


async def test_what_was_found_running_has_what_it_runs_with(db):
    found, other = a_workload("found", state=State.RUNNING, **GPUS), a_workload("other")
    await db.write(lambda tx: (tx.workloads.add(found), tx.workloads.add(other)))
    assert await db.write(lambda tx: place(tx, other, gpus=(("GPU-1",),), hosts=("dgx1",))) == [found.id]


async def test_the_same_device_of_another_node_is_another(db):
    one, two = a_workload("one"), a_workload("two")
    await db.write(lambda tx: (tx.workloads.add(one), tx.workloads.add(two)))
    assert await db.write(lambda tx: place(tx, one, gpus=(("GPU-0",),), hosts=("dgx1",))) == []
    assert await db.write(lambda tx: place(tx, two, gpus=(("GPU-0",),), hosts=("dgx2",))) == []


async def test_who_had_what_is_in_the_audit(db):
    workload = a_workload()
    await db.write(lambda tx: tx.workloads.add(workload))
    await db.write(lambda tx: place(tx, workload, gpus=(("GPU-0",),), cpusets=((4, 5),), hosts=("dgx1",)))
    taken = [("CPU", "dgx1/cpu 4"), ("CPU", "dgx1/cpu 5"), ("GPU", "dgx1/GPU-0")]
    assert await audited(db) == [("take", *each, workload.id) for each in taken]

    def put_back(tx: Store) -> None:
        tx.workloads.move(tx.workloads.get(workload.id), State.QUEUED, Reason.GIVEN_BACK, hosts=(), **UNPLACED)

    await db.write(put_back)
    assert await audited(db) == [(verb, *each, workload.id) for verb in ("give", "take") for each in taken]


async def test_stopping_one_does_not_give_back_what_it_still_uses(db):
    one, two = a_workload("one"), a_workload("two")
    await db.write(lambda tx: (tx.workloads.add(one), tx.workloads.add(two)))
    await db.write(lambda tx: place(tx, one, **GPUS))

    def stop(tx: Store) -> None:
        found = run_until(tx, tx.workloads.get(one.id), State.RUNNING)
        tx.workloads.move(found, State.REQUESTED_CANCEL, Reason.STOPPED_BY_USER, wants=Wants.STOP)

    await db.write(stop)
    assert await db.write(lambda tx: place(tx, two, **GPUS)) == [one.id]


async def test_two_servers_on_one_postgresql_never_give_one_gpu_to_two(postgresql):
    """Each on a connection of its own, without the lock that keeps a second server from working at all."""
    url = postgresql.new_schema()
    workloads = [a_workload(f"w{number}") for number in range(40)]
    async with await Database.open(url) as db:
        await db.write(lambda tx: [tx.workloads.add(workload) for workload in workloads])

    def give(mine: list[Workload]) -> list[str]:
        session = DatabaseSession(make_engine(parse_url(url), writes=False))
        placed = []
        for number, workload in enumerate(mine):
            given = {"gpus": ((f"GPU-{number}", f"GPU-{number + 1}"),)}
            [outcome], _ = session.write([lambda tx, w=workload, g=given: place(tx, w, **g)])
            placed += [workload.id] if outcome.value == [] else []
        session.close()
        return placed

    with ThreadPoolExecutor(2) as pool:
        placed = [id_ for found in pool.map(give, (workloads[:20], workloads[20:])) for id_ in found]
    async with await Database.open(url) as db:
        held = [await db.read(lambda tx, id_=id_: tx.workloads.get(id_)) for id_ in placed]
    given = [uuid for workload in held for rank in workload.gpus for uuid in rank]
    assert len(given) == len(set(given))
    assert 10 <= len(placed) <= 11


async def test_what_was_given_before_there_were_locks_is_locked(tmp_path):
    connection = sqlite3.connect(tmp_path / "before.db")
    connection.executescript((RELEASED / "0003.sqlite.sql").read_text())
    running = """UPDATE workloads SET doc = json_set(doc, '$.gpus', json('[["GPU-7"]]')) WHERE id = ?"""
    connection.execute(running, (RUNNING.id,))
    connection.commit()
    connection.close()
    other = a_workload("other")
    async with await Database.open(f"sqlite:///{tmp_path}/before.db") as db:
        await db.write(lambda tx: tx.workloads.add(other))
        assert await db.write(lambda tx: place(tx, other, gpus=(("GPU-7",),))) == [RUNNING.id]
