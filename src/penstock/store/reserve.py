"""Keep space on the disk for the database, so that a full disk can be cleared.

To overwrite what a file has already takes no further room on ext4, XFS and tmpfs. So the database file keeps free pages
inside, and the write-ahead log and its index keep the size they have had. SQLite would remove or empty the latter two
when the last connection is closed and when the first is opened, unless another program uses the database: two locks
make it believe so. They are SQLite's own, at the places its documentation of the file format and os_unix.c name.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import struct
import time
from contextlib import suppress
from typing import Any

from penstock.store.connections import disk_full

log = logging.getLogger(__name__)
SIZE, SHARE = 8 << 20, 20
"""Bytes that are kept free in the database file, and as many of log; of a small disk a twentieth."""
PAUSE = 10.0
"""Seconds until it is tried again after it could not be filled."""

_USED_BY_OTHERS = (128, 1)
"""Where, in the index, whoever uses the database holds a lock: who finds none empties the index."""
_READ_BY_OTHERS = (0x40000002, 510)
"""The same in the database file: who finds none removes the log and the index when it is done."""
_INDEX, _INDEX_HEADERS = 32 << 10, 136
"""Bytes of the index of such a log, and of its beginning, which says what it holds: with nothing there, SQLite reads
the log and writes the index anew."""
_TABLE = "penstock_reserve"


class DiskReserve:
    def __init__(self, path: str) -> None:
        self._path = path
        self._held: list[int] = []
        self._next_try = 0.0
        disk = os.statvfs(os.path.dirname(path) or ".")  # noqa: PTH120
        self._size = min(SIZE, disk.f_blocks * disk.f_frsize // SHARE)

    def hold_index(self) -> None:
        """Before the first connection is opened. Raises StorageFull where there is no room for an index at all."""
        fd = self._open(f"{self._path}-shm", os.O_RDWR | os.O_CREAT)
        if _lock(fd, fcntl.F_WRLCK, _USED_BY_OTHERS):  # nobody has it open, so it may be older than the log
            try:
                os.posix_fallocate(fd, 0, _INDEX)
            except OSError as error:
                raise disk_full() from error
            os.pwrite(fd, bytes(_INDEX_HEADERS), 0)
        _lock(fd, fcntl.F_RDLCK, _USED_BY_OTHERS)

    def hold_log(self) -> None:
        """Once there are connections."""
        _lock(self._open(self._path, os.O_RDONLY), fcntl.F_RDLCK, _READ_BY_OTHERS)

    def release(self) -> None:
        """Not while there are connections: to close a file gives up all locks of the process on it."""
        for fd in self._held:
            os.close(fd)
        self._held.clear()

    def _open(self, path: str, flags: int) -> int:
        fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self._held.append(fd)
        return fd

    def fill(self, cursor: Any) -> None:
        """Take what is missing, if the disk has it to spare. Outside of any transaction."""
        if not self._is_lacking(cursor) or not self._has_room() or time.monotonic() < self._next_try:
            return
        try:
            cursor.execute(f"DROP TABLE IF EXISTS {_TABLE}")
            cursor.execute(f"CREATE TABLE {_TABLE} (room)")
            cursor.execute(f"INSERT INTO {_TABLE} VALUES (zeroblob({self._size}))")  # noqa: S608
            self.empty_log(cursor)  # only now is it on the disk
            cursor.execute(f"DROP TABLE {_TABLE}")
        except Exception as error:
            self._next_try = time.monotonic() + PAUSE
            log.warning("no room could be set aside for the database: %s", error)

    def empty_log(self, cursor: Any, *, wait: bool = False) -> None:
        """So that the next transaction begins at its start: if no reader needs it, or when none does any more."""
        with suppress(sqlite3.OperationalError):  # what cannot be written now is written the next time
            cursor.execute(f"PRAGMA wal_checkpoint({'RESTART' if wait else 'PASSIVE'})").fetchall()

    def _is_lacking(self, cursor: Any) -> bool:
        [(pages,)] = cursor.execute("PRAGMA freelist_count").fetchall()
        [(page,)] = cursor.execute("PRAGMA page_size").fetchall()
        if pages * page < self._size // 2:
            return True
        try:
            return os.stat(f"{self._path}-wal").st_size < self._size  # noqa: PTH116
        except FileNotFoundError:
            return True

    def _has_room(self) -> bool:
        disk = os.statvfs(os.path.dirname(self._path) or ".")  # noqa: PTH120
        return disk.f_bavail * disk.f_frsize >= 4 * self._size


def _lock(fd: int, kind: int, place: tuple[int, int]) -> bool:
    """Of the open file rather than of the process, so that SQLite, in this process, sees another's."""
    start, length = place
    with suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))
        return True
    return False
