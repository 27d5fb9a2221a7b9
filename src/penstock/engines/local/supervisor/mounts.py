"""Check what lies in a new sandbox, and mount what belongs inside volumes, before anything of the user's runs in it.

Bubblewrap finds what it mounts by path, and a job that has the directory around it may exchange it for a link at any
moment. So what was opened beforehand is compared with what lies at its path in the sandbox; and what is to be inside a
volume is mounted elsewhere first and moved to its place by descriptors. A child of the supervisor goes in to do that,
with the rights of whoever owns the sandbox's mounts.
"""

from __future__ import annotations

import errno
import os

from penstock.engines.shared.files import write_all
from penstock.engines.shared.processes import first_child

from .processes import SAYS, fork_child
from .start import open_way

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it is slow
    from typing import Any

MS_MOVE = 8192
_OPEN = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def find_exchanged(pid: int, planned: list[tuple[str, str, str]], opened: list[int]) -> str | None:
    """Return a message about a mount that was exchanged, if any. Raises OSError if the sandbox is gone."""
    if not planned:
        return None
    root = _root(pid)
    try:
        wrong = [dest for (_, _, dest), fd in zip(planned, opened, strict=True) if not _lies_at(root, dest, fd)]
    finally:
        os.close(root)
    if not wrong:
        return None
    return f"What lies at {wrong[0]} in the sandbox is not what was to be mounted there: it was exchanged meanwhile."


def _root(pid: int) -> int:
    return os.open(f"/proc/{first_child(pid) or 0}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def _lies_at(root: int, dest: str, expected: int) -> bool:
    if expected < 0:
        return False
    try:
        fd = open_way(os.dup(root), dest.strip("/"))
    except OSError:
        return False
    try:
        return os.path.sameopenfile(fd, expected)
    finally:
        os.close(fd)


def mount_inside(pid: int, plan: dict[str, Any]) -> str | None:
    """Mount what belongs inside volumes; return a message about what could not be mounted. `pid` is bubblewrap's."""
    read_end, write_end = os.pipe()
    try:
        child = fork_child(lambda: _move_all(pid, plan), write_end)
    finally:
        os.close(write_end)
    said = b""
    while data := os.read(read_end, 4096):
        said += data
    os.close(read_end)
    _, status = os.waitpid(child, 0)
    return None if status == 0 else said.decode(errors="replace") or "Nothing could be mounted inside its volumes."


def _move_all(pid: int, plan: dict[str, Any]) -> None:
    from .enter import become, check, is_ours, libc, open_namespaces

    spaces = open_namespaces(pid)
    descriptors = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    become(plan["identity"])
    if not is_ours(spaces["outer"], "user"):
        check(libc.setns(spaces["outer"], 0))
    check(libc.setns(spaces["mnt"], 0))
    os.fchdir(descriptors)  # older kernels move mounts by path alone: here a descriptor has one
    for made, dest in plan["inside"]:
        try:
            source, place = _open(made), _open(dest, plan["owner"])
            check(libc.mount(b"%d" % source, b"%d" % place, None, MS_MOVE, None))
        except OSError as error:
            through = error.errno in (errno.ELOOP, errno.ENOTDIR)
            why = "the way there leads through a link or file in the volume around it" if through else error.strerror
            write_all(SAYS, f"Nothing can be mounted at {dest}: {why}.".encode(errors="surrogateescape"))
            raise


def _open(path: str, owner: tuple[int, int] | None = None) -> int:
    """Open a directory, and make it where it is not there: in scratch, which is empty, and where somebody removed
    it."""
    fd = os.open("/", _OPEN)
    for name in path.strip("/").split("/"):
        try:
            inner = os.open(name, _OPEN, dir_fd=fd)
        except FileNotFoundError:
            inner = _make(fd, name, owner)
        os.close(fd)
        fd = inner
    return fd


def _make(parent: int, name: str, owner: tuple[int, int] | None) -> int:
    os.mkdir(name, 0o755, dir_fd=parent)
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    if owner and os.geteuid() == 0 and os.fstat(fd).st_uid == 0:
        os.fchown(fd, *owner)
    return fd
