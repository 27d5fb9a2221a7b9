"""Count the bytes below a directory whose owner may swap anything in it meanwhile.

Only one directory is open at a time, however deep it goes. The next one is opened by its name in the one before and
never through a link; the way back is `..`, and it counts only if it leads where we came from.
"""

from __future__ import annotations

import os
import stat

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def measure(top: str | int) -> int:
    """Bytes on the disk. A file with several names counts once; other file systems do not. `top` is a path, or a
    descriptor, which is closed."""
    fd = top if isinstance(top, int) else os.open(top, _OPEN)
    try:
        device, seen = os.fstat(fd).st_dev, set[int]()
        total, inner = _look(fd, device, seen)
        way = [(_identity(fd), inner)]
        while True:
            here, waiting = way[-1]
            if waiting:
                if (down := _enter(fd, waiting.pop(), here)) is None:
                    continue
                os.close(fd)
                fd = down
                found, inner = _look(fd, device, seen)
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


def _look(fd: int, device: int, seen: set[int]) -> tuple[int, list[str]]:
    """The bytes of what is in a directory, and the directories in it."""
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
    """The directory; None if it has gone, became something else, is another file system or is closed to us."""
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
    """The directory above; None if this one was moved while we were in it, and then the rest is not counted."""
    try:
        above = os.open("..", _OPEN, dir_fd=fd)
    except OSError:
        return None
    if _identity(above) == expected:
        return above
    os.close(above)
    return None
