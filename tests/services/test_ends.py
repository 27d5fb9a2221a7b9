"""How a part of a workload ended is written down once: what an engine says of it later changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Array, Spec, Unit, Workload
from penstock.services.reconcile import records
from penstock.store.database import Database
from penstock.store.session import Store
from tests.store.making import MOMENT, a_workload, run_until

BEGAN, OVER, LATER = (MOMENT + timedelta(minutes=number) for number in (1, 2, 3))
RUNS = Unit(index=1, rank=0, state=State.RUNNING, started_at=BEGAN)
DONE = Unit(index=0, rank=0, state=State.EXITED, reason=Reason.FINISHED, exit_code=0, started_at=BEGAN, ended_at=OVER)
LOST = DONE.model_copy(
    update={"state": State.CRASHED, "reason": Reason.NODE_LOST, "message": "Docker was restarted", "exit_code": None}
)
FAILED = RUNS.model_copy(update={"state": State.CRASHED, "reason": Reason.NODE_LOST, "ended_at": OVER})


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    db = await Database.open(f"sqlite:///{tmp_path}/penstock.db")
    yield db
    await db.close()


async def half_done(db: Database, first: Unit = DONE) -> Workload:
    """An array of two, whose first index has completed and whose second runs."""

    def write(tx: Store) -> Workload:
        workload = a_workload(spec=Spec(name="sweep", run="true", array=Array(count=2), requeue=1))
        tx.workloads.add(workload)
        placed = run_until(tx, workload, State.ASSIGNED, State.LAUNCHING)
        return records.write_running(tx, placed, (first, RUNS))

    return await db.write(write)


async def units(db: Database, workload: Workload) -> tuple[Unit, ...]:
    return await db.read(lambda tx: tx.workloads.units(workload.id))


async def test_an_index_that_completed_stays_so_while_the_others_run(db: Database) -> None:
    workload = await half_done(db)
    after = await db.write(lambda tx: records.write_progress(tx, workload, [LOST]))
    assert await units(db, workload) == (DONE, RUNS)
    assert after.progress is not None
    assert (after.progress.completed, after.progress.failed, after.progress.running) == (1, 0, 1)


async def test_an_index_that_completed_is_not_run_again_because_it_is_said_to_be_lost(db: Database) -> None:
    workload = await half_done(db)
    after = await db.write(lambda tx: records.write_end(tx, workload, None, (LOST, FAILED)))
    assert (after.state, after.attempt, after.indexes) == (State.QUEUED, 2, (1,))
    assert await units(db, workload) == (DONE, FAILED)


async def test_all_that_was_in_doubt_and_answers_again_keeps_its_ends(db: Database) -> None:
    workload = await half_done(db)
    doubted = await db.write(lambda tx: records.write_doubt(tx, workload, "its node does not answer"))
    runs_again = DONE.model_copy(update={"state": State.RUNNING, "reason": None, "exit_code": None, "ended_at": None})
    await db.write(lambda tx: records.write_running(tx, doubted, (runs_again, RUNS)))
    assert await units(db, workload) == (DONE, RUNS)


async def test_an_end_that_nobody_saw_is_replaced_by_one_that_someone_did(db: Database) -> None:
    unseen = DONE.model_copy(update={"state": State.CRASHED, "reason": Reason.OUTCOME_UNKNOWN, "exit_code": 1})
    workload = await half_done(db, unseen)
    await db.write(lambda tx: records.write_progress(tx, workload, [DONE]))
    assert await units(db, workload) == (DONE, RUNS)


async def test_what_the_engine_itself_has_begun_anew_since_is_another_matter(db: Database) -> None:
    """As a cluster does that took its place away and gives it another."""
    workload = await half_done(db)
    anew = DONE.model_copy(update={"state": State.RUNNING, "started_at": LATER, "ended_at": None})
    await db.write(lambda tx: records.write_progress(tx, workload, [anew]))
    assert await units(db, workload) == (anew, RUNS)


async def test_a_program_that_was_over_at_once_has_not_begun_anew(db: Database) -> None:
    """What is kept of a time is its milliseconds."""
    began = BEGAN + timedelta(microseconds=400)
    short = DONE.model_copy(update={"started_at": began, "ended_at": began + timedelta(microseconds=100)})
    workload = await half_done(db, short)
    kept = await units(db, workload)
    lost = LOST.model_copy(update={"started_at": short.started_at, "ended_at": short.ended_at})
    await db.write(lambda tx: records.write_progress(tx, workload, [lost]))
    assert await units(db, workload) == kept


async def test_the_containers_of_nodes_that_start_later_are_known_too(db: Database) -> None:
    first, second = (
        Unit(rank=rank, state=State.RUNNING, started_at=BEGAN, container=letter * 64)
        for rank, letter in enumerate("ab")
    )

    def begun(tx: Store) -> Workload:
        workload = a_workload(spec=Spec(name="ranks", run="true", nodes=2))
        tx.workloads.add(workload)
        return records.write_running(tx, run_until(tx, workload, State.ASSIGNED, State.LAUNCHING), (first,))

    workload = await db.write(begun)
    assert workload.containers == ("a" * 12,)
    after = await db.write(lambda tx: records.write_progress(tx, workload, [second]))
    assert after.containers == ("a" * 12, "b" * 12)


async def test_it_ended_when_its_last_unit_did_however_much_later_that_is_seen(db: Database) -> None:
    workload = await half_done(db)
    last = RUNS.model_copy(update={"state": State.EXITED, "reason": Reason.FINISHED, "exit_code": 0, "ended_at": LATER})
    after = await db.write(lambda tx: records.write_end(tx, workload, None, (DONE, last)))
    assert (after.state, after.started_at, after.ended_at) == (State.EXITED, BEGAN, LATER)
