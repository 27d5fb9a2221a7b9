"""Starting a node's sandbox. What is imported here is waited for; see `main`."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself imports enum: 5 ms
import posix

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it costs 12 ms
    from typing import Any

    Started = tuple[int, int, int, int]
    """The process, and our ends of the pipes: `go`, what it says of itself, what it prints."""

STDIN, STDOUT, STDERR, STATUS, ARCHIVE, LOCK, OPTIONS = range(7)
"""Descriptors of the sandbox's first process: `go` comes by stdin, the tree's lock goes to bubblewrap's --sync-fd.
Its options come by a descriptor too, since a job can read the command line of PID 1."""


def start_node(plan: dict[str, Any], lock: int, index: int | None = None) -> Started:
    """Of an array, `index` is all that tells one node from another at the same place."""
    if index is not None:
        plan = plan | {"env": plan["env"] | {"JOB_COMPLETION_INDEX": str(index)}}
    _make_groups(plan["cgroups"])
    archive = posix.open(plan["archive"], posix.O_RDONLY | posix.O_CLOEXEC) if plan["archive"] else None
    going, go_pipe = posix.pipe()
    status_pipe, saying = posix.pipe()
    log_pipe, printing = posix.pipe()
    pid = posix.fork()
    if pid == 0:
        places = {STDIN: going, STDOUT: printing, STDERR: printing, STATUS: saying, ARCHIVE: archive, LOCK: lock}
        _become(plan, {place: fd for place, fd in places.items() if fd is not None})
    for fd in (going, saying, printing, archive):
        if fd is not None:
            posix.close(fd)
    return pid, go_pipe, status_pipe, log_pipe


def _become(plan: dict[str, Any], descriptors: dict[int, int]) -> None:
    """The child: join the control groups, become the account, turn into the sandbox. Never returns."""
    try:
        _arrange(descriptors | {OPTIONS: _memory_file(plan["options"])})
        for name in ("SIGPIPE", "SIGXFSZ"):
            _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
        posix.umask(0o022)
        for group in plan["cgroups"]:
            _write(group["join"], "0")
        if plan["kept"]:
            _keep(plan)
        _take_on(plan["identity"])
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


def _memory_file(words: list[str]) -> int:
    fd = posix.memfd_create("options")
    data = b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words)
    while data:
        data = data[posix.write(fd, data) :]
    posix.lseek(fd, 0, 0)
    return fd


def _arrange(descriptors: dict[int, int]) -> None:
    """Put each descriptor at its place; first all of them out of the way."""
    safe = {place: _high(fd) for place, fd in descriptors.items()}
    for place, fd in safe.items():
        posix.dup2(fd, place, inheritable=True)


def _high(fd: int) -> int:
    while fd <= OPTIONS:
        fd = posix.dup(fd)
    return fd


def _make_groups(groups: list[dict[str, Any]]) -> None:
    for group in groups:
        try:  # noqa: SIM105 (contextlib would have to be imported)
            posix.mkdir(group["path"])
        except FileExistsError:
            pass
        for name, value in group["write"]:
            _write(f"{group['path']}/{name}", value)


def _write(path: str, text: str) -> None:
    fd = posix.open(path, posix.O_WRONLY | posix.O_CLOEXEC)
    try:
        posix.write(fd, text.encode())
    finally:
        posix.close(fd)
