"""What was taken of the machines: counted with the moves, and kept."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from penstock.domain.model import now
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Array, Requests, Resources, Spec, Unit, Workload
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.store.usage import UsageTotals
from tests.store.making import MOMENT, a_workload, end, run_until

HOUR = 3_600_000
LONG_AGO = MOMENT - timedelta(days=365)


def with_gpus(name: str = "train", group: str = "ann", gpus: int = 2, **fields: Any) -> Workload:
    spec = Spec(name=name, run="true", resources=Resources(cpus_milli=4000, gpus=gpus), **fields)
    return a_workload(name, group, spec=spec)


def placed(tx: Store, workload: Workload) -> Workload:
    tx.workloads.add(workload)
    return run_until(tx, workload, State.ASSIGNED, State.LAUNCHING, State.RUNNING)


async def taken(
    db: Database, since: datetime = LONG_AGO, until: datetime | None = None, *groups: str
) -> list[UsageTotals]:
    return await db.read(lambda tx: tx.usage.taken(since, until or now(), groups or None))


async def when(db: Database, workload: Workload, state: State) -> datetime:
    lines = await db.read(lambda tx: tx.workloads.history(workload.id))
    return next(line.at for line in lines if line.state is state)


async def test_what_has_a_place_counts_from_then_on_and_up_to_now_while_it_runs(db: Database):
    workload = with_gpus()
    await db.write(lambda tx: placed(tx, workload))
    began = await when(db, workload, State.ASSIGNED)
    [found] = await taken(db, until=began + timedelta(hours=3))
    assert found[:5] == ("ann", "ann", 1, 2 * 3 * HOUR, 4000 * 3 * HOUR)
    assert found.peak_memory_bytes is None


async def test_what_waits_takes_nothing(db: Database):
    workload = with_gpus()
    await db.write(lambda tx: tx.workloads.add(workload))
    await db.write(lambda tx: run_until(tx, workload, State.QUEUED, State.REQUESTED_CANCEL, State.STOPPED))
    assert await taken(db, until=now() + timedelta(hours=1)) == []


async def test_what_ended_counts_until_then_even_when_nothing_else_of_it_is_left(db: Database):
    workload = with_gpus()

    def live(tx: Store) -> None:
        tx.workloads.add(workload)
        ended = end(tx, workload)
        tx.workloads.move(ended, State.DELETED, Reason.DELETED_BY_USER)

    await db.write(live)
    span = await when(db, workload, State.EXITED) - await when(db, workload, State.ASSIGNED)
    await db.write(lambda tx: tx.workloads.remove(workload.id))
    [found] = await taken(db, until=now() + timedelta(days=9))
    assert found.gpu_ms == 2 * span / timedelta(milliseconds=1)
    assert found.workloads == 1


async def test_only_what_lies_within_the_time_asked_for_counts(db: Database):
    workload = with_gpus()
    await db.write(lambda tx: placed(tx, workload))
    await db.write(lambda tx: tx.usage.saw(workload.id, 8 * HOUR, 4 * HOUR))
    began = await when(db, workload, State.ASSIGNED)
    [found] = await taken(db, began + timedelta(hours=3), began + timedelta(hours=4))
    assert (found.gpu_ms, found.seen_ms, found.busy_ms) == (2 * HOUR, 2 * HOUR, HOUR)
    await db.write(lambda tx: tx.workloads.move(tx.workloads.get(workload.id), State.EXITED, Reason.FINISHED))
    assert await taken(db, now() + timedelta(hours=1), now() + timedelta(hours=2)) == []


async def test_each_attempt_adds_to_what_the_ones_before_took(db: Database):
    workload = with_gpus()

    def live(tx: Store) -> None:
        failed = tx.workloads.move(placed(tx, workload), State.CRASHED, Reason.PROGRAM_FAILED)
        queued = tx.workloads.move(failed, State.QUEUED, Reason.RETRY, attempt=2, ended_at=None)
        run_until(tx, queued, State.ASSIGNED, State.RUNNING)

    await db.write(live)
    lines = await db.read(lambda tx: tx.workloads.history(workload.id))
    times = [line.at for line in lines if line.state in (State.ASSIGNED, State.CRASHED)]
    until = times[2] + timedelta(hours=1)
    [found] = await taken(db, until=until)
    assert found.workloads == 1
    assert found.gpu_ms == 2 * (HOUR + (times[1] - times[0]) / timedelta(milliseconds=1))


async def test_what_is_put_back_into_the_queue_takes_nothing_meanwhile(db: Database):
    workload = with_gpus()
    await db.write(lambda tx: tx.workloads.move(placed(tx, workload), State.QUEUED, Reason.GIVEN_BACK))
    [found] = await taken(db, until=now() + timedelta(hours=1))
    assert found.gpu_ms < HOUR


async def test_what_is_in_doubt_keeps_its_place_until_it_is_given_up(db: Database):
    workload = with_gpus()

    def live(tx: Store) -> None:
        tx.workloads.move(placed(tx, workload), State.UNKNOWN, Reason.NODE_LOST, ended_at=None)

    await db.write(live)
    began = await when(db, workload, State.ASSIGNED)
    assert [found.gpu_ms for found in await taken(db, until=began + timedelta(hours=2))] == [2 * 2 * HOUR]
    await db.write(lambda tx: tx.workloads.move(tx.workloads.get(workload.id), State.STUCK, Reason.NODE_LOST))
    [found] = await taken(db, until=began + timedelta(hours=2))
    assert found.gpu_ms < HOUR


async def test_what_was_in_doubt_and_is_there_had_its_place_all_the_time(db: Database):
    workload = with_gpus()

    def live(tx: Store) -> None:
        lost = tx.workloads.move(placed(tx, workload), State.UNKNOWN, Reason.NODE_LOST)
        tx.workloads.move(lost, State.RUNNING, Reason.STARTED, ended_at=None)

    await db.write(live)
    began = await when(db, workload, State.ASSIGNED)
    [found] = await taken(db, until=began + timedelta(hours=2))
    assert found.gpu_ms == 2 * 2 * HOUR


async def test_an_end_that_nobody_saw_counts_from_when_it_was(db: Database):
    """The server was away: the units say when."""
    workload = with_gpus()
    running = await db.write(lambda tx: placed(tx, workload))
    over = await when(db, workload, State.ASSIGNED)
    unit = Unit(rank=0, state=State.EXITED, started_at=over, ended_at=over, peak_memory_bytes=5 * 2**30)

    def finish(tx: Store) -> None:
        tx.workloads.set_units(workload.id, [unit])
        tx.workloads.move(running, State.EXITED, Reason.FINISHED)

    await db.write(finish)
    [found] = await taken(db, until=now() + timedelta(hours=1))
    assert (found.gpu_ms, found.peak_memory_bytes) == (0, 5 * 2**30)


async def test_what_began_and_ended_while_nobody_looked_counts_for_as_long_as_it_ran(db: Database):
    """A cluster starts things by itself: the first that is heard of it may be its end."""
    workload = with_gpus()
    began = now() - timedelta(hours=3)
    unit = Unit(rank=0, state=State.EXITED, started_at=began, ended_at=began + timedelta(hours=2))

    def live(tx: Store) -> None:
        tx.workloads.add(workload)
        tx.workloads.set_units(workload.id, [unit])
        running = tx.workloads.move(workload, State.RUNNING, Reason.STARTED, started_at=began)
        tx.workloads.move(running, State.EXITED, Reason.FINISHED)

    await db.write(live)
    [found] = await taken(db)
    assert found.gpu_ms == pytest.approx(2 * 2 * HOUR, abs=10)


async def test_time_is_not_counted_twice_when_places_are_taken_and_given_again(db: Database):
    workload = with_gpus()
    began = now() - timedelta(hours=1)

    def live(tx: Store) -> None:
        tx.workloads.add(workload)
        running = tx.workloads.move(workload, State.RUNNING, Reason.STARTED, started_at=began)
        queued = tx.workloads.move(running, State.QUEUED, Reason.IN_QUEUE)
        tx.workloads.move(queued, State.RUNNING, Reason.STARTED, "again")

    await db.write(live)
    [found] = await taken(db, until=began + timedelta(hours=2))
    assert found.gpu_ms == pytest.approx(2 * 2 * HOUR, abs=10_000)


async def test_of_several_nodes_each_counts_and_of_memory_the_most_that_one_used(db: Database):
    workload = with_gpus(gpus=1, nodes=3)
    running = await db.write(lambda tx: placed(tx, workload))
    began = await when(db, workload, State.ASSIGNED)
    [found] = await taken(db, until=began + timedelta(hours=1))
    assert found.gpu_ms == 3 * HOUR
    peaks = (2**30, 3 * 2**30, None)
    units = [Unit(rank=n, state=State.EXITED, peak_memory_bytes=peak) for n, peak in enumerate(peaks)]

    def finish(tx: Store) -> None:
        tx.workloads.set_units(workload.id, units)
        tx.workloads.move(running, State.EXITED, Reason.FINISHED)

    await db.write(finish)
    assert [found.peak_memory_bytes for found in await taken(db)] == [3 * 2**30]


async def test_an_array_counts_the_places_it_was_given(db: Database):
    workload = with_gpus(gpus=1, array=Array(count=100))

    def live(tx: Store) -> None:
        tx.workloads.add(workload)
        assigned = tx.workloads.move(workload, State.ASSIGNED, Reason.PLACED)
        tx.workloads.move(assigned, State.LAUNCHING, Reason.PLACED, gpus=(("GPU-1",), ("GPU-2",)))

    await db.write(live)
    began = await when(db, workload, State.ASSIGNED)
    [found] = await taken(db, until=began + timedelta(hours=1))
    assert found.gpu_ms == 2 * HOUR


async def test_of_an_array_that_a_cluster_starts_bit_by_bit_its_indexes_count(db: Database):
    workload = with_gpus(gpus=1, array=Array(count=100))
    running = await db.write(lambda tx: placed(tx, workload))
    began = await when(db, workload, State.ASSIGNED)
    first = Unit(rank=0, state=State.EXITED, started_at=began, ended_at=began + timedelta(minutes=30))
    second = Unit(rank=0, index=1, state=State.RUNNING, started_at=began + timedelta(minutes=30))
    await db.write(lambda tx: tx.workloads.set_units(workload.id, [first, second]))
    [found] = await taken(db, until=began + timedelta(hours=2))
    assert found.gpu_ms == 2 * HOUR
    over = second.model_copy(update={"state": State.EXITED, "ended_at": began + timedelta(hours=2)})

    def finish(tx: Store) -> None:
        tx.workloads.set_units(workload.id, [over])
        tx.workloads.move(running, State.EXITED, Reason.FINISHED, ended_at=began + timedelta(hours=4))

    await db.write(finish)
    [found] = await taken(db, until=began + timedelta(hours=9))
    assert found.gpu_ms == pytest.approx(2 * HOUR)


async def test_what_is_found_running_counts_from_when_it_began(db: Database):
    began = MOMENT - timedelta(hours=5)
    workload = with_gpus().model_copy(update={"state": State.RUNNING, "started_at": began})
    ended = {"state": State.EXITED, "started_at": began, "ended_at": began + timedelta(hours=1)}
    other = with_gpus(group="bob").model_copy(update=ended)
    await db.write(lambda tx: [tx.workloads.add(each) for each in (workload, other)])
    found = await taken(db, until=began + timedelta(hours=2))
    assert [(each.user, each.gpu_ms) for each in found] == [("ann", 4 * HOUR), ("bob", 2 * HOUR)]


async def test_what_a_place_must_have_free_is_what_is_reserved(db: Database):
    asked = Resources(cpus_milli=8000, requests=Requests(cpus_milli=500))
    workload = a_workload(spec=Spec(name="small", run="true", resources=asked))
    await db.write(lambda tx: placed(tx, workload))
    began = await when(db, workload, State.ASSIGNED)
    [found] = await taken(db, until=began + timedelta(hours=1))
    assert found.cpu_ms == 500 * HOUR


async def test_a_shell_on_a_volume_is_no_workload(db: Database):
    await db.write(lambda tx: placed(tx, with_gpus().model_copy(update={"session": True})))
    assert await taken(db, until=now() + timedelta(hours=1)) == []


async def test_users_are_told_apart_and_groups_are_not_shown_to_others(db: Database):
    mine, theirs = with_gpus(), with_gpus(group="vision")
    shared = with_gpus("other", "vision").model_copy(update={"user": "bob"})
    await db.write(lambda tx: [placed(tx, each) for each in (mine, theirs, shared)])
    until = now() + timedelta(hours=1)
    everyone = await taken(db, LONG_AGO, until)
    assert [each[:3] for each in everyone] == [("ann", "ann", 1), ("vision", "bob", 1), ("vision", "vision", 1)]
    assert [each[:2] for each in await taken(db, LONG_AGO, until, "ann")] == [("ann", "ann")]
    assert await db.read(lambda tx: tx.usage.taken(LONG_AGO, until, ())) == []


async def test_those_that_have_gpus_are_found(db: Database):
    first, second, without = with_gpus(), with_gpus(), a_workload()
    await db.write(lambda tx: [placed(tx, each) for each in (first, second, without)])
    assert await db.read(lambda tx: tx.usage.with_gpus()) == [first.id, second.id]
    await db.write(lambda tx: tx.workloads.move(tx.workloads.get(first.id), State.EXITED, Reason.FINISHED))
    assert await db.read(lambda tx: tx.usage.with_gpus()) == [second.id]
