"""Idempotency keys: a request sent twice makes one thing."""

from __future__ import annotations

import hashlib

from penstock.domain.policy import Kind
from penstock.domain.users import Caller
from penstock.errors import Conflict, Invalid, Problem
from penstock.store.session import Store

KEY_LIMIT = 200


class KeyedRequest:
    """A request to make a thing of this kind, which may have a key. The same body in another group is another one."""

    def __init__(self, caller: Caller, key: str | None, kind: Kind, body: bytes) -> None:
        self._user, self._key, self._kind = caller.user, key, kind
        self._digest = hashlib.sha256(caller.group.encode() + b"\0" + body).hexdigest() if key else ""

    def made_before(self, tx: Store) -> str | None:
        """Return the id of what this key made already, if it did; a key may not be used for two different requests.
        Whether that is still there, and the caller's to see, is for the caller of this to find out."""
        if self._key is None:
            return None
        if not self._key.isprintable() or not 1 <= len(self._key) <= KEY_LIMIT:
            problem = Problem(f"must be 1 to {KEY_LIMIT} printable characters", field="Idempotency-Key")
            raise Invalid("The Idempotency-Key cannot be used.", problems=[problem])
        before = tx.submissions.get(self._user, self._key)
        if before is None:
            return None
        digest, kind, object_id = before
        if (digest, kind) != (self._digest, self._kind):
            raise Conflict(
                "This Idempotency-Key was used for a different request.", hint="Make a new key for each new request."
            )
        return object_id

    def remember(self, tx: Store, object_id: str) -> None:
        if self._key is not None:
            tx.submissions.put(self._user, self._key, self._digest, self._kind, object_id)

    def forget(self, tx: Store) -> None:
        """Forget the key: what it stands for could not be made."""
        if self._key is not None:
            tx.submissions.remove(self._user, self._key)

    def gone(self, object_id: str) -> Conflict:
        """Refuse to make it again: that would be another thing than the one the key stands for."""
        message = f"{self._kind} {object_id}, which this Idempotency-Key made, no longer exists."
        return Conflict(message, hint="Make a new key to make it again.")
