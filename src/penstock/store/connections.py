"""Open database connections whose transactions begin and end only where we say, and map their errors to ours.

Both drivers are put into autocommit, and BEGIN, SAVEPOINT and COMMIT are statements of ours (session.py). Python's
sqlite3 would otherwise begin only before an INSERT, and never IMMEDIATE.

Errors of the disk or the connection become our own. Anything else, such as a wrong statement or a broken rule of the
schema, is a defect and stays what it is.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from penstock.errors import PenstockError, StartRefused, StorageFull, Unavailable

BUSY_SECONDS = 10
"""How long a write waits for another program (a backup, a shell) to let go of SQLite."""

CONNECT_SECONDS = 5
"""How long PostgreSQL has to answer."""

_DRIVERS = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}

# So that PostgreSQL sees soon that a server has vanished from the network, and lets go of its lock.
SEEN_SOON = ("SET tcp_keepalives_idle=30", "SET tcp_keepalives_interval=10", "SET tcp_keepalives_count=3")
LOCK = "hashtext('penstock'), hashtext(current_schema())"
"""Only one server may write to a PostgreSQL database: two would start everything twice."""

_ONE_SERVER = (
    *SEEN_SOON,
    "SET lock_timeout='2s'",  # One that has just ended is let go of in far less.
    f"SELECT pg_advisory_lock({LOCK})",
    "SET lock_timeout=0",
)

_EVERY_SQLITE = (
    f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}",
    "PRAGMA foreign_keys=ON",
    "PRAGMA synchronous=FULL",
    "PRAGMA temp_store=MEMORY",  # no files beside ours, for which a full disk would have no room
)
_WRITING_SQLITE = (*_EVERY_SQLITE, "PRAGMA journal_mode=WAL", f"PRAGMA journal_size_limit={64 * 2**20}")
_READING_SQLITE = (*_EVERY_SQLITE, "PRAGMA query_only=ON")


def parse_url(text: str) -> URL:
    try:
        url = make_url(text)
    except ArgumentError:
        raise StartRefused(f"The database address cannot be read: {text!r}.", hint=_HINT) from None
    if url.drivername not in {*_DRIVERS, *_DRIVERS.values()}:
        raise StartRefused(f"Databases of the kind '{url.drivername}' are not supported.", hint=_HINT)
    if url.get_backend_name() == "sqlite" and (not url.database or url.database == ":memory:"):
        raise StartRefused("SQLite needs a file: what is only in memory would be forgotten.", hint=_HINT)
    return url.set(drivername=_DRIVERS[url.get_backend_name()])


_HINT = "Set database_url to sqlite:////path/to/penstock.db or postgresql+psycopg://user@host/name."


def make_engine(url: URL, *, writes: bool, lock: bool = True) -> Engine:
    """Connections for one purpose. Each thread keeps its own, so there is no pool. `lock`: whoever writes to PostgreSQL
    holds the lock; otherwise someone else of this process does."""
    sqlite = url.get_backend_name() == "sqlite"
    try:
        engine = create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            poolclass=NullPool,
            paramstyle="named" if sqlite else "pyformat",
            connect_args={"check_same_thread": False} if sqlite else {"connect_timeout": CONNECT_SECONDS},
        )
    except (ImportError, NoSuchModuleError) as error:
        raise StartRefused(
            f"The driver for PostgreSQL is missing ({error}).",
            hint="in a checkout of Penstock: pip install '.[postgresql]'",
        ) from None
    if sqlite:
        event.listen(engine, "connect", _running(_WRITING_SQLITE if writes else _READING_SQLITE))
    elif writes and lock:
        event.listen(engine, "connect", _running(_ONE_SERVER))
    return engine


def prepare_file(url: URL) -> None:
    """Make a place for SQLite's file, readable by the server alone; nothing to do for PostgreSQL."""
    if url.get_backend_name() != "sqlite":
        return
    path = Path(url.database or "").absolute()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_network(path.parent)
        path.touch(mode=0o600)
    except OSError as error:
        raise StartRefused(f"The database {path} cannot be written: {error.strerror}.") from None


def _running(statements: tuple[str, ...]) -> Callable[[Any, Any], None]:
    def on_connect(connection: Any, _record: Any) -> None:
        for statement in statements:
            connection.execute(statement).close()

    return on_connect


NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "coda", "fuse", "gfs2", "glusterfs", "gpfs"}
    | {"lustre", "ocfs2", "beegfs", "orangefs", "pvfs2", "virtiofs", "davfs", "wekafs"}
)
"""File systems of the network, as /proc names them. FUSE too, whatever is behind it (`fuse.sshfs`), except what is
known to be a local disk."""

LOCAL_FUSE = frozenset({"fuseblk", "fuse.fuse-overlayfs"})

_MOUNTS = Path("/proc/self/mounts")


def refuse_network(directory: Path) -> None:
    """Raise StartRefused where the directory is on a network file system. Other systems than Linux are trusted."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return
    kind = kind_of(directory.resolve(), mounts)
    if kind in LOCAL_FUSE or kind.partition(".")[0] not in NETWORK:
        return
    raise StartRefused(
        f"{directory} is on a network file system ({kind}), where SQLite loses data.",
        hint="Set data_dir to a local disk, or database_url to a PostgreSQL server.",
    )


def kind_of(path: Path, mounts: str) -> str:
    """The file system's kind as the table of mounts gives it: of the deepest mount, and of the last one there."""
    found, depth = "", -1
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        parts = Path(_unescape(point)).parts
        if path.parts[: len(parts)] == parts and len(parts) >= depth:
            found, depth = kind, len(parts)
    return found


def _unescape(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point


CANNOT_BE_USED = "cannot be used"
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}
"""SHMSIZE: no room to make the index of the write-ahead log larger."""

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_OUTSIDE = _LOCKED | {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_NOMEM,
}
"""What SQLite says of the disk or of other programs."""

_POSTGRESQL = ("08", "25006", "25P03", "25P04", "28", "40", "42501", "53", "55P03", "57", "58", "XX")
"""How the SQLSTATEs begin that PostgreSQL says of its disk, the connection or other programs."""

_POSTGRESQL_LOCKED = "55P03"
_POSTGRESQL_FULL = "53100"


def translated(error: BaseException) -> BaseException:
    """Return our error for one of the disk or the connection; otherwise the error itself."""
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
        return disk_full()
    if code & 0xFF not in _OUTSIDE:
        return None
    return _unavailable("is locked by another program" if code & 0xFF in _LOCKED else CANNOT_BE_USED, str(error))


def _from_postgresql(error: Any) -> PenstockError | None:
    state: str = error.sqlstate or ""
    if state == _POSTGRESQL_FULL:
        return disk_full()
    if state.startswith(_POSTGRESQL):
        words = "is in use by another server" if state == _POSTGRESQL_LOCKED else CANNOT_BE_USED
        return _unavailable(words, str(error))
    # Without a state the failure is the client library's own: there was no server to give one.
    lost = not state and type(error).__name__ in ("OperationalError", "InterfaceError")
    return _unavailable("does not answer", str(error)) if lost else None


def disk_full() -> StorageFull:
    return StorageFull(
        "The disk of the database is full; nothing was changed.",
        hint="Free some space on it, then try again.",
    )


def _unavailable(words: str, cause: str) -> Unavailable:
    first_line = cause.strip().partition("\n")[0]
    return Unavailable(
        f"The database {words} ({first_line}).", hint="Try again; if it stays so, see `penstock server logs`."
    )
