"""Volumes as they are kept."""

from __future__ import annotations

import pytest

from penstock.domain.volumes import Phase
from penstock.errors import Invalid, NameTaken
from penstock.store.database import Database
from tests.store.making import ACCOUNT, a_volume


async def test_a_volume_comes_back_as_it_went_in(db: Database):
    volume = a_volume()
    await db.write(lambda tx: tx.volumes.add(volume, ACCOUNT))
    assert await db.read(lambda tx: tx.volumes.get(volume.id)) == volume
    assert await db.read(lambda tx: tx.volumes.account(volume.id)) == ACCOUNT


async def test_a_name_in_use_is_refused_with_the_id_that_has_it(db: Database):
    first, second = a_volume("data"), a_volume("data")
    await db.write(lambda tx: tx.volumes.add(first, ACCOUNT))
    with pytest.raises(NameTaken, match=rf"'data' exists already \(id {first.id}\)"):
        await db.write(lambda tx: tx.volumes.add(second, ACCOUNT))
    assert await db.read(lambda tx: tx.volumes.get(second.id)) is None


async def test_the_database_itself_keeps_a_name_from_being_used_twice(db: Database):
    first, second = a_volume("one"), a_volume("two")

    def add(tx):
        tx.volumes.add(first, ACCOUNT)
        tx.volumes.add(second, ACCOUNT)

    await db.write(add)
    with pytest.raises(Exception, match=r"(?i)unique"):
        await db.write(lambda tx: tx.volumes.update(second.model_copy(update={"name": "one"})))


async def test_another_group_may_use_the_same_name(db: Database):
    ann, bob = a_volume("data", "ann"), a_volume("data", "bob")
    await db.write(lambda tx: [tx.volumes.add(volume, ACCOUNT) for volume in (ann, bob)])
    assert await db.read(lambda tx: tx.volumes.find("data", "bob")) == [bob]
    assert len(await db.read(lambda tx: tx.volumes.find("data", None))) == 2


async def test_a_volume_being_deleted_gives_its_name_free_and_is_found_no_more(db: Database):
    old, new = a_volume("data"), a_volume("data")
    await db.write(lambda tx: tx.volumes.add(old, ACCOUNT))
    await db.write(lambda tx: tx.volumes.update(old.model_copy(update={"phase": Phase.Deleting})))
    assert await db.read(lambda tx: tx.volumes.find("data", "ann")) == []
    assert await db.read(lambda tx: tx.volumes.find(old.id, "ann")) == []
    assert [each.phase for each in (await db.read(lambda tx: tx.volumes.page(("ann",))))[0]] == [Phase.Deleting]
    await db.write(lambda tx: tx.volumes.add(new, ACCOUNT))
    assert await db.read(lambda tx: tx.volumes.find("data", "ann")) == [new]
    await db.write(lambda tx: tx.volumes.remove(old.id))
    assert await db.read(lambda tx: tx.volumes.get(old.id)) is None


async def test_a_volume_is_found_by_id_or_name_but_only_in_its_group(db: Database):
    volume = a_volume("data", "ann")
    await db.write(lambda tx: tx.volumes.add(volume, ACCOUNT))
    for ref in (volume.id, "data"):
        assert await db.read(lambda tx, ref=ref: tx.volumes.find(ref, "ann")) == [volume]
        assert await db.read(lambda tx, ref=ref: tx.volumes.find(ref, "bob")) == []


async def test_what_a_crash_left_half_done_is_listed_oldest_first(db: Database):
    phases = [Phase.Pending, Phase.Bound, Phase.Deleting, Phase.Lost]
    volumes = [a_volume(f"v{n}", phase=phase) for n, phase in enumerate(phases)]
    await db.write(lambda tx: [tx.volumes.add(volume, ACCOUNT) for volume in volumes])
    assert await db.read(lambda tx: tx.volumes.unfinished()) == [volumes[0], volumes[2]]


async def test_pages_go_from_the_newest_to_the_oldest_without_gap_or_repeat(db: Database):
    volumes = [a_volume(f"v{n}") for n in range(5)]
    await db.write(lambda tx: [tx.volumes.add(volume, ACCOUNT) for volume in volumes])
    first, cursor = await db.read(lambda tx: tx.volumes.page(("ann",), limit=3))
    newer = a_volume("newer")
    await db.write(lambda tx: tx.volumes.add(newer, ACCOUNT))
    rest, end = await db.read(lambda tx: tx.volumes.page(("ann",), limit=3, cursor=cursor))
    assert (first + rest, end) == (volumes[::-1], None)


async def test_a_list_is_narrowed_by_group_and_name_and_has_those_being_deleted(db: Database):
    ann = [a_volume("one", phase=Phase.Bound), a_volume("two", phase=Phase.Deleting)]
    bob = a_volume("one", "bob", phase=Phase.Bound)
    await db.write(lambda tx: [tx.volumes.add(volume, ACCOUNT) for volume in (*ann, bob)])
    assert (await db.read(lambda tx: tx.volumes.page(None)))[0] == [bob, ann[1], ann[0]]
    assert (await db.read(lambda tx: tx.volumes.page(None, name="one")))[0] == [bob, ann[0]]
    assert (await db.read(lambda tx: tx.volumes.page(("ann",))))[0] == [ann[1], ann[0]]


BAD_REFS = ["\0", "a\0b", "\ud800", "x" * 1_000_000, "", "../x", "a'; DROP TABLE volumes; --", "%s", "NaN"]
BAD_CURSORS = ["", "!", "AAAA", "czE\0", "czAA", "cy0x", "\ud800", "c" * 100_000, "czk5OTk5OTk5OTk5OTk5OTk5OTk5"]


async def test_text_that_can_be_no_name_finds_nothing(db: Database):
    for ref in BAD_REFS:
        assert await db.read(lambda tx, ref=ref: tx.volumes.find(ref, None)) == []
        assert await db.read(lambda tx, ref=ref: tx.volumes.get(ref)) is None
        assert await db.read(lambda tx, ref=ref: tx.volumes.account(ref)) is None
        assert await db.read(lambda tx, ref=ref: tx.volumes.page(("ann",), name=ref)) == ([], None)


async def test_a_cursor_that_is_none_of_ours_is_invalid(db: Database):
    for cursor in BAD_CURSORS:
        with pytest.raises(Invalid, match="cursor"):
            await db.read(lambda tx, cursor=cursor: tx.volumes.page(("ann",), cursor=cursor))
