"""Write files that are whole or not there, and JSON without importing `json`, which is slow."""

# ruff: noqa: PTH104, PTH108, PTH120
from __future__ import annotations

import os
import sys
from _json import encode_basestring_ascii


def dumps(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dumps(str(key))}: {dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(dumps(item) for item in value) + "]"
    return encode_basestring_ascii(str(value))


RESERVE, SHARE = 64 << 20, 20
"""Bytes left free on a disk: a twentieth of it, and no more than 64 MiB. The database usually writes there, too."""


def has_room(folder: str) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail >= min(RESERVE // disk.f_frsize, disk.f_blocks // SHARE)


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_new(path: str, text: str) -> None:
    """Create a file that lasts; FileExistsError if it is there."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, text.encode())
        os.fsync(fd)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(fd)
    sync_directory(os.path.dirname(path) or ".")


def reserve(path: str, size: int) -> None:
    """Take the room that `replace` will need, so that a disk that fills up cannot prevent it."""
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def overwrite(path: str, text: str) -> bool:
    """Overwrite a file of this size in place, which takes no room; False if it is not there."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        os.pwrite(fd, text.encode(), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def complain(*words: object) -> None:
    """Write to the supervisor's own log, which may have no room for it."""
    try:
        print(*words, file=sys.stderr, flush=True)
    except OSError:
        return


def replace(path: str, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one."""
    fresh = f"{path}.new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, text.encode())
        os.ftruncate(fd, len(text.encode()))
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(fresh, path)
    sync_directory(os.path.dirname(path) or ".")
