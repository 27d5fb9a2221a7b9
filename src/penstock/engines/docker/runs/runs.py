"""Start, stop, report and remove runs. What is, is read from containers."""

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
from penstock.engines.docker.runs.start import ActiveRun, RunStarter
from penstock.engines.docker.runs.steps import LaunchSteps
from penstock.engines.docker.settings import ContainerSettings
from penstock.engines.docker.state import RunSnapshot, due_in, has_failed, report, total_of, was_stopped
from penstock.engines.shared.wakeup import Changes
from penstock.errors import Unavailable

log = logging.getLogger(__name__)
RETRY, LONGEST_RETRY = 0.5, 10.0
OUTSIDE = "outside"
"""The timer for an end of which it is not known yet who caused it."""


class DockerRuns:
    def __init__(self, hosts: DockerHosts, launching: LaunchSteps, changes: Changes, made: ContainerSettings) -> None:
        self._hosts, self._changes = hosts, changes
        self._starts = RunStarter(hosts, launching, changes.tell, made)
        self._kept: dict[Run, ActiveRun] = {}
        self._active: set[Run] = set()
        """Runs that are not over by the records."""
        self._tasks = Tasks()

    async def close(self) -> None:
        """What runs goes on; what was being started is found again by the next server."""
        for kept in self._kept.values():
            for timer in kept.timers.values():
                timer.cancel()
        await self._starts.close()
        await self._tasks.close()

    def all(self) -> list[Run]:
        known = self._hosts.runs() | {run for run, kept in self._kept.items() if kept.bringing}
        return sorted(known, key=lambda run: (run.workload_id, run.attempt))

    def left_over(self) -> list[ContainerRecord]:
        """Containers that run although nobody asked for them."""
        return [
            seen for link in self._hosts.links() for seen in link.all() if seen.runs and seen.run not in self._active
        ]

    def _of(self, run: Run) -> ActiveRun:
        return self._kept.setdefault(Run(run.workload_id, run.attempt), ActiveRun())

    # -- start -------------------------------------------------------------------------------------------------------

    async def start(self, launch: Launch) -> None:
        """Returns at once: what becomes of it is told."""
        run, kept = Run(launch.workload_id, launch.attempt), self._of(Run(launch.workload_id, launch.attempt))
        kept.launch = launch
        self._active.add(run)
        if kept.bringing or kept.cancelled_at or kept.failed:
            return
        if kept.grace is not None and not any(seen.began for seen in self._hosts.parts(run).values()):
            kept.cancelled_at = now()
            self._changes.tell(run)
            return
        self._starts.bring(run, kept, launch)

    def remind(self, launch: Launch) -> None:
        kept = self._of(Run(launch.workload_id, launch.attempt))
        kept.launch = kept.launch or launch

    # -- what is -----------------------------------------------------------------------------------------------------

    def observe(self, run: Run) -> Report:
        return report(self._snapshot(run))

    def _snapshot(self, run: Run) -> RunSnapshot:
        kept = self._kept.get(run) or ActiveRun()
        doing = kept.bringing
        return RunSnapshot(
            run=run,
            containers=self._hosts.parts(run),
            hosts=self._hosts.states(),
            now=now(),
            launch=kept.launch,
            starting=Step(state=doing.state, reason=doing.reason, message=doing.message) if doing else None,
            steps=tuple(kept.steps),
            failed=kept.failed,
            over_disk=kept.full,
            stopped=kept.grace is not None,
            cancelled_at=kept.cancelled_at,
        )

    # -- what is due -------------------------------------------------------------------------------------------------

    def advance(self, run: Run) -> None:
        """Start what can start now, end the peers of a node that failed, and look again when a doubt has passed. Raise
        HeldUp, once, where a start has to wait."""
        kept, snapshot = self._of(run), self._snapshot(run)
        self._active.add(run)
        if kept.bringing and (held := kept.bringing.held_up):
            kept.bringing = None
            kept.steps.clear()
            raise held
        if seconds := due_in(snapshot):
            self._tell_later(run, kept, seconds)
        launch = kept.launch
        if launch is None or not snapshot.containers or kept.grace is not None or launch.spec.parts == 1:
            return
        if launch.spec.array is not None or not has_failed(snapshot):
            self._starts.bring(run, kept, launch)
            return
        for seen in snapshot.containers.values():
            if seen.runs and seen.id not in kept.told:
                self._tasks.start(self._tell_kindly(kept, seen))

    def _tell_later(self, run: Run, kept: ActiveRun, seconds: float) -> None:
        def tell() -> None:
            del kept.timers[OUTSIDE]
            self._changes.tell(run)

        if OUTSIDE not in kept.timers:
            kept.timers[OUTSIDE] = asyncio.get_running_loop().call_later(seconds + 0.05, tell)

    def settle(self, run: Run) -> None:
        """Its end is in the records: whatever runs of it from now on, nobody asked for."""
        self._active.discard(run)

    # -- stop --------------------------------------------------------------------------------------------------------

    async def stop(self, run: Run, grace: int) -> None:
        kept = self._of(run)
        parts = self._hosts.parts(run)
        if parts and all(seen.over for seen in parts.values()) and not self._more_to_come(kept, parts):
            if kept.grace is None and any(was_stopped(seen) for seen in parts.values()):
                kept.grace = grace  # by a server that is gone
            return
        placed = {seen.host for seen in parts.values()} or set(run.hosts)
        if placed and (away := self._hosts.away(placed)):
            raise Unavailable(f"{away[0]}: it is told to stop as soon as its node answers.")
        sooner = kept.grace is None or grace < kept.grace
        kept.grace = grace if kept.grace is None else min(kept.grace, grace)
        await self._stop_bringing(run, kept)
        for seen in self._hosts.parts(run).values():
            if seen.prepared:
                await self._hosts.link(seen.host).remove(seen)
            elif seen.runs:
                await self._tell(kept, seen, grace)
        if sooner:  # whoever hears of it asks again
            self._changes.tell(run)

    def _more_to_come(self, kept: ActiveRun, parts: Mapping[int, ContainerRecord]) -> bool:
        return kept.bringing is not None or len(parts) + len(kept.failed) < total_of(kept.launch, parts)

    async def _stop_bringing(self, run: Run, kept: ActiveRun) -> None:
        bringing = kept.bringing
        if bringing is None or bringing.task is None:
            return
        bringing.task.cancel()
        await asyncio.gather(bringing.task, return_exceptions=True)
        kept.bringing = None
        await self._look_again(run)
        if not any(seen.began for seen in self._hosts.parts(run).values()):
            kept.cancelled_at = now()

    async def _look_again(self, run: Run) -> None:
        """At containers whose start was cut off: it may have happened all the same."""
        for seen in self._hosts.parts(run).values():
            if not seen.over:
                await self._hosts.link(seen.host).look(seen.id)

    async def _tell(self, kept: ActiveRun, seen: ContainerRecord, grace: int) -> None:
        link = self._hosts.link(seen.host)
        timer = kept.timers.get(seen.id)
        left = timer.when() - asyncio.get_running_loop().time() if timer else 0.0
        if timer and seen.id in kept.told and left <= grace:  # told before, and its time is running or up
            if left <= 0:
                await link.api.kill(seen.id, "KILL")
            return
        if timer:
            del kept.timers[seen.id]
            timer.cancel()
        if grace <= 0:
            await link.api.kill(seen.id, "KILL")
            return
        if seen.id not in kept.told:
            kept.told.add(seen.id)
            try:
                await link.api.kill(seen.id, "TERM")
            except BaseException:
                kept.told.discard(seen.id)
                raise
        kept.timers[seen.id] = asyncio.get_running_loop().call_later(grace, self._kill, seen)

    def _kill(self, seen: ContainerRecord) -> None:
        self._tasks.start(self._kill_now(seen))

    async def _kill_now(self, seen: ContainerRecord) -> None:
        backoff = Backoff(RETRY, LONGEST_RETRY)
        while (known := self._hosts.parts(seen.run).get(seen.part)) and known.id == seen.id and known.runs:
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
        kept = self._of(run)
        for seen in self._hosts.parts(run).values():
            self._watch_time(kept, seen)

    async def _tell_kindly(self, kept: ActiveRun, seen: ContainerRecord) -> None:
        with suppress(DockerError):
            await self._tell(kept, seen, seen.grace)

    def _watch_time(self, kept: ActiveRun, seen: ContainerRecord) -> None:
        watched = kept.timers.get(seen.id)
        if seen.runs and watched and (seen.id in kept.told or watched.when() > asyncio.get_running_loop().time()):
            return
        if not seen.runs and (timer := kept.timers.pop(seen.id, None)):
            timer.cancel()
        if not seen.runs or seen.has_bash or not seen.max_duration or seen.started_at is None:
            return
        link = self._hosts.get(seen.host)
        theirs = now() + link.skew if link else now()
        ran = min(max((theirs - seen.started_at).total_seconds(), 0), seen.max_duration)
        kept.timers[seen.id] = asyncio.get_running_loop().call_later(
            seen.max_duration - ran + 0.05, lambda: self._tasks.start(self._tell_kindly(kept, seen))
        )

    async def over_its_disk(self, seen: ContainerRecord, said: str) -> None:
        kept = self._of(seen.run)
        kept.full[seen.part] = said
        await self._tell(kept, seen, seen.grace)

    # -- afterwards --------------------------------------------------------------------------------------------------

    async def remove(self, run: Run) -> None:
        if (kept := self._kept.get(run)) and kept.bringing and kept.bringing.task:
            kept.bringing.task.cancel()
            await asyncio.gather(kept.bringing.task, return_exceptions=True)
        if away := self._hosts.away(run.hosts) if run.hosts else []:
            raise Unavailable(f"{away[0]}: it is removed there as soon as it answers.")
        for link in self._hosts.links():
            for seen in link.of(run):
                if not seen.gone:
                    link.require()
                await link.remove(seen)
        if kept:
            for timer in kept.timers.values():
                timer.cancel()
        self._kept.pop(run, None)
        self._active.discard(run)
