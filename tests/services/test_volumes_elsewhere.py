"""Volumes of an engine that binds when it likes, may be away, and has claims that are not ours."""

from __future__ import annotations

import asyncio

import pytest

from penstock.dialects.task.read import read_task
from penstock.domain.users import Caller, Proof
from penstock.domain.volumes import Phase, Storage, StorageKind
from penstock.errors import InUse, Invalid, NotFound
from penstock.services.workloads.references import _not_theirs_to_write, literal
from penstock.wire.requests import NewVolume
from tests.services.scheduling import ADMIN, ANN, Kept, a_literal, ended, running, submit

BOB = Caller(user="bob", proof=Proof.token)
LATER = "binds when first used"


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
async def parts(place, kept):
    async with running(place, kept) as wired:
        yield wired


def asked(name: str = "data") -> NewVolume:
    return NewVolume(name=name, size="1Gi")


async def test_one_that_binds_when_first_used_is_pending_and_says_so(parts, kept):
    kept.pending = LATER
    made = await parts.volumes.create(ANN, asked())
    assert (made.status, made.message) == (Phase.Pending, LATER)
    [listed], _ = await parts.volumes.page(ANN, phases=[Phase.Pending], limit=10, cursor=None)
    assert listed.message == LATER
    job = await submit(parts, "volumes: {/d: data}\nrun: touch /d/x\n")
    kept.pending = None
    assert (await ended(parts, job.id)).status == "completed"
    assert (await parts.volumes.get(ANN, "data")).status is Phase.Bound


async def test_while_the_cluster_does_not_answer_it_is_kept_and_made_later(parts, kept):
    kept.away = "The API server does not answer."
    made = await parts.volumes.create(ANN, asked())
    assert (made.status, made.message) == (
        Phase.Pending,
        "it is made as soon as that works: The API server does not answer.",
    )
    assert kept.volumes == {}
    kept.away = None
    while (await parts.volumes.get(ANN, "data")).status is not Phase.Bound:
        await parts.db.changed(parts.db.version, 5)
    assert list(kept.volumes) == [made.id]


async def test_a_server_that_ended_before_it_was_made_leaves_that_to_the_next(place, kept):
    async with running(place, kept) as parts:
        kept.away = "The API server does not answer."
        made = await parts.volumes.create(ANN, asked())
    kept.away = None
    async with running(place, kept) as parts:
        assert (await parts.volumes.get(ANN, made.id)).status is Phase.Bound


async def test_one_that_others_use_is_not_deleted_and_they_are_named(parts, kept):
    await parts.volumes.create(ANN, asked())
    kept.users["data"] = ["pod team-a/notebook-0"]
    with pytest.raises(InUse, match="in use by pod team-a/notebook-0"):
        await parts.volumes.delete(ANN, "data")
    assert (await parts.volumes.get(ANN, "data")).status is Phase.Bound
    kept.users.clear()
    await parts.volumes.delete(ANN, "data")


async def test_a_claim_that_is_not_ours_is_mounted_by_its_own_name(parts, kept, place):
    kept.literals["team.dataset"] = a_literal("team.dataset")
    data = place / "data" / "volumes" / "team.dataset"
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o755)
    (data / "file").write_text("theirs")
    job = await submit(parts, "volumes: {/d: team.dataset}\nrun: grep theirs /d/file\n")
    assert [(mount.volume, mount.id) for mount in job.volumes] == [("team.dataset", "claim/team.dataset")]
    assert (await ended(parts, job.id)).status == "completed"


async def test_a_claim_that_was_given_to_nobody_is_for_admins_alone(parts, kept, place):
    kept.literals["prod-db"] = a_literal("prod-db", group="")
    (place / "data" / "volumes" / "prod-db").mkdir(parents=True, exist_ok=True)
    for mount in ("prod-db", "prod-db:ro"):
        with pytest.raises(Invalid) as refused:
            await submit(parts, f"volumes: {{/d: '{mount}'}}\nrun: touch /d/x\n")
        assert "Volume prod-db not found" in refused.value.body()["detail"]
    with pytest.raises(NotFound):
        async with parts.sessions.holding(ANN, "prod-db"):
            pass
    assert await literal(parts.db, parts.engine, ADMIN, "prod-db")


