"""Workloads as they are kept: found, listed, moved and removed."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from penstock.domain.model import now
from penstock.domain.states import IllegalMove, Reason, State
from penstock.domain.summaries import WorkloadSummary
from penstock.domain.workloads import Notice, Spec, Unit, Wants
from penstock.errors import Conflict
from penstock.store.database import Database
from penstock.store.outbox import told
from tests.store.making import MOMENT, a_workload, end, run_until


async def test_a_workload_comes_back_as_it_went_in(db: Database):
    workload = a_workload(volume_ids={"/data": "abcdefgh"}, notices=("one",), gpus=(("GPU-1",),))
    await db.write(lambda tx: tx.workloads.add(workload))
    assert await db.read(lambda tx: tx.workloads.get(workload.id)) == workload


async def test_the_history_begins_with_the_submission(db: Database):
    workload = a_workload()
    await db.write(lambda tx: tx.workloads.add(workload, "from ann's laptop"))
    [line] = await db.read(lambda tx: tx.workloads.history(workload.id))
    assert (line.state, line.reason, line.message) == (State.INSERTED, Reason.SUBMITTED, "from ann's laptop")
    assert line.at == MOMENT


async def test_each_move_is_a_line_of_history_with_time_reason_and_sentence(db: Database):
    workload = a_workload()

    def live(tx):
        tx.workloads.add(workload)
        queued = tx.workloads.move(workload, State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, "2 of 4 GPUs are free")
        return end(tx, queued)

    ended = await db.write(live)
    history = await db.read(lambda tx: tx.workloads.history(workload.id))
    assert [line.state for line in history] == ["INSERTED", "QUEUED", "ASSIGNED", "LAUNCHING", "RUNNING", "EXITED"]
    assert history[1].message == "2 of 4 GPUs are free"
    assert history[1].reason is Reason.NO_AVAILABLE_RESOURCES
    assert [line.at for line in history] == sorted(line.at for line in history)
    assert ended.ended_at is not None
    assert (await db.read(lambda tx: tx.workloads.get(workload.id))).state is State.EXITED


async def test_a_move_that_changes_nothing_leaves_no_trace(db: Database):
    workload = a_workload()
    await db.write(lambda tx: tx.workloads.add(workload))
    waits = (State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, "no GPU is free")
    queued = await db.write(lambda tx: tx.workloads.move(workload, *waits))
    before = db.version
    assert await db.write(lambda tx: tx.workloads.move(queued, *waits)) == queued
    assert db.version == before
    assert len(await db.read(lambda tx: tx.workloads.history(workload.id))) == 2


async def test_a_field_may_change_without_a_line_of_history(db: Database):
    workload = a_workload()
    await db.write(lambda tx: tx.workloads.add(workload))
    queued = await db.write(lambda tx: tx.workloads.move(workload, State.QUEUED, Reason.NO_AVAILABLE_RESOURCES))
    await db.write(lambda tx: tx.workloads.move(queued, State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, attempt=2))
    assert len(await db.read(lambda tx: tx.workloads.history(workload.id))) == 2
    assert (await db.read(lambda tx: tx.workloads.get(workload.id))).attempt == 2


async def test_a_move_the_table_does_not_know_is_refused_and_nothing_is_kept(db: Database):
    workload = a_workload()
    await db.write(lambda tx: tx.workloads.add(workload))

    def wrong(tx):
        queued = tx.workloads.move(workload, State.QUEUED, Reason.NO_AVAILABLE_RESOURCES)
        tx.workloads.move(queued, State.DELETED, Reason.DELETED_BY_USER)

    with pytest.raises(IllegalMove):
        await db.write(wrong)
    assert (await db.read(lambda tx: tx.workloads.get(workload.id))).state is State.INSERTED


async def test_a_workload_changed_by_someone_else_is_not_overwritten(db: Database):
    workload = a_workload()
    await db.write(lambda tx: tx.workloads.add(workload))
    await db.write(lambda tx: tx.workloads.update(workload.model_copy(update={"wants": Wants.STOP})))
    with pytest.raises(Conflict, match=workload.id):
        await db.write(lambda tx: tx.workloads.move(workload, State.ASSIGNED, Reason.PLACED))
    kept = await db.read(lambda tx: tx.workloads.get(workload.id))
    assert (kept.state, kept.wants) == (State.INSERTED, Wants.STOP)
    await db.write(lambda tx: tx.workloads.move(kept, State.STOPPED, Reason.STOPPED_BY_USER))
    with pytest.raises(Conflict, match=workload.id):
        await db.write(lambda tx: tx.workloads.update(kept))


async def test_an_outcome_in_doubt_that_turns_out_to_run_is_active_again(db: Database):
    workload = a_workload(volume_ids={"/data": "abcdefgh"})

    def live(tx):
        tx.workloads.add(workload)
        lost = end(tx, workload, State.UNKNOWN)
        assert tx.workloads.active() == []
        assert tx.workloads.using("abcdefgh") == []
        return run_until(tx, lost, State.RUNNING)

    running = await db.write(live)
    assert await db.read(lambda tx: [w.id for w in tx.workloads.active()]) == [running.id]
    assert await db.read(lambda tx: [w.id for w in tx.workloads.using("abcdefgh")]) == [running.id]


async def test_a_message_with_bytes_no_database_takes_is_kept_readable(db: Database):
    workload = a_workload()
    await db.write(lambda tx: tx.workloads.add(workload))
    moved = await db.write(lambda tx: tx.workloads.move(workload, State.CRASHED, Reason.SETUP_FAILED, "a\0b \ud800"))
    history = await db.read(lambda tx: tx.workloads.history(workload.id))
    assert history[-1].message == moved.message == "a\N{REPLACEMENT CHARACTER}b ?"


async def test_by_name_the_active_ones_come_first_and_then_the_newest(db: Database):
    old, oldest_active, newest, gone = (a_workload() for _ in range(4))

    def live(tx):
        for workload in (oldest_active, old, newest, gone, a_workload(group="bob"), a_workload("other")):
            tx.workloads.add(workload)
        end(tx, old)
        end(tx, newest, State.CRASHED)
        run_until(tx, end(tx, gone), State.DELETED)

    await db.write(live)
    found = await db.read(lambda tx: tx.workloads.find("train", "ann"))
    assert [w.id for w in found] == [oldest_active.id, newest.id, old.id]
    assert len(await db.read(lambda tx: tx.workloads.find("train", None))) == 4


async def test_by_id_exactly_one_is_found_and_only_in_its_group(db: Database):
    workload = a_workload()
    await db.write(lambda tx: tx.workloads.add(workload))
    assert await db.read(lambda tx: tx.workloads.find(workload.id, "ann")) == [workload]
    assert await db.read(lambda tx: tx.workloads.find(workload.id, None)) == [workload]
    assert await db.read(lambda tx: tx.workloads.find(workload.id, "bob")) == []


async def test_text_that_can_be_no_name_finds_nothing(db: Database):
    for ref in ("\0", "a\0b", "\ud800", "x" * 1_000_000, "", "%s", "' OR 1=1 --"):
        assert await db.read(lambda tx, ref=ref: tx.workloads.find(ref, None)) == []
        assert await db.read(lambda tx, ref=ref: tx.workloads.get(ref)) is None
        assert await db.read(lambda tx, ref=ref: tx.workloads.page(("ann",), name=ref)) == ([], None)


async def test_active_waiting_and_deleted_ones_are_told_apart(db: Database):
    waiting, running, ended, deleted, queued = (a_workload(f"w{n}") for n in range(5))

    def live(tx):
        for workload in (waiting, running, ended, deleted, queued):
            tx.workloads.add(workload)
        run_until(tx, queued, State.QUEUED)
        run_until(tx, running, State.ASSIGNED, State.LAUNCHING, State.RUNNING)
        end(tx, ended)
        run_until(tx, end(tx, deleted), State.DELETED)

    await db.write(live)
    names = await db.read(
        lambda tx: [
            [w.name for w in found()] for found in (tx.workloads.active, tx.workloads.waiting, tx.workloads.deleted)
        ]
    )
    assert names == [["w0", "w1", "w4"], ["w0", "w4"], ["w3"]]


async def test_those_that_ended_long_ago_are_named_for_retention(db: Database):
    running, ended, deleted = (a_workload(f"w{n}") for n in range(3))

    def live(tx):
        for workload in (running, ended, deleted):
            tx.workloads.add(workload)
        end(tx, ended)
        run_until(tx, end(tx, deleted), State.DELETED)

    await db.write(live)
    assert await db.read(lambda tx: tx.workloads.ended_before(now() + timedelta(seconds=1))) == [ended.id]
    assert await db.read(lambda tx: tx.workloads.ended_before(now() - timedelta(hours=1))) == []


async def test_what_has_a_ttl_expires_that_long_after_its_end_and_not_while_it_goes_on(db: Database):
    spec = a_workload().spec
    short, long, forever, again = (
        a_workload(f"w{n}", spec=spec.model_copy(update={"ttl": ttl})) for n, ttl in enumerate((60, 3600, None, 60))
    )

    def live(tx):
        for workload in (short, long, forever, again):
            tx.workloads.add(workload)
            ended = end(tx, workload)
        tx.workloads.move(ended, State.QUEUED, Reason.RETRY, ended_at=None, attempt=2)
        return tx.workloads.next_expiry()

    soonest = await db.write(live)
    assert timedelta(seconds=50) < soonest - now() <= timedelta(seconds=60)
    assert await db.read(lambda tx: tx.workloads.expired(now())) == []
    assert await db.read(lambda tx: tx.workloads.expired(soonest)) == [short.id]
    assert await db.read(lambda tx: tx.workloads.expired(now() + timedelta(days=9999))) == [short.id, long.id]


async def test_an_ended_one_that_goes_on_uses_its_volumes_again(db: Database):
    workload = a_workload(volume_ids={"/data": "abcdefgh"})

    def live(tx):
        tx.workloads.add(workload)
        ended = end(tx, workload, State.CRASHED)
        return tx.workloads.move(ended, State.QUEUED, Reason.RETRY, "attempt 2 of 2", ended_at=None, attempt=2)

    again = await db.write(live)
    assert again.ended_at is None
    assert await db.read(lambda tx: [w.id for w in tx.workloads.using("abcdefgh")]) == [workload.id]
    history = await db.read(lambda tx: tx.workloads.history(workload.id))
    assert [line.state for line in history][-2:] == ["CRASHED", "QUEUED"]


async def test_what_a_workload_waits_for_is_met_when_it_completed_even_if_it_is_deleted_then(db: Database):
    done, failed, deleted_failed, running = (a_workload(f"w{n}") for n in range(4))
    after = tuple(w.id for w in (done, failed, deleted_failed, running))
    waiting = a_workload("waits", after_ids=after)

    def live(tx):
        for workload in (done, failed, deleted_failed, running, waiting):
            tx.workloads.add(workload)
        run_until(tx, end(tx, done), State.DELETED)
        end(tx, failed, State.CRASHED)
        run_until(tx, end(tx, deleted_failed, State.CRASHED), State.DELETED)
        for gone in (done, deleted_failed):
            tx.workloads.remove(gone.id)

    await db.write(live)
    unmet = await db.read(lambda tx: tx.workloads.unmet(waiting.id))
    assert {id_: w and w.state for id_, w in unmet.items()} == {
        failed.id: State.CRASHED,
        deleted_failed.id: None,
        running.id: State.INSERTED,
    }
    assert await db.read(lambda tx: tx.workloads.unmet(running.id)) == {}


async def test_a_removed_workload_takes_its_history_units_and_mounts_along(db: Database):
    workload = a_workload(volume_ids={"/data": "abcdefgh"})
    unit = Unit(rank=0, state=State.RUNNING)

    def live(tx):
        tx.workloads.add(workload)
        tx.workloads.set_units(workload.id, [unit])
        tx.workloads.remove(workload.id)
        found = tx.workloads
        return found.get(workload.id), found.history(workload.id), found.units(workload.id), found.using("abcdefgh")

    assert await db.write(live) == (None, (), (), [])


async def test_units_are_replaced_one_by_one_and_kept_per_attempt(db: Database):
    workload = a_workload()
    first = [Unit(rank=rank, state=State.RUNNING) for rank in (0, 1)]
    ended = Unit(rank=1, state=State.CRASHED, exit_code=3, ended_at=MOMENT)
    second = Unit(attempt=2, rank=0, state=State.RUNNING)

    def live(tx):
        tx.workloads.add(workload)
        tx.workloads.set_units(workload.id, first)
        tx.workloads.set_units(workload.id, [ended, second])
        tx.workloads.set_units(workload.id, [])

    await db.write(live)
    assert await db.read(lambda tx: tx.workloads.units(workload.id)) == (first[0], ended, second)
    assert await db.read(lambda tx: tx.workloads.units(workload.id, 1)) == (first[0], ended)


async def test_units_of_attempts_long_past_can_be_forgotten(db: Database):
    workload = a_workload()

    def live(tx):
        tx.workloads.add(workload)
        tx.workloads.set_units(workload.id, [Unit(attempt=n, rank=0, state=State.CRASHED) for n in (1, 2, 3)])
        tx.workloads.forget_units(workload.id, 3)

    await db.write(live)
    assert [unit.attempt for unit in await db.read(lambda tx: tx.workloads.units(workload.id))] == [3]


async def test_who_uses_a_volume_is_answered_until_they_have_ended(db: Database):
    user, other = a_workload(volume_ids={"/a": "abcdefgh", "/b": "abcdefgh"}), a_workload(volume_ids={"/a": "bcdefghi"})

    def add(tx):
        tx.workloads.add(user)
        tx.workloads.add(other)

    await db.write(add)
    assert await db.read(lambda tx: tx.workloads.using("abcdefgh")) == [user]
    await db.write(lambda tx: end(tx, user))
    assert await db.read(lambda tx: tx.workloads.using("abcdefgh")) == []


async def test_how_many_there_are_of_each_status(db: Database):
    workloads = [a_workload() for _ in range(4)]

    def live(tx):
        for workload in workloads:
            tx.workloads.add(workload)
        end(tx, workloads[0])
        run_until(tx, end(tx, workloads[1]), State.DELETED)

    await db.write(live)
    counted = await db.read(lambda tx: tx.workloads.counts())
    assert counted == {"pending": 2, "running": 0, "completed": 1, "failed": 0, "stopped": 0, "unknown": 0}


async def test_a_list_shows_the_summary_as_it_is_now(db: Database):
    workload = a_workload()
    await db.write(lambda tx: tx.workloads.add(workload))
    ended = await db.write(lambda tx: end(tx, workload))
    [row], following = await db.read(lambda tx: tx.workloads.page(("ann",)))
    assert row == (ended.id, ended.state, WorkloadSummary.of(ended).model_dump_json())
    assert following is None
    assert json.loads(row.summary)["status"] == "completed"


async def test_a_remark_changes_no_state_and_reaches_each_address_once(db: Database):
    to = (Notice(to="telegram:1", on=(State.RUNNING,)), Notice(to="telegram:1", on=(State.CRASHED,)))
    workload = a_workload(spec=Spec(name="train", run="true", notify=(*to, Notice(to="https://hook", on=()))))

    def live(tx):
        tx.workloads.add(workload)
        assigned = tx.workloads.move(workload, State.ASSIGNED, Reason.PLACED)
        tx.workloads.remark(assigned, Reason.GPUS_IDLE, "quiet", tell=False)
        return tx.workloads.remark(assigned, Reason.GPUS_IDLE, "its GPU does nothing", tell=True)

    remarked = await db.write(live)
    assert (remarked.state, remarked.reason, remarked.message) == ("ASSIGNED", "GPUS_IDLE", "its GPU does nothing")
    assert (await db.read(lambda tx: tx.workloads.get(workload.id))).message == "its GPU does nothing"
    history = await db.read(lambda tx: tx.workloads.history(workload.id))
    assert [line.message for line in history[-2:]] == ["quiet", "its GPU does nothing"]
    letters = await db.read(lambda tx: [tx.outbox.first(to) for to in tx.outbox.recipients()])
    assert [(letter.to, json.loads(letter.doc)["reason"]) for letter in letters] == [
        ("telegram:1", "GPUS_IDLE"),
        ("https://hook", "GPUS_IDLE"),
    ]


def test_neither_a_list_nor_a_webhook_repeats_the_value_of_a_secret():
    spec = Spec(run="a", envs={"LICENCE": "hunter2-long"}, secrets=("LICENCE",))
    said = "the engine could not set LICENCE=hunter2-long"
    workload = a_workload(spec=spec, message=said)
    for text in (WorkloadSummary.of(workload).model_dump_json(), told(workload, said)):
        assert "the engine could not set LICENCE=***" in text
        assert "hunter2" not in text
