"""Make, erase and measure directories whose owner may exchange anything in them meanwhile.

Every step is relative to an open directory, and none follows a link.
"""

# ruff: noqa: PTH101, PTH102, PTH118, PTH119, PTH120, PTH208, PTH211
from __future__ import annotations

import os
import stat
from errno import ENOTEMPTY

from penstock.engines.shared.files import write_all

Entry = tuple[str, int, bytes | str | None]
"""A path below the folder, its mode, and its content: a file's bytes, a link's target, or None for a directory."""
DEPTH = 50
"""How deep directories are emptied in place; those below are moved up first."""
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(folder: str, entries: list[Entry], owner: tuple[int, int] | None) -> None:
    """Make a folder that must not be there yet. It is given away last: as long as it is ours, the account cannot get in
    and exchange what is about to be given to it."""
    os.mkdir(folder, 0o700)
    for name, mode, content in entries:
        _make_entry(os.path.join(folder, name), mode, content)
    if owner:
        for path in [*(os.path.join(folder, name) for name, _, _ in entries), folder]:
            os.chown(path, *owner, follow_symlinks=False)


def _make_entry(path: str, mode: int, content: bytes | str | None) -> None:
    if isinstance(content, str):
        os.symlink(content, path)
        return
    if content is None:
        os.mkdir(path)
    else:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, content)
        finally:
            os.close(fd)
    os.chmod(path, mode)


def open_below(parent: int, name: str, mode: int | None = None) -> tuple[int, bool]:
    """Open a directory, made with the mode if one is given and it is not there; return whether it was made."""
    made = False
    if mode is not None:
        try:
            os.mkdir(name, mode, dir_fd=parent)
            made = True
        except FileExistsError:
            pass
    return os.open(name, _OPEN, dir_fd=parent), made


# -- erase -------------------------------------------------------------------------------------------------------


def erase(path: str) -> None:
    """Remove a directory or anything else, if it is there.

    A directory very deep inside is moved up to the top before it is emptied, so that neither depth nor path length
    matters. Stopped half way, it can simply be done again; two who do it at once do no harm to each other.
    """
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
    """Is it a directory, or gone? Someone else may be erasing it, too."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return True
    return mode & 0o170000 == 0o040000


def _open_writable(parent: int, name: str) -> int:
    """Open a directory, made readable and writable first: a job may have locked its owner out."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)
    return os.open(name, _OPEN, dir_fd=parent)


def _erase_directory(parent: int, name: str) -> None:
    try:
        top = _open_writable(parent, name)
    except FileNotFoundError:
        return
    try:
        while names := os.listdir(top):
            for entry in names:
                _erase_entry(top, entry, top, 1)
    finally:
        os.close(top)
    _rmdir(parent, name)


def _rmdir(parent: int, name: str) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return


def _erase_entry(parent: int, name: str, top: int, depth: int) -> None:
    """Remove an entry; a directory that is too deep goes up to the top, for a later round."""
    if _unlinked(parent, name):
        return
    try:
        fd = _open_writable(parent, name)
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
    _rmdir(parent, name)


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


# -- measure -----------------------------------------------------------------------------------------------------


def measure_directory(top: str | int) -> int:
    """Return the bytes on the disk. A file with several names counts once; other file systems do not. `top` is a path,
    or a descriptor, which is closed.

    Only one directory is open at a time, however deep it goes. The way back is `..`, and it counts only if it leads
    where we came from.
    """
    fd = top if isinstance(top, int) else os.open(top, _OPEN)
    try:
        device, seen = os.fstat(fd).st_dev, set[int]()
        total, inner = _count(fd, device, seen)
        way = [(_identity(fd), inner)]
        while True:
            here, left = way[-1]
            if left:
                if (down := _enter(fd, left.pop(), here)) is None:
                    continue
                os.close(fd)
                fd = down
                found, inner = _count(fd, device, seen)
                total += found
                way.append((_identity(fd), inner))
                continue
            way.pop()
            if not way or (up := _leave(fd, way[-1][0])) is None:
                return total
            os.close(fd)
            fd = up
    finally:
        os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    about = os.fstat(fd)
    return about.st_dev, about.st_ino


def _count(fd: int, device: int, seen: set[int]) -> tuple[int, list[str]]:
    """Return the bytes of what is in a directory, and the directories in it."""
    total, inner = 0, []
    with os.scandir(fd) as entries:
        for entry in entries:
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError:  # it has just gone
                continue
            if about.st_dev != device or about.st_ino in seen:
                continue
            if stat.S_ISDIR(about.st_mode):
                inner.append(entry.name)
            elif about.st_nlink > 1:
                seen.add(about.st_ino)
            total += about.st_blocks * 512
    return total, inner


def _enter(fd: int, name: str, here: tuple[int, int]) -> int | None:
    """Open a directory; None if it has gone, became something else, is another file system or is closed to us."""
    try:
        inner = os.open(name, _OPEN, dir_fd=fd)
    except OSError:
        return None
    try:
        above = os.stat("..", dir_fd=inner)
        if (above.st_dev, above.st_ino) == here and os.fstat(inner).st_dev == here[0]:
            return inner
    except OSError:
        pass
    os.close(inner)
    return None


def _leave(fd: int, expected: tuple[int, int]) -> int | None:
    """Open the directory above; None if this one was moved while we were in it: then the rest is not counted."""
    try:
        above = os.open("..", _OPEN, dir_fd=fd)
    except OSError:
        return None
    if _identity(above) == expected:
        return above
    os.close(above)
    return None
