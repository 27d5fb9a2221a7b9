"""Store volumes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, delete, insert, or_, select, update

from penstock.domain.users import Account
from penstock.domain.volumes import Phase, Volume
from penstock.errors import NameTaken
from penstock.store.tables import volumes as v
from penstock.store.transaction import (
    Table,
    could_be_stored,
    group_names,
    group_values,
    read_cursor,
    to_ms,
    value,
    write_cursor,
)

_alive = v.c.phase != Phase.Deleting.value
_by_id = v.c.id == value("ref")
_by_name = v.c.name == value("ref")
_in_group = v.c.group_name == value("group")

_ADD = insert(v).inline()
_GET = select(v.c.doc).where(_by_id)
_ACCOUNT = select(v.c.uid, v.c.gid, v.c.account_user).where(_by_id)
_TAKEN = select(v.c.id).where(_in_group, _by_name, _alive)
_FIND = [select(v.c.doc).where(by, _alive) for by in (_by_id, _by_name)]
_FIND_IN_GROUP = [statement.where(_in_group) for statement in _FIND]
_UPDATE = update(v).where(_by_id).values(name=value("name"), phase=value("new_phase"), doc=value("new_doc"))
_REMOVE = delete(v).where(_by_id)
_OF_GROUP = select(v.c.doc).where(_in_group, _alive).order_by(v.c.seq)
_UNFINISHED = select(v.c.doc).where(v.c.phase.in_([Phase.Pending.value, Phase.Deleting.value])).order_by(v.c.seq)


@lru_cache
def _page(groups: int | None, by_name: bool) -> Select[Any]:
    statement = select(v.c.seq, v.c.doc).where(v.c.seq <= value("start"))
    if groups is not None:
        statement = statement.where(or_(*(v.c.group_name == value(name) for name in group_names(groups))))
    statement = statement.where(_by_name) if by_name else statement
    return statement.order_by(v.c.seq.desc()).limit(value("count"))


class VolumeTable(Table):
    def add(self, volume: Volume, account: Account) -> None:
        """Store a new volume. Only one thread writes, so nobody can take the name between the look and the insert."""
        taken = self._tx.first(_TAKEN, {"group": volume.group, "ref": volume.name})
        if taken:
            raise NameTaken(f"Volume '{volume.name}' exists already (id {taken[0]}).", id=taken[0])
        row = {
            "id": volume.id,
            "group_name": volume.group,
            "made_by": volume.user,
            "name": volume.name,
            "phase": volume.phase.value,
            "uid": account.uid,
            "gid": account.gid,
            "account_user": account.user,
            "created_at": to_ms(volume.created_at),
            "doc": volume.model_dump_json(),
        }
        self._tx.write(_ADD, row)

    def get(self, id: str) -> Volume | None:
        row = self._tx.first(_GET, {"ref": id}) if could_be_stored(id) else None
        return Volume.model_validate_json(row[0]) if row else None

    def account(self, id: str) -> Account | None:
        """Return the Unix account that its files belong to."""
        row = self._tx.first(_ACCOUNT, {"ref": id}) if could_be_stored(id) else None
        return Account(uid=row[0], gid=row[1], user=row[2]) if row else None

    def find(self, ref: str, group: str | None) -> list[Volume]:
        """Find a volume by id or, failing that, by name, among those alive; `group` None looks in all groups."""
        if not could_be_stored(ref):
            return []
        for statement in _FIND if group is None else _FIND_IN_GROUP:
            rows = self._tx.rows(statement, {"ref": ref, "group": group})
            if rows:
                return [Volume.model_validate_json(row[0]) for row in rows]
        return []

    def page(
        self,
        groups: Sequence[str] | None,
        *,
        name: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[list[Volume], str | None]:
        """Return the newest first, of these groups or (None) all, and where the next page begins; those being deleted,
        too."""
        values = {"ref": name, "start": read_cursor(cursor), "count": limit + 1}
        if (groups is not None and not groups) or (name is not None and not could_be_stored(name)):
            return [], None
        values |= group_values(groups or ())
        statement = _page(None if groups is None else len(groups), name is not None)
        rows = self._tx.rows(statement, values)
        following = write_cursor(rows[limit][0]) if len(rows) > limit else None
        return [Volume.model_validate_json(doc) for _, doc in rows[:limit]], following

    def of_group(self, group: str) -> list[Volume]:
        """Return all that are alive, oldest first."""
        return [Volume.model_validate_json(row[0]) for row in self._tx.rows(_OF_GROUP, {"group": group})]

    def update(self, volume: Volume) -> None:
        row = {"name": volume.name, "new_phase": volume.phase.value, "new_doc": volume.model_dump_json()}
        self._tx.write(_UPDATE, row | {"ref": volume.id})

    def remove(self, id: str) -> None:
        self._tx.write(_REMOVE, {"ref": id})

    def unfinished(self) -> list[Volume]:
        """Return what a crash may have left half made or half deleted, oldest first."""
        return [Volume.model_validate_json(row[0]) for row in self._tx.rows(_UNFINISHED)]
