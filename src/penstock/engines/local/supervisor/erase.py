"""Remove a directory and everything below it without following a link out of it.

Every step is relative to an open directory. One found very deep inside is moved up to the top before it is emptied, so
that neither depth nor path length matters. Stopped half way, it can simply be done again; two who do it at once do no
harm to each other.
"""

# ruff: noqa: PTH101, PTH119, PTH120, PTH208
from __future__ import annotations

import os
from errno import ENOTEMPTY

DEPTH = 50
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def erase(path: str) -> None:
    """Remove `path`, a directory or anything else; that it is not there is fine."""
    parent = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = os.path.basename(path)
        if not _unlinked(parent, name):
            _erase_directory(parent, name)
    finally:
        os.close(parent)


def _unlinked(parent: int, name: str) -> bool:
    """Remove a file or link; False if it is a directory."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        if _is_directory(parent, name):
            return False
        raise
    return True


def _is_directory(parent: int, name: str) -> bool:
    """Or nothing at all: someone else may be erasing it, too."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return True
    return mode & 0o170000 == 0o040000


def _open(parent: int, name: str) -> int:
    """The directory, made readable and writable first: a job may have locked its owner out."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)
    return os.open(name, _OPEN, dir_fd=parent)


def _erase_directory(parent: int, name: str) -> None:
    try:
        top = _open(parent, name)
    except FileNotFoundError:
        return
    try:
        while names := os.listdir(top):
            for entry in names:
                _erase_entry(top, entry, top, 1)
    finally:
        os.close(top)
    _remove(parent, name)


def _remove(parent: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return


def _erase_entry(parent: int, name: str, top: int, depth: int) -> None:
    """Remove what is there; a directory too deep for us goes up to the top, for a later round."""
    if _unlinked(parent, name):
        return
    try:
        fd = _open(parent, name)
    except FileNotFoundError:
        return
    try:
        if depth > DEPTH:
            _move_up(parent, name, top)
            return
        for entry in os.listdir(fd):
            _erase_entry(fd, entry, top, depth + 1)
    finally:
        os.close(fd)
    _remove(parent, name)


def _move_up(parent: int, name: str, top: int) -> None:
    number = 0
    while True:
        number += 1
        try:
            os.rename(name, f".erase-{number}", src_dir_fd=parent, dst_dir_fd=top)
            return
        except (FileExistsError, NotADirectoryError):
            continue
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != ENOTEMPTY:  # taken, perhaps by one that a crash left behind
                raise
