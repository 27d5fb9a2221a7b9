"""The supervisor's life once its sandboxes are on their way: begin, watch, end."""

from __future__ import annotations

import os
import select
import sys
import time

from .durable import dumps, replace, reserve, write_all, write_new
from .erase import erase
from .logfile import LogFile
from .outcome import describe, outcome
from .processes import read_text, remove_group
from .rank import Rank

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it costs 12 ms
    from typing import Any

    from .start import Started

DRAIN_SECONDS = 5.0
"""How long output may still come after a node's processes are gone; it does so only if they handed their pipe on."""

LOOK_SECONDS = 0.1
"""How often to look, while a run is stopping, whether nothing is left of it but the ends of pipes."""


def boottime() -> float:
    """Counts on while the machine sleeps, and no clock setting moves it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Supervisor:
    def __init__(self, plan: dict[str, Any], control: int, say: int, started: list[Started]) -> None:
        self.plan, self.control, self.say = plan, control, say
        self.ranks = [Rank(n, rank, LogFile("logs", n, plan["log_limit"])) for n, rank in enumerate(plan["ranks"])]
        for rank, node in zip(self.ranks, started, strict=False):
            rank.take(node)
        self.events = -1
        self.ending: str | None = None
        self.kill_at: float | None = None
        self.time_up_at: float | None = None

    def run(self) -> None:
        self._begin()
        self._answer()
        while any(rank.outcome is None for rank in self.ranks):
            self._turn()
        self._end()

    def _answer(self) -> None:
        os.write(self.say, b"1")
        os.close(self.say)

    def _begin(self) -> None:
        """The sandboxes are made while the disk works; their payloads wait for `go`, and that waits for `began`."""
        try:
            self.events = os.open("events", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            reserve("result.json", 4096 + 1024 * len(self.ranks))
            self._write_began()
        except OSError as error:
            self.give_up(error)
        for rank in self.ranks:
            rank.log.open()

    def _write_began(self) -> None:
        boot = (read_text("/proc/sys/kernel/random/boot_id") or "").strip()
        record = {"boot_id": boot, "pid": os.getpid(), "nodes": len(self.ranks), "gpus": self.plan["gpus"]}
        write_new(
            "began",
            dumps(record | {"at": time.time(), "cgroups": self._groups(), "log_limit": self.plan["log_limit_text"]}),
        )

    def give_up(self, error: OSError) -> None:
        """Nothing has run and nothing will: the server may try again."""
        print(error, file=sys.stderr, flush=True)
        for rank in self.ranks:
            if rank.pid > 0:
                rank.kill()
                os.waitpid(rank.pid, 0)
        for path in self._groups():
            remove_group(path)
        os._exit(1)

    def _groups(self) -> list[str]:
        return [group["path"] for rank in self.ranks for group in rank.plan["cgroups"]]

    # -- watching ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        poll = select.poll()
        handlers: dict[int, tuple[str, Rank | None]] = {self.control: ("control", None)}
        for rank in self.ranks:
            for what, fd in (("log", rank.log_pipe), ("status", rank.status_pipe), ("pid", rank.pidfd)):
                if fd >= 0:
                    handlers[fd] = (what, rank)
        for fd in handlers:
            poll.register(fd, select.POLLIN)
        for rank in self.ranks:
            if (rank.code is not None or rank.held) and rank.outcome is None and rank.init >= 0:
                poll.register(rank.init, select.POLLIN)
                handlers[rank.init] = ("init", rank)
        for fd, _ in poll.poll(self._timeout()):
            self._handle(*handlers[fd])
        self._check_times()
        if not self.ending and not self.ranks[0].went and all(r.ready and r.code is None for r in self.ranks):
            self._go()
        for rank in self.ranks:
            self._settle(rank)

    def _handle(self, what: str, rank: Rank | None) -> None:
        if rank is None:
            os.read(self.control, 4096)
            grace = self._stop_grace()
            if grace is not None:
                self._end_all("stop", grace)
        elif what == "log":
            rank.copy_log(time.time())
        elif what == "status":
            rank.hear()
        elif what == "pid":
            rank.reap()
            rank.kill()
            rank.drain_until = boottime() + DRAIN_SECONDS
        else:
            rank.emptied()

    def _timeout(self) -> int | None:
        """Milliseconds to the next thing due; a minute at most, since poll does not count the time asleep."""
        due = [moment for moment in (self.kill_at, self.time_up_at) if moment is not None]
        if any(rank.spared and rank.code is None for rank in self.ranks):
            due.append(boottime() + LOOK_SECONDS)
        due += [rank.drain_until for rank in self.ranks if rank.drain_until is not None and rank.outcome is None]
        return min(max(int((min(due) - boottime()) * 1000) + 1, 0), 60_000) if due else None

    def _check_times(self) -> None:
        now = boottime()
        if self.time_up_at is not None and now >= self.time_up_at:
            self.time_up_at = None
            self._end_all("time", self.plan["grace"])
        for rank in self.ranks:
            rank.terminate_rest()
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            for rank in self.ranks:
                if rank.outcome is None:
                    rank.kill()

    def _go(self) -> None:
        now = time.time()
        for rank in self.ranks:
            rank.go(now)
            self._event({"rank": rank.number, "event": "go", "at": now})
        if self.plan["max_duration"]:
            self.time_up_at = boottime() + self.plan["max_duration"]

    def _settle(self, rank: Rank) -> None:
        """A node has ended when its processes are gone and its output is read to the end."""
        if rank.code is None or rank.outcome is not None:
            return
        late = rank.drain_until is not None and boottime() >= rank.drain_until
        if (rank.log_pipe >= 0 or rank.init >= 0 or rank.status_pipe >= 0) and not late:
            return
        if rank.log_pipe >= 0:
            rank.close_log()
        rank.log.close()
        rank.outcome = outcome(rank, self.plan, time.time())
        self._event(rank.outcome | {"event": "ended"})
        self._mark_end(rank)
        if rank.outcome["state"] == "CRASHED" and not self.ending:
            said = describe(rank.code) if rank.went else "its sandbox not made"
            self._end_all(f"Node {rank.number} ended with {said}; the others were stopped.", self.plan["grace"])

    # -- ending --------------------------------------------------------------------------------------------------

    def _stop_grace(self) -> int | None:
        text = read_text("stop")
        return None if text is None else int(text or 0)

    def _end_all(self, why: str, grace: int) -> None:
        """TERM to all that live, KILL after the grace; a later call can only bring the KILL forward."""
        deadline = boottime() + grace
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)
        if self.ending:
            return
        self.ending = why
        for rank in self.ranks:
            if rank.code is None:
                rank.ended_by = why
                rank.terminate()

    def _mark_end(self, rank: Rank) -> None:
        """Wakes those who follow the log; on a full disk the result does."""
        try:
            fd = os.open(f"logs/rank-{rank.number}.end", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            os.write(fd, b"\n")
        except OSError:
            return
        finally:
            os.close(fd)

    def _event(self, event: dict[str, Any]) -> None:
        try:
            write_all(self.events, (dumps(event) + "\n").encode())
        except OSError:
            return  # a full disk: the result will say it

    def never_ran(self) -> None:
        """It was stopped before it began."""
        now = time.time()
        for rank in self.ranks:
            rank.ended_by = "stop"
            rank.outcome = outcome(rank, self.plan, now)
        self._end()
        self._answer()

    def _end(self) -> None:
        """What was private goes first: a run that reads as ended has left nothing behind but its log."""
        for path in self.plan["private"]:
            try:
                erase(path)
            except OSError as error:
                print(f"{path}: {error}", file=sys.stderr)
        for path in self._groups():
            remove_group(path)
        text = dumps({"units": [rank.outcome for rank in self.ranks]})
        while True:
            try:
                replace("result.json", text)
                return
            except FileNotFoundError:
                return  # the run's directory was removed: nobody wants to know
            except OSError as error:
                print(f"result.json: {error}; trying again", file=sys.stderr)
                time.sleep(1)
