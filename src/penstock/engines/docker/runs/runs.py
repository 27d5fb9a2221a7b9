"""Start, stop, report and remove runs. What is, is read from containers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

from penstock.domain.model import now
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import Launch, Presence, Report, Run, Step
from penstock.engines.docker.api.errors import ApiError
from penstock.engines.docker.api.objects import Seen
from penstock.engines.docker.hosts import Hosts
from penstock.engines.docker.runs.start import Kept, Starts, began, is_array, total_of
from penstock.engines.docker.runs.steps import Launching
from penstock.engines.docker.settings import ContainerSettings
from penstock.engines.docker.state import Wanted, doubtful, ends_others, never_ran, never_started, units, was_stopped
from penstock.engines.shared.wakeup import Changes
from penstock.errors import Unavailable

log = logging.getLogger(__name__)
RETRY, LONGEST_RETRY = 0.5, 10.0
OUTSIDE_PATIENCE = 20.0
"""Seconds: Docker ends its containers up to a quarter of a minute before it ends itself."""
BESIDE = {"reason": Reason.ANOTHER_NODE_ENDED, "message": "Another node had ended before it started."}
STILL_RUNNING = {"state": State.RUNNING, "reason": None, "message": None, "exit_code": None, "ended_at": None}


class Runs:
    def __init__(self, hosts: Hosts, launching: Launching, changes: Changes, made: ContainerSettings) -> None:
        self._hosts, self._changes = hosts, changes
        self._starts = Starts(hosts, launching, changes.tell, self.care, made)
        self._kept: dict[Run, Kept] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """What runs goes on; what was being started is found again by the next server."""
        for kept in self._kept.values():
            for timer in kept.timers.values():
                timer.cancel()
        tasks = [*self._tasks, *(k.bringing.task for k in self._kept.values() if k.bringing and k.bringing.task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def all(self) -> list[Run]:
        known = self._hosts.runs() | {run for run, kept in self._kept.items() if kept.bringing}
        return sorted(known, key=lambda run: (run.workload_id, run.attempt))

    def left_over(self) -> list[Seen]:
        """What runs although nobody asked for it."""
        running = [seen for link in self._hosts.links() for seen in link.all() if seen.runs]
        return [seen for seen in running if seen.run not in self._kept or not self._kept[seen.run].asked_for]

    def _of(self, run: Run) -> Kept:
        return self._kept.setdefault(Run(run.workload_id, run.attempt), Kept())

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- start -------------------------------------------------------------------------------------------------------

    async def start(self, launch: Launch) -> None:
        """Returns at once: what becomes of it is told."""
        run, kept = Run(launch.workload_id, launch.attempt), self._of(Run(launch.workload_id, launch.attempt))
        kept.launch, kept.asked_for = launch, True
        if kept.bringing or kept.never or kept.failed:
            return
        parts = self._parts(run)
        if kept.grace is not None and not any(seen.began for seen in parts.values()):
            kept.never = never_ran(launch)
            self._changes.tell(run)
            return
        self._starts.bring(run, kept, launch)

    def remind(self, launch: Launch) -> None:
        kept = self._of(Run(launch.workload_id, launch.attempt))
        kept.launch = kept.launch or launch

    # -- what is -----------------------------------------------------------------------------------------------------

    def observe(self, run: Run) -> Report:
        """Of one that is not over by the records: what it still lacks is brought up. Raise HeldUp, once, where that
        has to wait."""
        kept = self._of(run)
        if held := kept.held_up:
            kept.held_up = None
            raise held
        if not kept.asked_for:
            kept.asked_for = True
            self.care(run)
        report = self.report(run)
        kept.asked_for = report.presence not in (Presence.ended, Presence.lost)
        return report

    def report(self, run: Run) -> Report:
        kept = self._kept.get(run) or Kept()
        report = self._report(run, kept)
        if not kept.steps:
            return report
        if any(unit.started_at for unit in report.units) and not began(kept):
            kept.steps.append(Step(state=State.LAUNCHED, reason=Reason.STARTED, message="Docker has started it"))
        return report.model_copy(update={"steps": tuple(kept.steps)})

    def _report(self, run: Run, kept: Kept) -> Report:
        if kept.never:
            return kept.never
        parts = self._parts(run)
        found = units(parts, self._wanted(kept)) | kept.failed
        if not found:
            return self._not_begun(run, kept)
        total, array = total_of(kept, parts), is_array(kept, parts)
        waiting = self._awaited(run, kept, parts)
        for part in waiting:
            found[part] = found[part].model_copy(update=STILL_RUNNING)
        listed = [found[part] for part in sorted(found)]
        open_ = [unit for unit in listed if unit.ended_at is None]
        if not open_ and kept.grace is not None and kept.bringing is None:
            listed = self._with_unstarted(run, kept, parts, found)
        elif not open_ and array and len(found) < total:
            return Report(presence=Presence.running, units=tuple(listed), message=self._drained(kept, found))
        elif not open_ and not array and kept.bringing is None and self._has_failed(kept, parts):
            listed = [
                unit if unit.rank in found else unit.model_copy(update=BESIDE)
                for unit in self._with_unstarted(run, kept, parts, found)
            ]
        if open_ or len(listed) < total:
            return self._running(parts, listed, self._drained(kept, found))
        return Report(presence=Presence.ended, units=tuple(listed))

    def _parts(self, run: Run) -> dict[int, Seen]:
        """Where nothing of it is there, what someone removed before this server looked: it is not started again."""
        if not (found := self._hosts.parts(run)):
            for link in self._hosts.links():
                link.recall(run)
            found = self._hosts.parts(run)
        return found

    def _awaited(self, run: Run, kept: Kept, parts: Mapping[int, Seen]) -> list[int]:
        """Parts that someone ended a moment ago: was it Docker, which is just being restarted?"""
        found = [seen.part for seen in parts.values() if seen.unheard]
        for seen in doubtful(parts, self._wanted(kept)):
            link = self._hosts.get(seen.host)
            left = OUTSIDE_PATIENCE - (now() + link.skew - (seen.ended_at or now())).total_seconds() if link else 0.0
            if link and (left > 0 or not link.looked.is_set()):
                found.append(seen.part)
                self._tell_later(run, f"outside {seen.id}", min(left, OUTSIDE_PATIENCE))
        return found

    def _tell_later(self, run: Run, what: str, seconds: float) -> None:
        timers = self._of(run).timers

        def tell() -> None:
            timers.pop(what, None)
            self._changes.tell(run)

        if seconds > 0 and what not in timers:
            timers[what] = asyncio.get_running_loop().call_later(seconds + 0.05, tell)

    def _running(self, parts: Mapping[int, Seen], listed: list[Unit], said: str | None) -> Report:
        """Where a host does not answer it is in doubt, and says so; nothing is started in its place."""
        away = self._hosts.away({seen.host for seen in parts.values() if not seen.over})
        if any(seen.runs for seen in parts.values()) and away:
            said = f"{away[0]}: whether it still runs is not known; its node is asked again every few seconds"
            return Report(
                presence=Presence.running,
                units=tuple(listed),
                message=said,
                state=State.UNKNOWN,
                reason=Reason.NODE_LOST,
            )
        return Report(presence=Presence.running, units=tuple(listed), message=said)

    def _drained(self, kept: Kept, found: Mapping[int, Unit]) -> str | None:
        """Why what is left of an array does not begin, where no node takes any more of it."""
        launch = kept.launch
        left = [index for index in launch.indexes if index not in found] if launch else []
        if launch is None or not left or not (drained := self._hosts.drained(launch.hosts)):
            return None
        if {*launch.hosts} - {*drained, *self._hosts.missing(launch.hosts)}:
            return None
        is_ = "is" if len(drained) == 1 else "are"
        return f"{', '.join(drained)} {is_} in maintenance: {len(left)} of its indexes wait until that is over"

    def _not_begun(self, run: Run, kept: Kept) -> Report:
        if kept.bringing:
            doing = kept.bringing
            return Report(presence=Presence.waiting, state=doing.state, reason=doing.reason, message=doing.message)
        if missing := self._hosts.missing(run.hosts):
            said = f"Its node {missing[0]} is not registered any more: what became of it is not known."
            return Report(presence=Presence.lost, message=said)
        if away := self._hosts.away(run.hosts):
            raise Unavailable(f"{away[0]}: whether it runs there is not known; it is asked again.")
        return Report(presence=Presence.absent)

    def _with_unstarted(self, run: Run, kept: Kept, parts: Mapping[int, Seen], found: dict[int, Unit]) -> list[Unit]:
        """Of one that was stopped: those whose turn never came."""
        array = is_array(kept, parts)
        launch = kept.launch
        all_parts = (launch.indexes or range(launch.spec.nodes)) if launch else range(total_of(kept, parts))
        unstarted = {part: never_started(run.attempt, part, array=array, at=now()) for part in all_parts}
        return [(unstarted | found)[part] for part in sorted({*unstarted, *found})]

    def _wanted(self, kept: Kept) -> Wanted:
        outages = {link.host.name: link.outages for link in self._hosts.links()}
        lacking = [unit for unit in kept.failed.values() if kept.launch and kept.launch.spec.array is None]
        without = f"Node {lacking[0].rank} has no container." if lacking else None
        return Wanted(stopped=kept.grace is not None, full=kept.full, outages=outages, without=without)

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
        kept.held_up = None
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

    def _more_to_come(self, kept: Kept, parts: Mapping[int, Seen]) -> bool:
        return kept.bringing is not None or len(parts) + len(kept.failed) < total_of(kept, parts)

    async def _stop_bringing(self, run: Run, kept: Kept) -> None:
        bringing = kept.bringing
        if bringing is None or bringing.task is None:
            return
        bringing.task.cancel()
        await asyncio.gather(bringing.task, return_exceptions=True)
        kept.bringing = None
        await self._look_again(run)
        if not any(seen.began for seen in self._hosts.parts(run).values()):
            kept.never = never_ran(bringing.launch)

    async def _look_again(self, run: Run) -> None:
        """At containers whose start was cut off: it may have happened all the same."""
        for seen in self._hosts.parts(run).values():
            if not seen.over:
                await self._hosts.link(seen.host).look(seen.id)

    async def _tell(self, kept: Kept, seen: Seen, grace: int) -> None:
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

    def _kill(self, seen: Seen) -> None:
        self._later(self._kill_now(seen))

    async def _kill_now(self, seen: Seen) -> None:
        pause = RETRY
        while (known := self._hosts.parts(seen.run).get(seen.part)) and known.id == seen.id and known.runs:
            try:
                await self._hosts.link(seen.host).api.kill(seen.id, "KILL")
                return
            except Exception as error:  # whatever it is: what was told to end must not go on
                said = "%s could not be killed: %s; trying again"
                log.warning(said, seen.name, error, exc_info=not isinstance(error, ApiError))
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_RETRY)

    # -- what has to be done for those that run ------------------------------------------------------------------------

    def care(self, run: Run) -> None:
        """Something changed: ends the nodes of one that failed, starts the next of an array, watches the time."""
        kept, parts = self._of(run), self._hosts.parts(run)
        launch = kept.launch
        for seen in parts.values():
            self._watch_time(kept, seen)
        if launch is None or len(parts) < 1 or kept.grace is not None or not kept.asked_for:
            return
        if launch.spec.array is not None:
            self._starts.bring(run, kept, launch)
        elif launch.spec.nodes > 1:
            self._end_peers(run, kept, parts, launch)

    def _end_peers(self, run: Run, kept: Kept, parts: Mapping[int, Seen], launch: Launch) -> None:
        if not self._has_failed(kept, parts):
            self._starts.bring(run, kept, launch)
            return
        for seen in parts.values():
            if seen.runs and seen.id not in kept.told:
                self._later(self._tell_kindly(kept, seen))

    def _has_failed(self, kept: Kept, parts: Mapping[int, Seen]) -> bool:
        """Is one of its nodes to blame, so that none of the others is started any more?"""
        wanted = self._wanted(kept)
        return any(ends_others(seen, wanted) for seen in parts.values()) or bool(kept.failed)

    async def _tell_kindly(self, kept: Kept, seen: Seen) -> None:
        with suppress(ApiError):
            await self._tell(kept, seen, seen.grace)

    def _watch_time(self, kept: Kept, seen: Seen) -> None:
        """Of programs without a minder: those look at the clock themselves."""
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
            seen.max_duration - ran + 0.05, lambda: self._later(self._tell_kindly(kept, seen))
        )

    async def over_its_disk(self, seen: Seen, said: str) -> None:
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
        self._kept.pop(Run(run.workload_id, run.attempt), None)
