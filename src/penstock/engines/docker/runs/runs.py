"""Start, stop, observe and remove runs. What is, is read from containers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from penstock.background import Backoff, Tasks
from penstock.domain.model import now
from penstock.engines.base import Launch, Report, Run, Step
from penstock.engines.docker.api.errors import DockerError
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.runs.start import ActiveRun, RunStart
from penstock.engines.docker.runs.steps import LaunchSteps
from penstock.engines.docker.settings import ContainerSettings
from penstock.engines.docker.state import DockerRunSnapshot, due_in, has_failed, report, total_of, was_stopped
from penstock.engines.shared.wakeup import Changes
from penstock.errors import Unavailable

log = logging.getLogger(__name__)
RETRY, LONGEST_RETRY = 0.5, 10.0
OUTSIDE = "outside"
"""The timer for an end of which it is not known yet who caused it."""


class DockerRuns:
    def __init__(self, hosts: DockerHosts, steps: LaunchSteps, changes: Changes, made: ContainerSettings) -> None:
        self._hosts, self._steps, self._changes, self._made = hosts, steps, changes, made
        self._runs: dict[Run, ActiveRun] = {}
        self._wanted: set[Run] = set()
        """Runs that are not over by the records."""
        self._tasks = Tasks()

    async def close(self) -> None:
        """Stop looking. What runs goes on; what was being started is found again by the next server."""
        for active in self._runs.values():
            for timer in active.timers.values():
                timer.cancel()
        await self._tasks.close()

    def all(self) -> list[Run]:
        known = self._hosts.runs() | {run for run, active in self._runs.items() if active.start}
        return sorted(known, key=lambda run: (run.workload_id, run.attempt))

    def left_over(self) -> list[ContainerRecord]:
        """Containers that run although nobody asked for them."""
        return [
            seen for link in self._hosts.links() for seen in link.all() if seen.runs and seen.run not in self._wanted
        ]

    def _of(self, run: Run) -> ActiveRun:
        return self._runs.setdefault(Run(run.workload_id, run.attempt), ActiveRun())

    # -- start -------------------------------------------------------------------------------------------------------

    async def start(self, launch: Launch) -> None:
        """Begin a start and return at once: what becomes of it is a change of the run."""
        run = launch.run
        active = self._of(run)
        active.launch = launch
        self._wanted.add(run)
        if active.start or active.cancelled_at or active.failed:
            return
        if active.grace is not None and not any(seen.began for seen in self._hosts.parts(run).values()):
            active.cancelled_at = now()
            self._changes.tell(run)
            return
        self._begin(active, launch)

    def _begin(self, active: ActiveRun, launch: Launch) -> None:
        """Start in the background what can start now, unless a start is under way."""
        self._hosts.recall(launch.run)
        if active.start or active.given_up:
            return
        start = RunStart(self._hosts, self._steps, self._made, self._changes.tell, active, launch)
        if start.has_work():
            active.start = start
            start.task = self._tasks.start(start.work())

    def remind(self, launch: Launch) -> None:
        active = self._of(launch.run)
        active.launch = active.launch or launch

    # -- what is -----------------------------------------------------------------------------------------------------

    def observe(self, run: Run) -> Report:
        return report(self._snapshot(run))

    def _snapshot(self, run: Run) -> DockerRunSnapshot:
        active = self._runs.get(run) or ActiveRun()
        doing = active.start
        return DockerRunSnapshot(
            run=run,
            containers=self._hosts.parts(run),
            hosts=self._hosts.states(),
            now=now(),
            launch=active.launch,
            starting=Step(state=doing.state, reason=doing.reason, message=doing.message) if doing else None,
            steps=tuple(active.steps),
            failed=active.failed,
            over_disk=active.over_disk,
            stopped=active.grace is not None,
            cancelled_at=active.cancelled_at,
        )

    # -- what is due -------------------------------------------------------------------------------------------------

    def advance(self, run: Run) -> None:
        """Start what can start now, end the peers of a node that failed, and look again when a doubt has passed. Raise
        HeldUp, once, where a start has to wait."""
        active, snapshot = self._of(run), self._snapshot(run)
        self._wanted.add(run)
        if active.start and (held := active.start.held_up):
            active.start = None
            active.steps.clear()
            raise held
        if seconds := due_in(snapshot):
            self._tell_later(run, active, seconds)
        launch = active.launch
        if launch is None or not snapshot.containers or active.grace is not None or launch.spec.parts == 1:
            return
        if launch.spec.array is not None or not has_failed(snapshot):
            self._begin(active, launch)
            return
        for seen in snapshot.containers.values():
            if seen.runs and seen.id not in active.told:
                self._tasks.start(self._tell_kindly(active, seen))

    def _tell_later(self, run: Run, active: ActiveRun, seconds: float) -> None:
        def tell() -> None:
            del active.timers[OUTSIDE]
            self._changes.tell(run)

        if OUTSIDE not in active.timers:
            active.timers[OUTSIDE] = asyncio.get_running_loop().call_later(seconds + 0.05, tell)

    def settle(self, run: Run) -> None:
        """Take note that its end is in the records: whatever runs of it from now on, nobody asked for."""
        self._wanted.discard(run)

    # -- stop --------------------------------------------------------------------------------------------------------

    async def stop(self, run: Run, grace: int) -> None:
        active = self._of(run)
        parts = self._hosts.parts(run)
        if parts and all(seen.over for seen in parts.values()) and not self._more_to_come(active, parts):
            if active.grace is None and any(was_stopped(seen) for seen in parts.values()):
                active.grace = grace  # by a server that is gone
            return
        placed = {seen.host for seen in parts.values()} or set(run.hosts)
        if placed and (away := self._hosts.away(placed)):
            raise Unavailable(f"{away[0]}: it is told to stop as soon as its node answers.")
        sooner = active.grace is None or grace < active.grace
        active.grace = grace if active.grace is None else min(active.grace, grace)
        if active.start:
            await active.start.cancel()
            await self._look_again(run, active)
        for seen in self._hosts.parts(run).values():
            if seen.prepared:
                await self._hosts.link(seen.host).remove(seen)
            elif seen.runs:
                await self._tell(active, seen, grace)
        if sooner:  # whoever hears of it asks again
            self._changes.tell(run)

    def _more_to_come(self, active: ActiveRun, parts: Mapping[int, ContainerRecord]) -> bool:
        return active.start is not None or len(parts) + len(active.failed) < total_of(active.launch, parts)

    async def _look_again(self, run: Run, active: ActiveRun) -> None:
        """Look at containers whose start was cut off: it may have happened all the same."""
        for seen in self._hosts.parts(run).values():
            if not seen.over:
                await self._hosts.link(seen.host).look(seen.id)
        if not any(seen.began for seen in self._hosts.parts(run).values()):
            active.cancelled_at = now()

    async def _tell_kindly(self, active: ActiveRun, seen: ContainerRecord) -> None:
        with suppress(DockerError):
            await self._tell(active, seen, seen.grace)

    async def _tell(self, active: ActiveRun, seen: ContainerRecord, grace: int) -> None:
        link = self._hosts.link(seen.host)
        timer = active.timers.get(seen.id)
        left = timer.when() - asyncio.get_running_loop().time() if timer else 0.0
        if timer and seen.id in active.told and left <= grace:  # told before, and its time is running or up
            if left <= 0:
                await link.api.kill(seen.id, "KILL")
            return
        if timer:
            del active.timers[seen.id]
            timer.cancel()
        if grace <= 0:
            await link.api.kill(seen.id, "KILL")
            return
        if seen.id not in active.told:
            active.told.add(seen.id)
            try:
                await link.api.kill(seen.id, "TERM")
            except BaseException:
                active.told.discard(seen.id)
                raise
        active.timers[seen.id] = asyncio.get_running_loop().call_later(
            grace, lambda: self._tasks.start(self._kill(seen))
        )

    async def _kill(self, seen: ContainerRecord) -> None:
        backoff = Backoff(RETRY, LONGEST_RETRY)
        while self._hosts.still_runs(seen):
            try:
                await self._hosts.link(seen.host).api.kill(seen.id, "KILL")
                return
            except Exception as error:  # whatever it is: what was told to end must not go on
                said = "%s could not be killed: %s; trying again"
                log.warning(said, seen.name, error, exc_info=not isinstance(error, DockerError))
            await backoff.pause()

    # -- its limits ----------------------------------------------------------------------------------------------------

    def watch(self, run: Run) -> None:
        """Set the timers of programs without a minder, which cannot look at the clock themselves. They do not wait for
        whoever keeps the records: a time limit is kept also while the database does not answer."""
        active = self._of(run)
        for seen in self._hosts.parts(run).values():
            self._watch_time(active, seen)

    def _watch_time(self, active: ActiveRun, seen: ContainerRecord) -> None:
        watched = active.timers.get(seen.id)
        if seen.runs and watched and (seen.id in active.told or watched.when() > asyncio.get_running_loop().time()):
            return
        if not seen.runs and (timer := active.timers.pop(seen.id, None)):
            timer.cancel()
        if not seen.runs or seen.has_bash or not seen.max_duration or seen.started_at is None:
            return
        link = self._hosts.get(seen.host)
        theirs = now() + link.skew if link else now()
        ran = min(max((theirs - seen.started_at).total_seconds(), 0), seen.max_duration)
        active.timers[seen.id] = asyncio.get_running_loop().call_later(
            seen.max_duration - ran + 0.05, lambda: self._tasks.start(self._tell_kindly(active, seen))
        )

    async def over_its_disk(self, seen: ContainerRecord, said: str) -> None:
        active = self._of(seen.run)
        active.over_disk[seen.part] = said
        await self._tell(active, seen, seen.grace)

    # -- afterwards --------------------------------------------------------------------------------------------------

    async def remove(self, run: Run) -> None:
        active = self._of(run)
        if active.start:
            await active.start.cancel()
        if away := self._hosts.away(run.hosts) if run.hosts else []:
            raise Unavailable(f"{away[0]}: it is removed there as soon as it answers.")
        for link in self._hosts.links():
            for seen in link.of(run):
                if not seen.gone:
                    link.require()
                await link.remove(seen)
        for timer in active.timers.values():
            timer.cancel()
        self._runs.pop(run, None)
        self._wanted.discard(run)
