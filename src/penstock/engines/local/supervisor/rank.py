"""One node of a run: its pipes, its sandbox, its log and its end."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself imports enum: 5 ms
import fcntl
import os

from . import keeper
from .logfile import LogFile
from .processes import KILL, first_child, signal, terminate_tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it costs 12 ms
    from typing import Any

STDIN, STDOUT, STDERR, STATUS, ARCHIVE, LOCK = range(6)
"""Descriptors of the sandbox's first process: `go` comes by stdin, the run's lock goes to bubblewrap's --sync-fd."""


class Rank:
    def __init__(self, number: int, plan: dict[str, Any], log: LogFile) -> None:
        self.number, self.plan, self.log = number, plan, log
        self.pid = self.init = self.go_pipe = self.pidfd = self.status_pipe = self.log_pipe = -1
        self.said = b""
        self.ready = self.went = self.ran = False
        self.failure: str | None = None
        self.code: int | None = None
        self.ended_by: str | None = None
        self.drain_until: float | None = None
        self.started_at: float | None = None
        self.outcome: dict[str, Any] | None = None

    def spawn(self, lock: int) -> None:
        archive = os.open(self.plan["archive"], os.O_RDONLY | os.O_CLOEXEC) if self.plan["archive"] else None
        going, self.go_pipe = os.pipe()
        self.status_pipe, saying = os.pipe()
        self.log_pipe, printing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(
                {STDIN: going, STDOUT: printing, STDERR: printing, STATUS: saying, ARCHIVE: archive, LOCK: lock}
            )
        self.pidfd = os.pidfd_open(self.pid)
        for fd in (going, saying, printing, archive):
            if fd is not None:
                os.close(fd)

    def _become(self, descriptors: dict[int, int | None]) -> None:
        """The child: join the control groups, become the account, turn into the sandbox. Never returns."""
        try:
            _arrange(descriptors)
            for name in ("SIGPIPE", "SIGXFSZ"):
                _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
            os.umask(0o022)
            for group in self.plan["cgroups"]:
                _write(group["path"] + "/cgroup.procs", "0")
            if self.plan["kept"]:
                keeper.adopt_orphans()
            if identity := self.plan["identity"]:
                os.setgroups(identity["groups"])
                os.setgid(identity["gid"])
                os.setuid(identity["uid"])
            if self.plan["kept"]:
                keeper.keep(self.plan["argv"], self.plan["env"])
            os.execve(self.plan["argv"][0], self.plan["argv"], self.plan["env"])  # noqa: S606
        except BaseException as error:
            os.write(STDERR, f"{error}\n".encode(errors="replace"))
        finally:
            os._exit(126)

    def go(self, now: float) -> None:
        self.went, self.started_at = True, now
        self.init = self._open_init()
        try:
            os.write(self.go_pipe, b"go\n")
        except BrokenPipeError:
            return  # it has just died; its end says how

    def _open_init(self) -> int:
        """A handle on PID 1 of the sandbox: when that has ended, everything inside has."""
        child = None if self.plan["kept"] else first_child(self.pid)
        try:
            return os.pidfd_open(child) if child else -1
        except OSError:
            return -1

    def hear(self) -> None:
        """What the first process says before `run`: ready, run, or `failed` and a sentence."""
        data = os.read(self.status_pipe, 4096)
        if not data:
            os.close(self.status_pipe)
            self.status_pipe = -1
            return
        *lines, self.said = (self.said + data).split(b"\n")
        for line in lines:
            word, _, rest = line.partition(b" ")
            self.ready |= word == b"ready"
            self.ran |= word == b"run"
            if word == b"failed" and self.failure is None:
                self.failure = rest.decode(errors="replace")

    def copy_log(self, now: float) -> None:
        data = os.read(self.log_pipe, 1 << 16)
        if data:
            self.log.write(data, now)
        else:
            self.close_log()

    def close_log(self) -> None:
        os.close(self.log_pipe)
        self.log_pipe = -1

    def terminate(self) -> None:
        if self.went:
            terminate_tree(self.pid, 0 if self.plan["kept"] else 1)
        else:
            self.kill()

    def kill(self) -> None:
        """End of file on its pipe tells a first process that still waits, and a keeper at any time."""
        if self.go_pipe >= 0:
            os.close(self.go_pipe)
            self.go_pipe = -1
        if self.code is None and not self.plan["kept"]:
            signal(self.pid, KILL)

    def reap(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        self.code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)
        os.close(self.pidfd)
        self.pidfd = -1


def _arrange(descriptors: dict[int, int | None]) -> None:
    """Put each descriptor at its place; first all of them out of the way."""
    safe = {place: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for place, fd in descriptors.items() if fd is not None}
    for place, fd in safe.items():
        os.dup2(fd, place, inheritable=True)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
