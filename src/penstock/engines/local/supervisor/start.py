"""Start a node's sandbox. Every import here delays the job's first line; see `main`."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself imports enum, which is slow
import posix

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it is slow
    from typing import Any

    Started = tuple[int, int, int, int, list[int]]
    """The process, our ends of the pipes (`go`, its status, its output), and the descriptors of what is to be
    mounted."""

STDIN, STDOUT, STDERR, STATUS, ARCHIVE, LOCK, OPTIONS, FILTER, HELD = range(9)
"""Descriptors of the sandbox's first process: `go` comes by stdin, the tree's lock goes to bubblewrap's --sync-fd. Its
options come by a descriptor too, since a job can read the command line of PID 1. Those that bubblewrap binds by
descriptor are the last."""


def start_node(plan: dict[str, Any], lock: int, index: int | None = None) -> Started:
    """Start a node; of an array, `index` is all that tells one node from another at the same place."""
    if index is not None:
        plan = plan | {"env": plan["env"] | {"JOB_COMPLETION_INDEX": str(index)}}
    _make_groups(plan["cgroups"])
    held = [_hold(below, way) for below, way, _ in plan["held"]]
    archive = posix.open(plan["archive"], posix.O_RDONLY | posix.O_CLOEXEC) if plan["archive"] else None
    go_end, go_pipe = posix.pipe()
    status_pipe, status_end = posix.pipe()
    log_pipe, log_end = posix.pipe()
    pid = posix.fork()
    if pid == 0:
        places = {STDIN: go_end, STDOUT: log_end, STDERR: log_end, STATUS: status_end, ARCHIVE: archive, LOCK: lock}
        _become(plan, {place: fd for place, fd in places.items() if fd is not None})
    for fd in (go_end, status_end, log_end, archive):
        if fd is not None:
            posix.close(fd)
    return pid, go_pipe, status_pipe, log_pipe, held


def _hold(below: str, way: str) -> int:
    """Open what is to be mounted; -1 if that fails: then whatever is mounted in its place is not the same."""
    try:
        return open_way(posix.open(below, posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC), way)
    except OSError:
        return -1


def open_way(fd: int, way: str) -> int:
    """Open what lies below a directory, which is closed. No link is followed: anyone may have put one there."""
    *parents, last = way.split("/")
    for name in parents:
        fd = _open_in(fd, name, posix.O_DIRECTORY)
    fd = _open_in(fd, last)
    if posix.fstat(fd).st_mode & 0o170000 == 0o120000:  # a link itself is opened then
        posix.close(fd)
        raise OSError(40, "Too many levels of symbolic links", last)
    return fd


def _open_in(parent: int, name: str, flags: int = 0) -> int:
    try:
        return posix.open(name, posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC | flags, dir_fd=parent)
    finally:
        posix.close(parent)


def _become(plan: dict[str, Any], descriptors: dict[int, int]) -> None:
    """Join the control groups, become the account, turn into the sandbox. Runs in the child and never returns."""
    try:
        words = b"".join(word.encode(errors="surrogateescape") + b"\0" for word in plan["options"])
        descriptors |= {OPTIONS: _memory_file(words)} | (
            {FILTER: _memory_file(plan["filter"])} if plan["filter"] else {}
        )
        _arrange(descriptors)
        for name in ("SIGPIPE", "SIGXFSZ"):
            _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
        posix.umask(0o022)
        for group in plan["cgroups"]:
            write_word(group["join"], "0")
        if plan["kept"]:
            _keep(plan)
        _take_on(plan["identity"])
        if plan["by_descriptor"] and plan["held"]:  # opened anew, as the account, which may not be let through to them
            held = [open_way(posix.open(below, posix.O_PATH), way) for below, way, _ in plan["held"]]
            _arrange(dict(enumerate(held, HELD)))
        posix.execve(plan["argv"][0], plan["argv"], plan["env"])
    except BaseException as error:
        posix.write(STDERR, f"{error}\n".encode(errors="replace"))
    finally:
        posix._exit(126)


def _keep(plan: dict[str, Any]) -> None:
    from . import keeper

    keeper.adopt_orphans()
    _take_on(plan["identity"])
    keeper.keep(plan["argv"], plan["env"])


def _take_on(identity: dict[str, Any] | None) -> None:
    if identity:
        posix.setgroups(identity["groups"])
        posix.setgid(identity["gid"])
        posix.setuid(identity["uid"])


def _memory_file(data: bytes) -> int:
    fd = posix.memfd_create("told")
    while data:
        data = data[posix.write(fd, data) :]
    posix.lseek(fd, 0, 0)
    return fd


def _arrange(descriptors: dict[int, int]) -> None:
    """Put each descriptor at its place, after all were moved out of the way."""
    safe = {place: _high(fd, max(descriptors)) for place, fd in descriptors.items()}
    for place, fd in safe.items():
        posix.dup2(fd, place, inheritable=True)


def _high(fd: int, highest: int) -> int:
    while fd <= highest:
        fd = posix.dup(fd)
    return fd


def _make_groups(groups: list[dict[str, Any]]) -> None:
    for group in groups:
        try:  # noqa: SIM105 (contextlib would have to be imported)
            posix.mkdir(group["path"])
        except FileExistsError:
            pass
        for name, value in group["write"]:
            write_word(f"{group['path']}/{name}", value)


def write_word(path: str, text: str) -> None:
    fd = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC)
    try:
        posix.write(fd, text.encode())
    finally:
        posix.close(fd)
