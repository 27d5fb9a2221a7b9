"""The records are lost: an empty server finds every workload and volume again, with their true owners."""

from __future__ import annotations

import json

import pytest

from penstock.domain.states import State
from penstock.domain.volumes import Phase
from penstock.engines.base import Run
from penstock.wire.requests import NewToken, NewVolume
from tests.services.scheduling import ADMIN, ANN, Kept, ended, running, submit, until


@pytest.fixture
def kept() -> Kept:
    return Kept()


async def names(parts, caller=ANN) -> list[str]:
    items, _ = await parts.workloads.page(
        caller, everyone=False, name=None, states=None, statuses=None, limit=100, cursor=None
    )
    return [item.split('"name":"')[1].split('"')[0] for item in items]


async def test_everything_is_there_again_and_goes_on(place, kept):
    async with running(place, kept) as parts:
        await parts.volumes.create(ANN, NewVolume(name="data", size="1Gi"))
        done = await submit(parts, "name: finished\nvolumes: {/d: data}\nrun: echo 42 > /d/answer\n")
        await ended(parts, done.id)
        runs = await submit(parts, "name: runs\nrun: sleep 1; echo on\n")
        await until(parts, runs.id, lambda w: w.state is State.RUNNING)
        kept.full = "no room"
        waits = await submit(parts, "name: waits\nretries: 2\nrun: 'true'\n")
        await until(parts, waits.id, lambda w: w.launched)
    async with running(place, kept, "empty.db") as parts:
        assert await names(parts) == ["waits", "runs", "finished"]
        finished = await ended(parts, done.id)
        assert (finished.status, finished.user, finished.exit_code) == ("completed", "ann", 0)
        assert [str(change.reason) for change in finished.history][:2] == ["SUBMITTED", "ADOPTED"]
        assert (await ended(parts, runs.id)).status == "completed"
        found = await until(parts, waits.id, lambda w: w.message == "no room")
        assert found.spec.retries == 2
        volume = await parts.volumes.get(ANN, "data")
        assert (volume.status, volume.used_by) == (Phase.Bound, ())
        await parts.engine.make_room()
        assert (await ended(parts, waits.id)).status == "completed"
        assert parts.engine.starts == []
        again = await submit(parts, "name: reads\nvolumes: {/d: data}\nrun: grep 42 /d/answer\n")
        assert (await ended(parts, again.id)).status == "completed"


async def test_what_the_store_knows_is_left_alone(place, kept):
    async with running(place, kept) as parts:
        made = await submit(parts, "name: known\nrun: exit 3\n")
        await ended(parts, made.id)
    async with running(place, kept) as parts:
        done = await parts.workloads.get(ANN, made.id)
        assert (done.status, done.exit_code) == ("failed", 3)
        assert "ADOPTED" not in [change.reason for change in done.history]


async def test_what_is_being_removed_does_not_come_back(place, kept):
    """Its record went between the look at the engine and the look at the records."""
    async with running(place, kept) as parts:
        made = await submit(parts, "name: deleted\nrun: 'true'\n")
        await ended(parts, made.id)
    kept.going = {Run(made.id)}
    async with running(place, kept, "empty.db") as parts:
        assert await names(parts) == []


async def test_what_cannot_be_read_is_skipped_and_doctor_says_so(place, kept):
    async with running(place, kept) as parts:
        made = await submit(parts, "name: good\nrun: 'true'\n")
        await ended(parts, made.id)
    kept.unreadable = ("the Job jobs/xbadbadx: its record cannot be read", "the claim jobs/b: it is another's")
    async with running(place, kept, "empty.db") as parts:
        assert await names(parts) == ["good"]
        [check] = await parts.adoption.checks(ADMIN)
        assert (check.ok, check.required) == (False, False)
        assert check.detail.startswith("2 found in the cluster and not taken over: the Job jobs/xbadbadx: its record")
        [seen_by_others] = await parts.adoption.checks(ANN)
        assert "xbadbadx" not in seen_by_others.detail


async def test_one_that_the_store_cannot_take_keeps_no_other_from_being_found(place, kept):
    async with running(place, kept) as parts:
        made = await submit(parts, "name: good\nrun: 'true'\n")
        await ended(parts, made.id)
    odd = json.loads(kept.records[Run(made.id)]) | {"id": "abcdefgh", "attempt": 10**30}
    kept.records[Run("abcdefgh")] = json.dumps(odd)
    async with running(place, kept, "empty.db") as parts:
        assert await names(parts) == ["good"]
        [check] = await parts.adoption.checks(ADMIN)
        assert check.detail.startswith("1 found in the cluster and not taken over: good-abcdefgh: ")


async def test_a_volume_whose_name_is_taken_by_now_gets_its_id_into_its_name(place, kept):
    async with running(place, kept) as parts:
        old = await parts.volumes.create(ANN, NewVolume(name="data", size="1Gi"))
    lost, kept.volumes = kept.volumes, {}
    async with running(place, kept, "empty.db") as parts:
        new = await parts.volumes.create(ANN, NewVolume(name="data", size="2Gi"))
    kept.volumes |= lost
    async with running(place, kept, "empty.db") as parts:
        assert (await parts.volumes.get(ANN, "data")).id == new.id
        found = await parts.volumes.get(ANN, old.id)
        assert found.name == f"data-{old.id}"
        assert (found.object_name, found.status) == (old.object_name, Phase.Bound)


async def test_an_array_in_its_second_attempt_is_not_run_from_the_start(place, kept):
    async with running(place, kept) as parts:
        text = "array: 3\nretries: 1\nresources: {cpus: 0.1}\n"
        text += "run: '[ $JOB_COMPLETION_INDEX != 1 ] || { [ $PENSTOCK_ATTEMPT = 2 ] && sleep 1; }'\n"
        made = await submit(parts, text)
        await until(parts, made.id, lambda w: w.attempt == 2 and w.state is State.RUNNING)
    async with running(place, kept, "empty.db") as parts:
        done = await ended(parts, made.id)
        assert (done.status, done.array.completed) == ("completed", 3)


async def test_an_admin_gives_the_owner_a_token(place, kept):
    async with running(place, kept) as parts:
        token = await parts.tokens.create(ADMIN, NewToken(user="ann", description="", expires=None))
        holder = await parts.tokens.holder(token.token)
        assert (holder.user, holder.uid, holder.runs_server) == ("ann", None, False)


async def test_a_cluster_that_answers_only_later_is_adopted_then(place, kept):
    async with running(place, kept) as parts:
        kept.full = "no room"
        made = await submit(parts, "name: late\nrun: 'true'\n")
        await until(parts, made.id, lambda w: w.launched)
    kept.away = "The API server does not answer."
    async with running(place, kept, "empty.db") as parts:
        assert await names(parts) == []
        kept.away = None
        assert (await until(parts, made.id, lambda w: w.message == "no room")).name == "late"
