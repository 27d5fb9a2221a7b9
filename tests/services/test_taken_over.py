"""Where the engine schedules: what it takes over, what it says, what it loses, and what it gives back."""

from __future__ import annotations

import asyncio

import pytest

from penstock.domain.states import Reason, State
from penstock.domain.users import Group, Limits, Membership, User
from penstock.engines.base import LogQuery, Run
from penstock.errors import Invalid
from penstock.wire.requests import NewVolume, Submission
from tests.services.scheduling import ADMIN, ANN, Kept, ended, running, submit, until


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
async def parts(place, kept):
    async with running(place, kept) as wired:
        yield wired


async def test_a_workload_is_taken_over_at_once_and_runs(parts, kept):
    made = await submit(parts, "run: echo hello\n")
    done = await ended(parts, made.id)
    assert (done.status, [str(change.state) for change in done.history]) == (
        "completed",
        ["INSERTED", "RUNNING", "EXITED"],
    )
    record = await parts.db.read(lambda tx: tx.workloads.get(made.id))
    assert record.launched == 1
    assert parts.engine.starts == [Run(made.id, 1)]
    assert kept.settled == {Run(made.id, 1): 24 * 3600}


async def test_what_it_waits_for_is_what_the_engine_says(parts, kept):
    kept.full = "no node has 2 free GPUs"
    made = await submit(parts, "run: 'true'\n")
    waits = await until(parts, made.id, lambda w: w.launched)
    assert (waits.state, waits.reason, waits.message) == (
        State.QUEUED,
        Reason.NO_AVAILABLE_RESOURCES,
        "no node has 2 free GPUs",
    )
    kept.full = "no node has 1 free GPU"
    parts.reconciler.touch(made.id)
    await until(parts, made.id, lambda w: w.message == "no node has 1 free GPU")
    before = parts.db.version
    parts.reconciler.touch(made.id)
    while parts.reconciler._steps:
        await asyncio.sleep(0.01)
    assert parts.db.version == before
    await parts.engine.make_room()
    assert (await ended(parts, made.id)).status == "completed"


async def test_one_that_waits_in_the_cluster_is_stopped_there(parts, kept):
    kept.full = "no room"
    made = await submit(parts, "run: 'true'\n")
    await until(parts, made.id, lambda w: w.launched)
    stopped = await parts.workloads.stop(ANN, made.id)
    assert stopped.state is State.REQUESTED_CANCEL
    done = await ended(parts, made.id)
    assert (done.status, done.reason) == ("stopped", "STOPPED_BY_USER")
    assert kept.waiting == {}


async def test_what_is_deleted_behind_our_back_is_seen_and_said(parts):
    made = await submit(parts, "run: sleep 60\n")
    await until(parts, made.id, lambda w: w.state is State.RUNNING)
    await parts.engine.remove(Run(made.id, 1))
    parts.reconciler.touch(made.id)
    done = await ended(parts, made.id)
    assert (done.status, done.reason, done.message) == (
        "failed",
        "DELETED_OUTSIDE",
        "Its Job was deleted in the cluster.",
    )
    assert [(unit.state, bool(unit.ended_at)) for unit in done.units] == [(State.CRASHED, True)]


async def test_while_the_cluster_does_not_answer_it_waits_says_so_and_then_starts(parts, kept):
    kept.away = "The API server does not answer."
    made = await submit(parts, "run: 'true'\n")
    waits = await until(parts, made.id, lambda w: w.reason is Reason.CLUSTER_UNREACHABLE)
    assert (waits.state, waits.message) == (State.QUEUED, "The API server does not answer.")
    kept.away = None
    assert (await ended(parts, made.id)).status == "completed"


async def test_a_retry_is_a_run_of_its_own_and_the_one_before_may_go(parts, kept):
    made = await submit(parts, "retries: 1\nrun: '[ $PENSTOCK_ATTEMPT = 2 ]'\n")
    done = await ended(parts, made.id)
    assert (done.status, done.attempt) == ("completed", 2)
    assert parts.engine.starts == [Run(made.id, 1), Run(made.id, 2)]
    assert kept.settled[Run(made.id, 1)] == 0
    assert kept.settled[Run(made.id, 2)] > 0


