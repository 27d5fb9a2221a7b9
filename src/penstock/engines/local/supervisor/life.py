"""Supervise a run once its sandboxes are being made: begin, watch, end.

The nodes of a run belong together: they go when all are ready, and when one fails the others are ended. The indexes of
an array have nothing to do with each other but a stop.
"""

from __future__ import annotations

import os
import select
import time

from penstock.engines.shared.exit_codes import NEVER_STARTED, describe
from penstock.engines.shared.files import complain, dumps, replace, reserve, write_all, write_new
from penstock.engines.shared.logfile import LogFile
from penstock.engines.shared.processes import read_text

from .directories import erase
from .processes import remove_group
from .rank import Rank, boottime, outcome, stopped, unit

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it is slow
    from collections.abc import Callable
    from typing import Any

    from .start import Started

LOOK_SECONDS = 0.1
"""How often to look, while a run is stopping, whether only the ends of pipes are left of it."""

DISK_GRACE = 1
"""The most seconds between TERM and KILL for what fills the disk; the kubelet gives no more."""


class Supervisor:
    def __init__(self, plan: dict[str, Any], control: int, say: int, tree: int, started: list[Started]) -> None:
        self.plan, self.control, self.say = plan, control, say
        if any(rank["inside"] for rank in plan["ranks"]):
            from . import enter  # noqa: F401  (now: an upgrade may put another in its place before the next index)
        self.array: IndexQueue | None = None
        if plan["array"]:
            from .array import IndexQueue

            self.array = IndexQueue(plan, tree)
        self.scans: DiskScans | None = None
        if plan["ranks"][0]["disk"]:
            from .disk import DiskScans

            self.scans = DiskScans(plan["disk_scan"])
        self.numbers: list[int] = plan["array"] or list(range(len(plan["ranks"])))
        self.ranks = [self._rank(place, number) for place, number in enumerate(self.numbers[: len(plan["ranks"])])]
        """Nodes or indexes that have not ended."""
        for rank, node in zip(self.ranks, started, strict=False):
            rank.attach(node)
        self.ended: dict[int, str] = {}
        """The records of those that have ended."""
        self.events = -1
        self.ending = False
        self.stop_grace: int | None = None

    def _rank(self, place: int, number: int) -> Rank:
        log = LogFile("logs", number, self.plan["log_limit"])
        return Rank(number, self.plan["ranks"][place], log, place if self.array else None)

    def run(self) -> None:
        self._begin()
        self._answer()
        while self.ranks or (self.array and self.array.busy):
            self._turn()
        self._end()

    def _answer(self) -> None:
        os.write(self.say, b"1")
        os.close(self.say)

    def _begin(self) -> None:
        """Write `began` while the sandboxes are made; their payloads wait for `go`, and that waits for `began`."""
        try:
            self.events = os.open("events", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            reserve("result.json", 4096 + (400 if self.array else 1024) * len(self.numbers))
            self._write_began()
        except OSError as error:
            self.give_up(error)

    def _write_began(self) -> None:
        boot = (read_text("/proc/sys/kernel/random/boot_id") or "").strip()
        record = {
            "boot_id": boot,
            "pid": os.getpid(),
            "nodes": 0 if self.array else len(self.numbers),
            "array": len(self.numbers) if self.array else None,
            "gpus": self.plan["gpus"],
            "at": time.time(),
            "cgroups": self._groups(),
            "log_limit": self.plan["log_limit_text"],
            "log_segment": self.ranks[0].log.size,
        }
        write_new("began", dumps(record))

    def give_up(self, error: OSError) -> None:
        """Give up before anything has run: the server may try again."""
        complain(error)
        for rank in self.ranks:
            if rank.pid > 0:
                rank.kill()
                os.waitpid(rank.pid, 0)
        for path in self._groups():
            remove_group(path)
        os._exit(1)

    def _groups(self) -> list[str]:
        return [group["path"] for rank in self.plan["ranks"] for group in rank["cgroups"]]

    # -- watching ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        poll = select.poll()
        handlers = self._descriptors()
        for fd in handlers:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(self._timeout()):
            handlers[fd]()
        self._check_times()
        self._go_if_ready()
        for rank in list(self.ranks):
            self._settle(rank)
        self._start_waiting()

    def _descriptors(self) -> dict[int, Callable[[], None]]:
        """Return what is to be done when a descriptor can be read."""
        found: dict[int, Callable[[], None]] = {self.control: self._hear_stop}
        for rank in self.ranks:
            found |= {rank.log_pipe: rank.copy_log, rank.status_pipe: rank.read_status, rank.pidfd: rank.reap}
            if rank.code is not None or rank.paused:
                found[rank.init] = rank.resume
        if self.array:
            found |= dict.fromkeys(self.array.handles, self.array.cleaned)
        if self.scans:
            found[self.scans.pipe] = self._look_at_sizes
        found.pop(-1, None)  # what is closed
        return found

    def _hear_stop(self) -> None:
        os.read(self.control, 4096)
        grace = self._stop_grace()
        if grace is not None and (self.stop_grace is None or grace < self.stop_grace):
            self.stop_grace = grace
            self._event({"event": "stop", "at": time.time(), "grace": grace})
            self._end_all("stop", None, grace)

    def _timeout(self) -> int | None:
        """Return the milliseconds to the next thing due; a minute at most, since poll does not count the time
        asleep."""
        if self.array and self.array.ready:
            return 0
        due = [moment for rank in self.ranks for moment in (rank.kill_at, rank.time_up_at, rank.drain_until)]
        if any(rank.spared and rank.code is None for rank in self.ranks):
            due.append(boottime() + LOOK_SECONDS)
        if self.scans:
            due.append(self.scans.due)
        known = [moment for moment in due if moment is not None]
        return min(max(int((min(known) - boottime()) * 1000) + 1, 0), 60_000) if known else None

    def _check_times(self) -> None:
        now = boottime()
        late = [rank for rank in self.ranks if rank.time_up_at is not None and now >= rank.time_up_at]
        for rank in late:
            rank.time_up_at = None
            self._end_for("time", rank, f"It ran longer than max_duration ({self.plan['max_duration_text']}).")
        for rank in self.ranks:
            rank.terminate_rest()
            if rank.kill_at is not None and now >= rank.kill_at:
                rank.kill_at = None
                rank.kill()
        if self.scans and self.scans.due is not None and now >= self.scans.due:
            self.scans.begin(self.ranks, now)

    def _look_at_sizes(self) -> None:
        from .disk import exceeded

        found = (self.scans.read_sizes(boottime()) if self.scans else None) or {}
        for rank in self.ranks:
            if rank.number in found and (said := exceeded(rank.plan["disk"], found[rank.number])):
                self._end_for("disk", rank, said)

    # -- starting ------------------------------------------------------------------------------------------------

    def _go_if_ready(self) -> None:
        ready = [rank for rank in self.ranks if rank.ready and rank.code is None and not rank.went and not rank.failure]
        if self.ending or not ready or (self.array is None and len(ready) < len(self.numbers)):
            return
        checked = len(ready)
        ready = [rank for rank in ready if rank.prepare_mounts()]
        if not ready or (self.array is None and len(ready) < checked):
            return
        now, begin = time.time(), boottime()
        for rank in ready:
            rank.go(now)
            self._event({**rank.unit, "event": "go", "at": now, "pid": rank.pid, "place": rank.place})
            if self.plan["max_duration"]:
                rank.time_up_at = begin + self.plan["max_duration"]
        if self.scans:
            self.scans.plan(begin)

    def _start_waiting(self) -> None:
        while self.array and (found := self.array.take()):
            place, index, tries = found
            rank = self._rank(place, index)
            try:
                rank.attach(self.array.start(place, index))
            except OSError as error:
                if not self.array.put_back(place, index, tries, error):
                    rank.failure = f"It could not be started: {error.strerror or error}."
                    self._write_end(rank)
                continue
            self.ranks.append(rank)

    # -- ending --------------------------------------------------------------------------------------------------

    def _settle(self, rank: Rank) -> None:
        """Record the end of a node once its processes are gone and its output is read to the end."""
        if rank.code is None:
            return
        late = rank.drain_until is not None and boottime() >= rank.drain_until
        if (rank.log_pipe >= 0 or rank.init >= 0 or rank.status_pipe >= 0) and not late:
            return
        self.ranks.remove(rank)
        rank.close()
        crashed = self._write_end(rank) == "CRASHED"
        if self.array and rank.place is not None:
            self.array.clean(rank.place)
        elif crashed and not self.ending:
            said = f"ended with {describe(rank.code)}" if rank.went else "could not be started"
            why = f"Node {rank.number} {said}; the others were stopped."
            self._end_all("other", why, self.plan["grace"])

    def _write_end(self, rank: Rank) -> str:
        record = outcome(rank, time.time())
        self.ended[rank.number] = dumps(record)
        self._event(record | {"event": "ended"})
        self._mark_end(rank)
        return str(record["state"])

    def _stop_grace(self) -> int | None:
        text = read_text("stop")
        return None if text is None else int(text or 0)

    def _end_for(self, limit: str, rank: Rank, why: str) -> None:
        """End a node that is over a limit; if it is one of several, end all of them."""
        self._event({**rank.unit, "event": "limit", "at": time.time(), "limit": limit, "message": why})
        grace = self.plan["grace"]
        rank.end(limit, why, boottime() + (min(grace, DISK_GRACE) if limit == "disk" else grace))
        if limit == "disk" and self.array is None:
            why = f"Node {rank.number} went over its disk limit; the others were stopped."
            self._end_all("other", why, grace)

    def _end_all(self, by: str, why: str | None, grace: int) -> None:
        """Send TERM to all that live, and KILL after the grace."""
        self.ending = True
        if self.array:
            self.array.stop()
        deadline = boottime() + grace
        for rank in self.ranks:
            rank.end(by, why, deadline)

    def _mark_end(self, rank: Rank) -> None:
        """Wake those who follow the log; on a full disk the result does."""
        try:
            with open(f"logs/rank-{rank.number}.end", "w") as file:  # noqa: PTH123
                file.write("\n")
        except OSError:
            return

    def _event(self, event: dict[str, Any]) -> None:
        try:
            write_all(self.events, (dumps(event) + "\n").encode())
        except OSError:
            return  # a full disk: the result will say it

    def never_ran(self) -> None:
        """End a run that was stopped before it began."""
        self._end()
        self._answer()

    def _end(self) -> None:
        """Erase what was private, then write the result: a run that reads as ended has left nothing behind but its
        log."""
        for path in self.plan["private"]:
            try:
                erase(path)
            except OSError as error:
                complain(f"{path}: {error}")
        for path in self._groups():
            remove_group(path)
        text = f'{{"units": [{", ".join(self._records())}]}}'
        while True:
            try:
                replace("result.json", text)
                return
            except FileNotFoundError:
                return  # the run's directory was removed: nobody wants to know
            except OSError as error:
                complain(f"result.json: {error}; trying again")
                time.sleep(1)

    def _records(self) -> list[str]:
        """Return how each ended; those without a record were stopped before their turn."""
        array, now = self.array is not None, time.time()
        said = NEVER_STARTED if array else None
        return [
            self.ended.get(number) or dumps(stopped(unit(number, array=array), said, now)) for number in self.numbers
        ]
