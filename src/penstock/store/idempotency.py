"""Store what was made under which idempotency key."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

from sqlalchemy import delete, insert, select

from penstock.domain.model import now
from penstock.store.tables import submissions as s
from penstock.store.transaction import Table, to_ms, value

_GET = select(s.c.digest, s.c.kind, s.c.object_id).where(s.c.user_name == value("user"), s.c.key == value("the_key"))
_PUT = insert(s).inline()
_REMOVE = delete(s).where(s.c.user_name == value("user"), s.c.key == value("the_key"))
_REMOVE_ALL = delete(s).where(s.c.user_name == value("user"))
_PRUNE = delete(s).where(s.c.created_at < value("time"))


class SubmissionTable(Table):
    def get(self, user: str, key: str) -> tuple[str, str, str] | None:
        """Return the digest of the request, and the kind and id of what it made."""
        row = self._tx.first(_GET, {"user": user, "the_key": _digest(key)})
        return (row[0], row[1], row[2]) if row else None

    def put(self, user: str, key: str, digest: str, kind: str, object_id: str) -> None:
        row = {"user_name": user, "key": _digest(key), "digest": digest, "kind": kind, "object_id": object_id}
        self._tx.write(_PUT, row | {"created_at": to_ms(now())})

    def remove(self, user: str, key: str) -> None:
        self._tx.write(_REMOVE, {"user": user, "the_key": _digest(key)})

    def remove_of(self, user: str) -> None:
        self._tx.write(_REMOVE_ALL, {"user": user})

    def prune(self, before: datetime) -> int:
        return self._tx.write(_PRUNE, {"time": to_ms(before)})


def _digest(key: str) -> str:
    """Hash a key: it may be any text of any length, and an index takes neither."""
    return sha256(key.encode(errors="surrogatepass")).hexdigest()
