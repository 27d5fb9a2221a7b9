"""Tokens and idempotency keys as they are kept."""

from __future__ import annotations

from datetime import timedelta

from penstock.domain.model import now
from penstock.domain.names import new_id
from penstock.store.database import Database
from penstock.store.tokens import Token
from tests.store.making import MOMENT


def a_token(user: str = "ann", **fields: object) -> Token:
    given = {"id": new_id(), "uid": 1000, "runs_server": True, "description": "laptop", "created_at": MOMENT}
    return Token.model_validate({"user": user} | given | fields)


async def test_a_token_is_found_by_its_hash_and_only_by_that(db: Database):
    token = a_token(expires_at=MOMENT + timedelta(days=30))
    await db.write(lambda tx: tx.tokens.add(token, "hash"))
    assert await db.read(lambda tx: tx.tokens.by_hash("hash")) == token
    assert await db.read(lambda tx: tx.tokens.by_hash("other")) is None
    assert "hash" not in token.model_dump_json()


async def test_a_token_without_uid_or_end_comes_back_as_it_went_in(db: Database):
    token = a_token(uid=None, runs_server=False)
    await db.write(lambda tx: tx.tokens.add(token, "hash"))
    assert await db.read(lambda tx: tx.tokens.by_hash("hash")) == token


async def test_when_a_token_was_last_used_is_kept(db: Database):
    token = a_token()
    await db.write(lambda tx: tx.tokens.add(token, "hash"))
    await db.write(lambda tx: tx.tokens.touch(token.id, MOMENT))
    found = await db.read(lambda tx: tx.tokens.by_hash("hash"))
    assert found is not None
    assert found.last_used_at == MOMENT


async def test_a_user_lists_their_own_tokens_newest_first_in_pages(db: Database):
    tokens = [a_token() for _ in range(3)]
    await db.write(lambda tx: [tx.tokens.add(token, token.id) for token in (*tokens, a_token("bob"))])
    first, cursor = await db.read(lambda tx: tx.tokens.page("ann", limit=2))
    rest, end = await db.read(lambda tx: tx.tokens.page("ann", limit=2, cursor=cursor))
    assert (first + rest, end) == (tokens[::-1], None)


async def test_a_token_of_another_user_reads_like_one_that_is_not_there(db: Database):
    token = a_token("ann")
    await db.write(lambda tx: tx.tokens.add(token, "hash"))
    assert await db.read(lambda tx: tx.tokens.get(token.id, "bob")) is None
    assert await db.read(lambda tx: tx.tokens.get("not\0there", "ann")) is None
    assert await db.read(lambda tx: tx.tokens.get(token.id, "ann")) == token
    await db.write(lambda tx: tx.tokens.remove(token.id))
    assert await db.read(lambda tx: tx.tokens.by_hash("hash")) is None


async def test_what_was_made_under_a_key_is_known_to_its_user_alone(db: Database):
    for key in ("key", "wörld", "a\0b", "\ud800", "x" * 2000):
        await db.write(lambda tx, key=key: tx.submissions.put("ann", key, "digest", "Workload", "abcdefgh"))
        made = await db.read(lambda tx, key=key: tx.submissions.get("ann", key))
        assert made == ("digest", "Workload", "abcdefgh")
        assert await db.read(lambda tx, key=key: tx.submissions.get("bob", key)) is None


async def test_old_keys_are_forgotten(db: Database):
    await db.write(lambda tx: tx.submissions.put("ann", "key", "digest", "Workload", "abcdefgh"))
    assert await db.write(lambda tx: tx.submissions.prune(now() - timedelta(hours=1))) == 0
    assert await db.write(lambda tx: tx.submissions.prune(now() + timedelta(hours=1))) == 1
    assert await db.read(lambda tx: tx.submissions.get("ann", "key")) is None
