"""One node of a run, or one index of an array, that was started: its pipes, sandbox, log and end."""

from __future__ import annotations

import os
import time

from penstock.engines.shared.exit_codes import NEVER_STARTED, describe, mebibytes
from penstock.engines.shared.logfile import LogFile
from penstock.engines.shared.processes import first_child, read_count

from .mounts import find_exchanged, mount_inside
from .processes import CONT, KILL, STOP, TERM, exit_code, signal, terminate_rest, terminate_tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it is slow
    from typing import Any

    from .start import Started

LONGEST_SAYING = 300
DRAIN_SECONDS = 5.0
"""How long output may still come after a node's processes are gone; that happens only if they handed their pipe on."""
LIMITS = {"time": "TIME_LIMIT", "disk": "DISK_LIMIT"}


def boottime() -> float:
    """Return a time that counts on while the machine sleeps, and that no clock setting moves."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def unit(number: int, *, array: bool) -> dict[str, int]:
    return {"rank": 0, "index": number} if array else {"rank": number, "index": 0}


class Rank:
    def __init__(self, number: int, plan: dict[str, Any], log: LogFile, place: int | None = None) -> None:
        self.number, self.plan, self.log, self.place = number, plan, log, place
        self.pid = self.init = self.go_pipe = self.pidfd = self.status_pipe = self.log_pipe = -1
        self.held: list[int] = []
        """Descriptors of what is to be mounted, until it is."""
        self.said = b""
        self.ready = self.went = self.ran = self.paused = self.spared = False
        self.failure: str | None = None
        self.code: int | None = None
        self.ended_by: str | None = None
        """`stop`, `time`, `disk`, or `other` (the end of another node)."""
        self.why: str | None = None
        """The message about it."""
        self.drain_until: float | None = None
        self.kill_at: float | None = None
        self.time_up_at: float | None = None
        self.started_at: float | None = None

    @property
    def unit(self) -> dict[str, int]:
        """Name a part in records: a node has a rank, a part of an array an index."""
        return unit(self.number, array=self.place is not None)

    def attach(self, node: Started) -> None:
        self.pid, self.go_pipe, self.status_pipe, self.log_pipe, self.held = node
        self.pidfd = os.pidfd_open(self.pid)

    def prepare_mounts(self) -> bool:
        """Check what was mounted in the sandbox, and mount what belongs inside volumes. If anything is wrong, the node
        ends."""
        try:
            self.failure = find_exchanged(self.pid, self.plan["held"], self.held)
            if self.plan["inside"] and not self.failure:
                self.failure = mount_inside(self.pid, self.plan)
        except FileNotFoundError:  # it has just died; its end says how
            self.ready = False
        except OSError as error:
            self.failure = f"The sandbox could not be looked into: {error.strerror}."
        self._let_go()
        if self.failure or not self.ready:
            self.kill()
        return not self.failure and self.ready

    def _let_go(self) -> None:
        for fd in self.held:
            if fd >= 0:
                os.close(fd)
        self.held = []

    def go(self, now: float) -> None:
        self.went, self.started_at = True, now
        self.init = self._open_init()
        try:
            os.write(self.go_pipe, b"go\n")
        except BrokenPipeError:
            return  # it has just died; its end says how

    def _open_init(self) -> int:
        """Return a handle on PID 1 of the sandbox: when that has ended, everything inside has."""
        child = None if self.plan["kept"] else first_child(self.pid)
        try:
            return os.pidfd_open(child) if child else -1
        except OSError:
            return -1

    def read_status(self) -> None:
        """Read what the first process reports before `run`: ready, run, or `failed` and a message."""
        data = os.read(self.status_pipe, 4096)
        *lines, self.said = (self.said + data).split(b"\n")
        if not data or len(self.said) > LONGEST_SAYING:  # `setup` can write here, too: nobody listens to a flood
            os.close(self.status_pipe)
            self.status_pipe = -1
        for line in lines:
            word, _, rest = line.partition(b" ")
            self.ready |= word == b"ready"
            self.ran |= word == b"run"
            if word == b"failed" and self.failure is None:
                self.failure = rest[:LONGEST_SAYING].decode(errors="replace")

    def copy_log(self) -> None:
        data = os.read(self.log_pipe, 1 << 16)
        if data:
            self.log.write(data, time.time())
        else:
            os.close(self.log_pipe)
            self.log_pipe = -1

    def close(self) -> None:
        """Close all pipes; output that could still come is lost."""
        for fd in (self.log_pipe, self.status_pipe, self.init):
            if fd >= 0:
                os.close(fd)
        self.log_pipe = self.status_pipe = self.init = -1
        self._let_go()
        self.log.close()

    def end(self, by: str, why: str | None, kill_at: float) -> None:
        """Send TERM now and KILL then; a second call can only bring the KILL forward."""
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        if self.ended_by is None and self.code is None:
            self.ended_by, self.why = by, why
            self.terminate()

    def terminate(self) -> None:
        """Send TERM to everything inside, and let it end in its own time.

        The node's first process may be a shell that dies of the TERM at once, while what it started still saves its
        work. Bubblewrap would then end and take all of it along; as long as it is stopped, its PID 1 waits for the last
        process instead. A keeper is told to do the same.
        """
        if not self.went:
            self.kill()
            return
        if self.plan["kept"]:
            signal(self.pid, TERM)
        elif self.init >= 0:
            self.paused = True
            signal(self.pid, STOP)
        self.spared = terminate_tree(self.pid, sandboxed=not self.plan["kept"])

    def terminate_rest(self) -> None:
        if self.spared and self.code is None:
            self.spared = not terminate_rest(self.pid, sandboxed=not self.plan["kept"])

    def resume(self) -> None:
        """Let bubblewrap go on: PID 1 of the sandbox has ended, and with it everything inside."""
        os.close(self.init)
        self.init = -1
        if self.paused:
            self.paused = False
            signal(self.pid, CONT)

    def kill(self) -> None:
        """Close its pipe, which ends a first process that still waits, and a keeper at any time; then KILL."""
        if self.go_pipe >= 0:
            os.close(self.go_pipe)
            self.go_pipe = -1
        if self.code is None and not self.plan["kept"]:
            signal(self.pid, KILL)

    def reap(self) -> None:
        """Take note of the end of its first process."""
        _, status = os.waitpid(self.pid, 0)
        self.code = exit_code(status)
        os.close(self.pidfd)
        self.pidfd = -1
        self.kill()
        self.drain_until = boottime() + DRAIN_SECONDS


# -- how it ended ------------------------------------------------------------------------------------------------


def outcome(rank: Rank, ended_at: float) -> dict[str, Any]:
    memory = rank.plan["memory"]
    peak = read_count(memory["peak"]) if memory["peak"] else None
    state, reason, message = _verdict(rank, peak)
    code = rank.code or 0
    if state == "CRASHED" and not code:
        code = 124 if reason == "TIME_LIMIT" else 1  # whoever waits for it must not take it for a success
    return {
        **rank.unit,
        "state": state,
        "reason": reason,
        "message": message,
        "exit_code": code if rank.went else None,
        "started_at": rank.started_at,
        "ended_at": max(ended_at, rank.started_at or 0),
        "peak_memory_bytes": peak,
    }


def stopped(unit: dict[str, int], message: str | None, now: float) -> dict[str, Any]:
    """Return the record of a part that was stopped before it began."""
    record = {**unit, "state": "STOPPED", "reason": "STOPPED_BY_USER", "message": message, "exit_code": None}
    return record | {"started_at": None, "ended_at": now, "peak_memory_bytes": None}


def _verdict(rank: Rank, peak: int | None) -> tuple[str, str, str | None]:
    code = rank.code or 0
    if rank.ended_by == "stop":
        return "STOPPED", "STOPPED_BY_USER", NEVER_STARTED if rank.place is not None and not rank.went else None
    if rank.ended_by in LIMITS:
        return "CRASHED", LIMITS[rank.ended_by], rank.why
    if rank.ended_by:
        return "STOPPED", "ANOTHER_NODE_ENDED", rank.why
    if rank.failure:
        return "CRASHED", "LAUNCH_FAILED", rank.failure
    if not rank.went:
        what = "Its first process could not be started" if rank.plan["kept"] else "The sandbox could not be made"
        return "CRASHED", "LAUNCH_FAILED", f"{what}: {_last_line(rank.log.recent)} Fix: penstock doctor tells more."
    if code and (sentence := _out_of_memory(rank.plan["memory"], peak)):
        return "CRASHED", "OUT_OF_MEMORY", sentence
    if not rank.ran:
        return "CRASHED", "SETUP_FAILED", f"setup ended with {describe(code)}; run did not start."
    if code:
        return "CRASHED", "PROGRAM_FAILED", f"run ended with {describe(code)}."
    return "EXITED", "FINISHED", None


def _out_of_memory(memory: dict[str, Any], peak: int | None) -> str | None:
    if not memory["oom"] or not read_count(memory["oom"], "oom_kill"):
        return None
    used = f"; it used up to {mebibytes(peak)}" if peak else ""
    return f"It went over its memory limit of {memory['limit_text']}{used}."


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return f"{lines[-1][-300:].rstrip('.')}." if lines else "it said nothing."
