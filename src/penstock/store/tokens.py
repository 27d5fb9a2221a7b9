"""Store tokens, of which only the hash is kept."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, select, update

from penstock.domain.model import Model, Time
from penstock.store.tables import tokens as t
from penstock.store.transaction import (
    Table,
    could_be_stored,
    from_ms,
    read_cursor,
    storable,
    to_ms,
    value,
    write_cursor,
)

_columns = [column for column in t.c if column.name != "hash"]

_ADD = insert(t).inline()
_BY_HASH = select(*_columns).where(t.c.hash == value("hashed"))
_PAGE = (
    select(*_columns)
    .where(t.c.user_name == value("user"), t.c.seq <= value("start"))
    .order_by(t.c.seq.desc())
    .limit(value("count"))
)
_DESCRIBED = _PAGE.where(t.c.description == value("described"))
_ANY = select(t.c.id).limit(1)
_REMOVE = delete(t).where(t.c.id == value("ref"))
_REMOVE_ALL = delete(t).where(t.c.user_name == value("user"))
_REMOVE_OTHERS = delete(t).where(t.c.user_name != value("user"))
_BY_ID = select(*_columns).where(t.c.id == value("ref"))
_END = update(t).where(t.c.id == value("ref")).values(expires_at=value("end"))
_TOUCH = update(t).where(t.c.id == value("ref")).values(last_used_at=value("time"))


class Token(Model):
    """What a token proves, and until when. Whether it has expired is for the asker to see."""

    id: str
    user: str
    uid: int | None
    runs_server: bool
    description: str = ""
    created_at: Time
    expires_at: Time | None = None
    last_used_at: Time | None = None


class TokenTable(Table):
    def add(self, token: Token, hash: str) -> None:
        row = {
            "id": token.id,
            "user_name": token.user,
            "uid": token.uid,
            "runs_server": token.runs_server,
            "hash": hash,
            "description": storable(token.description),
            "created_at": to_ms(token.created_at),
            "expires_at": to_ms(token.expires_at) if token.expires_at else None,
            "last_used_at": to_ms(token.last_used_at) if token.last_used_at else None,
        }
        self._tx.write(_ADD, row)

    def by_hash(self, hash: str) -> Token | None:
        row = self._tx.first(_BY_HASH, {"hashed": hash})
        return _token(row) if row else None

    def any(self) -> bool:
        return self._tx.first(_ANY, {}) is not None

    def page(
        self, user: str, *, description: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[Token], str | None]:
        """Return the user's own, newest first, and where the next page begins."""
        values = {"user": user, "start": read_cursor(cursor), "count": limit + 1}
        if description is None:
            rows = self._tx.rows(_PAGE, values)
        else:
            rows = self._tx.rows(_DESCRIBED, values | {"described": storable(description)})
        following = write_cursor(rows[limit][0]) if len(rows) > limit else None
        return [_token(row) for row in rows[:limit]], following

    def remove(self, id: str) -> None:
        self._tx.write(_REMOVE, {"ref": id})

    def get(self, id: str, user: str | None) -> Token | None:
        row = self._tx.first(_BY_ID, {"ref": id}) if could_be_stored(id) else None
        token = _token(row) if row else None
        return token if token and user in (None, token.user) else None

    def end(self, id: str, time: datetime) -> None:
        self._tx.write(_END, {"ref": id, "end": to_ms(time)})

    def remove_of(self, user: str) -> None:
        self._tx.write(_REMOVE_ALL, {"user": user})

    def remove_of_others(self, user: str) -> None:
        self._tx.write(_REMOVE_OTHERS, {"user": user})

    def touch(self, id: str, time: datetime) -> None:
        self._tx.write(_TOUCH, {"ref": id, "time": to_ms(time)})


def _token(row: tuple[Any, ...]) -> Token:
    _, id, user, uid, runs_server, description, created, expires, used = row
    return Token(
        id=id,
        user=user,
        uid=uid,
        runs_server=bool(runs_server),
        description=description,
        created_at=from_ms(created),
        expires_at=None if expires is None else from_ms(expires),
        last_used_at=None if used is None else from_ms(used),
    )
