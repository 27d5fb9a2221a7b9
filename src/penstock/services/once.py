"""Idempotency keys: the same request sent twice makes one thing."""

from __future__ import annotations

import hashlib

from penstock.domain.policy import Kind
from penstock.errors import Conflict, Invalid, Problem
from penstock.store.session import Store

KEY_LIMIT = 200


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def made_before(tx: Store, user: str, key: str | None, body_digest: str, kind: Kind) -> str | None:
    """The id of what this key made already, if it did; a key may not be used for two different requests."""
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


def remember(tx: Store, user: str, key: str | None, body_digest: str, kind: Kind, object_id: str) -> None:
    if key is not None:
        tx.submissions.put(user, key, body_digest, kind, object_id)
