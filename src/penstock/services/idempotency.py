"""Idempotency keys: a request sent twice makes one thing."""

from __future__ import annotations

import hashlib

from penstock.domain.policy import Kind
from penstock.domain.users import Caller
from penstock.errors import Conflict, Invalid, Problem
from penstock.store.session import Store

KEY_LIMIT = 200


def digest(caller: Caller, body: bytes) -> str:
    """Of what is asked for: the same body in another group is another request."""
    return hashlib.sha256(caller.group.encode() + b"\0" + body).hexdigest()


def made_before(tx: Store, user: str, key: str | None, body_digest: str, kind: Kind) -> str | None:
    """The id of what this key made already, if it did; a key may not be used for two different requests. Whether that
    is still there, and the caller's to see, is asked by whoever answers with it."""
    if key is None:
        return None
    if not key.isprintable() or not 1 <= len(key) <= KEY_LIMIT:
        problem = Problem(f"must be 1 to {KEY_LIMIT} printable characters", field="Idempotency-Key")
        raise Invalid("The Idempotency-Key cannot be used.", problems=[problem])
    before = tx.submissions.get(user, key)
    if before is None:
        return None
    known_digest, known_kind, object_id = before
    if (known_digest, known_kind) != (body_digest, kind):
        raise Conflict(
            "This Idempotency-Key was used for a different request.", hint="Make a new key for each new request."
        )
    return object_id


def gone(kind: Kind, object_id: str) -> Conflict:
    """Made again it would be another thing than the one the key stands for."""
    said = f"{kind} {object_id}, which this Idempotency-Key made, is not there any more."
    return Conflict(said, hint="Make a new key to make it again.")


def remember(tx: Store, user: str, key: str | None, body_digest: str, kind: Kind, object_id: str) -> None:
    if key is not None:
        tx.submissions.put(user, key, body_digest, kind, object_id)


def forget(tx: Store, user: str, key: str | None) -> None:
    """What it was to make could not be made."""
    if key is not None:
        tx.submissions.remove(user, key)
