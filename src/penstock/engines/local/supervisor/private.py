"""Create the private folder of a node from a list."""

# ruff: noqa: PTH101, PTH102, PTH118, PTH211
from __future__ import annotations

import os

from penstock.engines.shared.files import write_all

Entry = tuple[str, int, bytes | str | None]
"""A path below the folder, its mode, and what it is: a file's bytes, a link's target, or None for a directory."""


def make(folder: str, entries: list[Entry], owner: tuple[int, int] | None) -> None:
    """The folder must not be there. It is given away last: as long as it is ours, the account cannot get in and
    exchange what is about to be given to it."""
    os.mkdir(folder, 0o700)
    for name, mode, content in entries:
        _make(os.path.join(folder, name), mode, content)
    if owner:
        for path in [*(os.path.join(folder, name) for name, _, _ in entries), folder]:
            os.chown(path, *owner, follow_symlinks=False)


def _make(path: str, mode: int, content: bytes | str | None) -> None:
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
