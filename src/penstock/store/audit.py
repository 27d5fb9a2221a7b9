"""Keep the audit: entries are added and read, never changed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import Select, insert, select

from penstock.domain.audit import AuditEntry
from penstock.domain.policy import Kind, Verb
from penstock.store.tables import audit as a
from penstock.store.transaction import Table, from_ms, read_cursor, storable, to_ms, value, write_cursor

_ADD = insert(a).inline()
_DELETED = (
    select(a.c.seq)
    .where(a.c.object_id == value("ref"), a.c.kind == value("the_kind"), a.c.verb == Verb.delete.value)
    .where(a.c.result == "done")
    .limit(1)
)


@lru_cache
def _page(by_user: bool, by_name: bool) -> Select[Any]:
    statement = select(a).where(a.c.seq <= value("start"))
    statement = statement.where(a.c.user_name == value("user")) if by_user else statement
    statement = statement.where(a.c.name == value("the_name")) if by_name else statement
    return statement.order_by(a.c.seq.desc()).limit(value("count"))


class AuditTable(Table):
    def add(self, entry: AuditEntry) -> None:
        row = {
            "at": to_ms(entry.at),
            "user_name": storable(entry.user),
            "verb": entry.verb,
            "kind": entry.kind,
            "group_name": storable(entry.group),
            "name": storable(entry.name),
            "object_id": storable(entry.id),
            "result": entry.result,
            "detail": None if entry.detail is None else storable(entry.detail),
        }
        self._tx.write(_ADD, row)

    def was_deleted(self, kind: Kind, id: str) -> bool:
        return self._tx.first(_DELETED, {"the_kind": kind.value, "ref": id}) is not None

    def page(
        self, *, user: str | None = None, name: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[AuditEntry], str | None]:
        """Return the newest entries first, and where the next page begins."""
        values: dict[str, Any] = {"start": read_cursor(cursor), "count": limit + 1}
        values |= {} if user is None else {"user": storable(user)}
        values |= {} if name is None else {"the_name": storable(name)}
        rows = self._tx.rows(_page(user is not None, name is not None), values)
        following = write_cursor(rows[limit][0]) if len(rows) > limit else None
        return [_entry(row) for row in rows[:limit]], following


def _entry(row: tuple[Any, ...]) -> AuditEntry:
    _, at, user, verb, kind, group, name, id, result, detail = row
    return AuditEntry(
        at=from_ms(at), user=user, verb=verb, kind=kind, group=group, name=name, id=id, result=result, detail=detail
    )