async def test_the_record_beside_a_run_is_the_workload_and_never_too_long(parts, kept):
    made = await submit(parts, "name: kept\nenvs: {WHO: me}\nrun: 'true'\n")
    await ended(parts, made.id)
    assert '"WHO":"me"' in kept.records[Run(made.id, 1)]
    with pytest.raises(Invalid) as refused:
        await submit(parts, "run: |\n  echo " + "x" * 132_000 + "\n")
    assert "is longer than 128 KiB" in refused.value.body()["detail"]


async def test_a_dry_run_says_that_the_cluster_decides(parts):
    asked = Submission.model_validate({"text": "run: 'true'\n", "dry_run": True})
    found = await parts.submit.text(ANN, asked)
    assert (found.fits_now, found.message) == (None, "The cluster decides when it starts.")


async def test_after_is_ours_and_nothing_reaches_the_cluster_before(parts, kept):
    kept.full = "no room"
    first = await submit(parts, "name: first\nrun: 'true'\n")
    second = await submit(parts, "after: first\nrun: 'true'\n")
    await until(parts, first.id, lambda w: w.launched)
    assert parts.engine.starts == [Run(first.id, 1)]
    await parts.engine.make_room()
    assert (await ended(parts, second.id)).status == "completed"
    assert parts.engine.starts == [Run(first.id, 1), Run(second.id, 1)]


async def test_a_restart_between_start_and_record_starts_nothing_twice(place, kept):
    async with running(place, kept) as parts:
        await parts.volumes.create(ANN, NewVolume(name="data", size="1Gi"))
        kept.full = "no room"
        made = await submit(parts, "volumes: {/d: data}\nrun: echo ran >> /d/log; wc -l < /d/log\n")
        await until(parts, made.id, lambda w: w.launched)

        def forget(tx):
            record = tx.workloads.get(made.id)
            tx.workloads.update(record.model_copy(update={"launched": 0}))

        await parts.db.write(forget)
    async with running(place, kept) as parts:
        again = await until(parts, made.id, lambda w: w.launched)
        assert again.message == "no room"
        await parts.engine.make_room()
        assert (await ended(parts, made.id)).status == "completed"
        printed = [data async for data in parts.engine.logs(Run(made.id), 0, LogQuery())]
        assert b"".join(printed) == b"1\n"


async def test_an_end_the_engine_was_not_told_of_is_told_by_the_next_server(place, kept):
    async with running(place, kept) as parts:
        made = await submit(parts, "run: 'true'\n")
        await ended(parts, made.id)
    kept.settled.clear()
    async with running(place, kept) as parts:
        while Run(made.id, 1) not in kept.settled:
            await asyncio.sleep(0)


async def test_of_one_that_fails_again_and_again_only_the_newest_attempts_are_kept(parts, kept, monkeypatch):
    monkeypatch.setattr("penstock.services.reconcile.records.KEPT", 3)
    monkeypatch.setattr("penstock.services.reconcile.reconciler.KEPT", 3)
    monkeypatch.setattr("penstock.domain.attempts.LONGEST_WAIT", 0)
    made = await submit(parts, "retries: 5\nrun: exit 1\n")
    done = await ended(parts, made.id)
    assert (done.attempt, [unit.attempt for unit in (*done.earlier, *done.units)]) == (6, [4, 5, 6])
    assert {run.attempt for run in kept.records} == {4, 5, 6}
    assert len([change for change in done.history if change.state is State.CRASHED]) == 6


async def test_a_volume_that_a_mount_would_make_counts_in_a_dry_run(parts):
    await parts.people.begin(ADMIN, "root")
    admin = parts.people.known(ADMIN)
    await parts.people.put_group(admin, Group(name="ann", limits=Limits(volume_bytes=2**30)))
    await parts.people.put_user(admin, User(name="ann", groups=(Membership(name="ann", policy="pwm.all"),)))
    text = "run: 'true'\nvolumes: {/a: {name: a, storage: pwm.all}, /b: {name: b, storage: pwm.all}}\n"
    for dry_run in (True, False):
        asked = Submission.model_validate({"text": text, "dry_run": dry_run, "source": "t.yaml"})
        with pytest.raises(Invalid) as refused:
            await parts.submit.text(parts.people.known(ANN), asked)
        [problem] = refused.value.problems
        assert (problem["field"], problem["where"]) == ("volumes./b", "t.yaml:2:44")
        assert problem["message"] == "group ann may have 1Gi in volumes: 1Gi are taken, this asks for 1Gi"
