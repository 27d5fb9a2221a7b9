"""Map what a database says about its disk or its connection to our own errors.

Anything else, a statement that is wrong, a rule of the schema that was broken, is a defect and stays what it is.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import Any

from sqlalchemy.exc import DBAPIError

from penstock.errors import PenstockError, StorageFull, Unavailable

_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}
"""SHMSIZE: no room to make the index of the write-ahead log larger."""

_SQLITE = {
    sqlite3.SQLITE_BUSY: "is locked by another program",
    sqlite3.SQLITE_LOCKED: "is locked by another program",
    sqlite3.SQLITE_READONLY: "cannot be written: it or its directory is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_PERM: "cannot be opened",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is damaged, or is no database",
    sqlite3.SQLITE_PROTOCOL: "is locked by another program",
    sqlite3.SQLITE_NOMEM: "has run out of memory",
}
_POSTGRESQL = {
    "08": "does not answer",
    "28": "does not let us in",
    "42501": "does not let us do this",
    "57": "is shutting down, starting, or gave up on us",
    "53": "has run out of a resource",
    "25006": "is read-only",
    "25P03": "gave up on us",
    "25P04": "gave up on us",
    "55P03": "is in use by another server",
    "40": "could not do two things at once",
    "58": "reports an error of its disk",
    "XX": "is damaged",
}
"""By how their SQLSTATE begins."""

_POSTGRESQL_FULL = "53100"


def translated(error: BaseException) -> BaseException:
    """Our error for it where it is one of the disk or the connection; otherwise itself."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    postgresql = sys.modules.get("psycopg")
    ours = None
    if isinstance(cause, sqlite3.Error):
        ours = _from_sqlite(cause)
    elif postgresql and isinstance(cause, postgresql.Error):
        ours = _from_postgresql(cause)
    if ours is None:
        return error
    ours.__cause__ = error
    return ours


def _from_sqlite(error: sqlite3.Error) -> PenstockError | None:
    # Errors that Python's module raises by itself have no code.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code in _FULL:
        return full()
    words = _SQLITE.get(code & 0xFF)
    return _unavailable(words, str(error)) if words else None


def _from_postgresql(error: Any) -> PenstockError | None:
    state: str = error.sqlstate or ""
    if state == _POSTGRESQL_FULL:
        return full()
    for prefix, words in _POSTGRESQL.items():
        if state.startswith(prefix):
            return _unavailable(words, str(error))
    # Without a state the failure is the client library's own: there was no server to give one.
    lost = not state and type(error).__name__ in ("OperationalError", "InterfaceError")
    return _unavailable("does not answer", str(error)) if lost else None


def full() -> StorageFull:
    return StorageFull(
        "The disk of the database is full; nothing was changed.",
        hint="Free some space on it, then try again.",
    )


def _unavailable(words: str, cause: str) -> Unavailable:
    first_line = cause.strip().partition("\n")[0]
    return Unavailable(
        f"The database {words} ({first_line}).", hint="Try again; if it stays so, see `penstock server logs`."
    )