async def test_one_that_was_found_again_under_another_name_is_still_its_groups(parts, kept, place):
    """It has a claim of another name, as a cluster's own claims have."""
    made = await parts.volumes.create(BOB, asked("secret"))
    found = await parts.db.read(lambda tx: tx.volumes.get(made.id))
    renamed = found.model_copy(update={"name": f"secret-{found.id}", "claim": found.object_name})
    task = read_task("volumes: {/d: x}\nrun: 'true'\n", "task.yaml")
    [problem] = _not_theirs_to_write(ANN, task, {"/d": renamed})
    assert "where you may not write to volumes" in str(problem)


async def test_one_that_vanished_before_the_start_is_said(parts, kept):
    kept.literals["gone-soon"] = a_literal("gone-soon")
    first = await submit(parts, "name: first\nrun: sleep 1\n")
    job = await submit(parts, "after: first\nvolumes: {/d: gone-soon}\nrun: 'true'\n")
    kept.literals.clear()
    await ended(parts, first.id)
    done = await ended(parts, job.id)
    assert (done.status, done.message) == ("failed", "the volume at /d is gone")


async def test_another_users_volume_is_not_found_by_its_literal_name_either(parts, kept):
    theirs = await parts.volumes.create(BOB, asked("secret"))
    kept.literals[theirs.object_name] = a_literal(theirs.object_name)
    with pytest.raises(Invalid) as refused:
        await submit(parts, f"volumes: {{/d: {theirs.object_name}}}\nrun: 'true'\n")
    assert f"Volume {theirs.object_name} not found" in refused.value.body()["detail"]
    with pytest.raises(NotFound):
        async with parts.sessions.holding(ANN, theirs.object_name):
            pass


async def test_many_made_at_once_while_nothing_answers_are_all_made(parts, kept):
    kept.away = "throttled"
    made = await asyncio.gather(*(parts.volumes.create(ANN, asked(f"v{n}")) for n in range(5)))
    kept.away = None
    for view in made:
        while (await parts.volumes.get(ANN, view.id)).status is not Phase.Bound:
            await parts.db.changed(parts.db.version, 5)


async def test_while_nothing_answers_a_list_shows_what_was_last_known(parts, kept):
    await parts.volumes.create(ANN, asked())
    kept.away = "The API server does not answer."
    [listed], _ = await parts.volumes.page(ANN, limit=10, cursor=None)
    assert (listed.status, listed.message) == (
        Phase.Bound,
        "as it was last known: The API server does not answer.",
    )
    job = await submit(parts, "volumes: {/d: data}\nrun: 'true'\n")
    kept.away = None
    assert (await ended(parts, job.id)).status == "completed"


FRESH = "volumes: {{/d: {{name: {}, storage: pwm.all}}}}\nrun: touch /d/x\n"


async def test_one_that_nobody_made_is_a_claim_of_the_default_class(parts, kept):
    made = await submit(parts, FRESH.format("brandnew"))
    assert (await ended(parts, made.id)).status == "completed"
    [(volume, _)] = kept.volumes.values()
    assert (volume.name, volume.storage_class, volume.storage, volume.size) == ("brandnew", "standard", None, "1Gi")


async def test_but_a_claim_of_that_name_is_taken_first(parts, kept, place):
    kept.literals["dataset"] = a_literal("dataset")
    data = place / "data" / "volumes" / "dataset"
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o777)
    made = await submit(parts, FRESH.format("dataset"))
    assert (await ended(parts, made.id)).status == "completed"
    assert (data / "x").exists()
    assert kept.volumes == {}


async def test_a_cluster_has_no_directory_of_an_nfs_storage(parts, kept):
    def wished(**more: str) -> NewVolume:
        return NewVolume.model_validate({"name": "set", "storage": "standard"} | more)

    nfs = Storage(name="standard", group="pwm.resource", kind=StorageKind.nfs, server="zfs", path="/share")
    with pytest.raises(Invalid) as refused:
        await parts.volumes.plan(ADMIN, wished(sub_path="datasets/set"), [nfs])
    [problem] = refused.value.problems
    assert problem["field"] == "sub_path"
    assert problem["message"] == ("on Kubernetes each volume on standard is a claim of its own, and no directory of it")
    for right in (wished(), wished(sub_path="set")):
        assert (await parts.volumes.plan(ADMIN, right, [nfs])).storage_class == "standard"
