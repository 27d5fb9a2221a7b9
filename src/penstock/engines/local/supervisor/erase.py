"""Remove a directory and all below it, without following a link out of it.

Every step is relative to an open directory. A directory found inside is moved up to the top before it is emptied, so
neither depth nor path length matters and two descriptors are enough. Stopped half way, it can simply be done again.
"""

# ruff: noqa: PTH101, PTH119, PTH120, PTH208
from __future__ import annotations

import os

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
    mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
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
    top = _open(parent, name)
    moved = 0
    try:
        while names := os.listdir(top):
            for entry in names:
                if not _unlinked(top, entry):
                    moved = _empty(top, entry, moved)
                    os.rmdir(entry, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _empty(top: int, name: str, moved: int) -> int:
    """Empty the directory; what directories it has go up to the top, for a later round."""
    fd = _open(top, name)
    try:
        for entry in os.listdir(fd):
            if not _unlinked(fd, entry):
                os.close(_open(fd, entry))
                moved = _move_up(fd, entry, top, moved)
    finally:
        os.close(fd)
    return moved


def _move_up(fd: int, entry: str, top: int, moved: int) -> int:
    while True:
        moved += 1
        try:
            os.rename(entry, f".erase-{moved}", src_dir_fd=fd, dst_dir_fd=top)
            return moved
        except (FileExistsError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno != 39:  # ENOTEMPTY: taken by one that a crash left behind
                raise
