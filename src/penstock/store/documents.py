"""Store the users, groups, nodes and storages that admins register, by kind, group and name."""

from __future__ import annotations

from sqlalchemy import delete, insert, select, update

from penstock.domain.model import now
from penstock.domain.policy import Kind
from penstock.store.tables import registered as r
from penstock.store.transaction import Table, to_ms, value

_key = (r.c.kind == value("the_kind"), r.c.group_name == value("the_group"), r.c.name == value("the_name"))

_ADD = insert(r).inline()
_UPDATE = update(r).where(*_key).values(doc=value("new_doc"), updated_at=value("time"))
_GET = select(r.c.doc).where(*_key)
_ALL = select(r.c.doc).where(r.c.kind == value("the_kind")).order_by(r.c.group_name, r.c.name)
_NAMES = select(r.c.name).where(*_key[:2]).order_by(r.c.name)
_REMOVE = delete(r).where(*_key)


class DocumentTable(Table):
    def put(self, kind: Kind, group: str, name: str, doc: str) -> None:
        """Store it in the place of the one that has this name."""
        moment = to_ms(now())
        if not self._tx.write(_UPDATE, _named(kind, group, name) | {"new_doc": doc, "time": moment}):
            row = {"kind": kind.value, "group_name": group, "name": name, "doc": doc}
            self._tx.write(_ADD, row | {"created_at": moment, "updated_at": moment})

    def get(self, kind: Kind, group: str, name: str) -> str | None:
        row = self._tx.first(_GET, _named(kind, group, name))
        return row[0] if row else None

    def all(self, kind: Kind) -> list[str]:
        return [row[0] for row in self._tx.rows(_ALL, {"the_kind": kind.value})]

    def names(self, kind: Kind, group: str) -> list[str]:
        return [row[0] for row in self._tx.rows(_NAMES, {"the_kind": kind.value, "the_group": group})]

    def remove(self, kind: Kind, group: str, name: str) -> bool:
        return self._tx.write(_REMOVE, _named(kind, group, name)) > 0


def _named(kind: Kind, group: str, name: str) -> dict[str, str]:
    return {"the_kind": kind.value, "the_group": group, "the_name": name}
