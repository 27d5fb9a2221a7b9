"""Run statements, and convert values and cursors of lists.

SQLAlchemy writes the SQL, once for each statement; from then on the driver's own cursor runs it. Executing through
SQLAlchemy each time costs several times as much, and on one interpreter that is what bounds how many can submit. So
statements are made at import (or behind a cache), take named values, and give plain tuples.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import BindParameter, ClauseElement, Dialect, bindparam

from penstock.domain.names import NAME, NAME_LIMIT
from penstock.errors import Invalid, Problem

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

Values = dict[str, Any]


class Transaction:
    """One transaction after another, on one connection."""

    def __init__(self, cursor: Any, dialect: Dialect) -> None:
        self._cursor = cursor
        self.dialect = dialect
        self.wrote = False
        """Has a row changed since this was last set to False?"""

    def rows(self, statement: ClauseElement, values: Values | None = None) -> list[tuple[Any, ...]]:
        sql, fixed = _compiled(statement, self.dialect, ())
        self._cursor.execute(sql, fixed | (values or {}))
        found: list[tuple[Any, ...]] = self._cursor.fetchall()
        return found

    def first(self, statement: ClauseElement, values: Values) -> tuple[Any, ...] | None:
        found = self.rows(statement, values)
        return found[0] if found else None

    def write(self, statement: ClauseElement, values: Values) -> int:
        sql, fixed = _compiled(statement, self.dialect, tuple(values))
        self._cursor.execute(sql, fixed | values)
        return self._touched()

    def write_each(self, statement: ClauseElement, several: Sequence[Values]) -> int:
        if not several:
            return 0
        sql, fixed = _compiled(statement, self.dialect, tuple(several[0]))
        self._cursor.executemany(sql, [fixed | values for values in several])
        return self._touched()

    def _touched(self) -> int:
        touched: int = self._cursor.rowcount
        self.wrote = self.wrote or touched != 0
        return touched


class Table:
    """One kind of rows, within a transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx


@lru_cache(maxsize=512)
def _compiled(statement: ClauseElement, dialect: Dialect, columns: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return the SQL of a statement, and the values that were written into the statement itself."""
    compiled = statement.compile(
        dialect=dialect, column_keys=columns or None, compile_kwargs={"render_postcompile": True}
    )
    return str(compiled), {name: given for name, given in compiled.params.items() if given is not None}


def value(name: str) -> BindParameter[Any]:
    """Return a place in a statement for a value that is given when it is run; the driver complains where it is
    missing."""
    return bindparam(name, required=False)


def group_names(count: int) -> list[str]:
    """Return the names of the values that narrow a statement to so many groups."""
    return [f"group_{number}" for number in range(count)]


def group_values(groups: Sequence[str]) -> Values:
    return dict(zip(group_names(len(groups)), groups, strict=True))


def to_ms(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    return _EPOCH + milliseconds * _MILLISECOND


def could_be_stored(ref: str) -> bool:
    """Could this be an id or a name at all? PostgreSQL refuses even to look for NUL or half a surrogate pair."""
    return len(ref) <= NAME_LIMIT and NAME.match(ref) is not None


def storable(text: str) -> str:
    """Return the text as both databases take it: no NUL, no half of a surrogate pair."""
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


NEWEST = 2**63 - 1


def write_cursor(seq: int) -> str:
    return urlsafe_b64encode(b"s%d" % seq).decode().rstrip("=")


def read_cursor(cursor: str | None) -> int:
    """Return the row a page begins at; without a cursor, the newest there is."""
    if cursor is None:
        return NEWEST
    try:
        text = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError:
        text = ""
    if len(cursor) > 40 or not (text[:1] == "s" and text[1:].isdigit() and 0 < int(text[1:]) <= NEWEST):
        problem = Problem("is not a cursor of a list", field="cursor", hint="use `next` of the page before as it is")
        raise Invalid("The cursor is wrong.", problems=[problem])
    return int(text[1:])
