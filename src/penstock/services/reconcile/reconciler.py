"""Bring the store, which says what is wanted, and the engine, which has what is, together, one workload at a time.

A step reads the record, asks the engine, acts, and writes what it saw. Every step can be repeated, so a crash between
any two lines is mended by taking the step again: on start all active workloads are stepped once. A workload is stepped
when it was submitted, stopped or deleted, when what it waits for has ended, when its next attempt is due, and when the
engine says that its run changed; never just because time has passed.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial

from penstock.background import Backoff, Tasks
from penstock.domain.attempts import KEPT
from penstock.domain.model import now
from penstock.domain.quantities import parse_duration
from penstock.domain.states import WAITING, State
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine, Run, Settles
from penstock.errors import PenstockError
from penstock.services.reconcile.expiry import Expiry
from penstock.services.reconcile.holds import StartConditions
from penstock.services.reconcile.step import RunSteps
from penstock.services.scheduler.queue import JobQueue
from penstock.services.wakeup import Wakeup
from penstock.services.workloads.uploads import Uploads
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
RETRY = 1.0
LONGEST_RETRY = 30.0
DAY = 24 * 3600
"""How long an engine keeps an ended run besides its log, for those who look at the cluster itself."""


class Reconciler:
    def __init__(
        self,
        db: Database,
        engine: Engine,
        settings: Settings,
        uploads: Uploads,
        wakeup: Wakeup,
        queue: JobQueue,
    ) -> None:
        self._db = db
        self._engine = engine
        self._wakeup = wakeup
        self._queue = queue
        self._runs = RunSteps(db, engine, uploads, parse_duration(settings.stop_grace), self._touch_later)
        self._conditions = StartConditions(db, self.touch)
        self._expiry = Expiry(db, uploads, timedelta(seconds=parse_duration(settings.retention)), self.touch)
        self._steps: set[str] = set()
        """Workloads that are looked at now."""
        self._again: set[str] = set()
        """Those of them that changed meanwhile."""
        self._backoffs: dict[str, Backoff] = {}
        self._tasks = Tasks()
        self._launching = asyncio.Semaphore(8)

    # life

    async def open(self) -> None:
        active, deleted = await self._db.read(lambda tx: (tx.workloads.active(), tx.workloads.deleted()))
        for workload in active:
            self._remember(workload)
        for workload in deleted:
            self.touch(workload.id)
        loops = [self._watch_engine(), *self._expiry.loops(), self._settle_again(active)]
        for loop in loops:
            self._tasks.start(loop)

    async def close(self) -> None:
        await self._tasks.close()

    # what the other services tell

    def submitted(self, workload: Workload) -> None:
        """Take up a workload that is new, or has a new attempt."""
        self._remember(workload)

    def touch(self, workload_id: str) -> None:
        """Look at this workload soon, once: something about it changed."""
        if workload_id in self._steps:
            self._again.add(workload_id)
        else:
            self._steps.add(workload_id)
            self._tasks.start(self._step_until_quiet(workload_id))

    def _touch_later(self, workload_id: str, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.touch, workload_id)

    # one workload

    def _remember(self, workload: Workload) -> None:
        """Take up a workload that has not ended: it goes into the queue at once where nothing else can be the
        matter."""
        waits = workload.state in WAITING
        if waits and self._queue.active and not self._conditions.concern(workload):
            self._queue.enqueue(workload)
            return
        if not waits:
            self._queue.hold(workload)
        self.touch(workload.id)

    async def _step_until_quiet(self, workload_id: str) -> None:
        try:
            while True:
                self._again.discard(workload_id)
                await self._step(workload_id)
                self._backoffs.pop(workload_id, None)
                if workload_id not in self._again:
                    break
        except (PenstockError, OSError) as error:
            log.warning("%s: %s; trying again", workload_id, error)
            self._touch_later(workload_id, self._pause(workload_id))
        except Exception:
            log.exception("%s: a defect; trying again", workload_id)
            self._touch_later(workload_id, 10 * self._pause(workload_id))
        finally:
            self._steps.discard(workload_id)

    def _pause(self, workload_id: str) -> float:
        return self._backoffs.setdefault(workload_id, Backoff(RETRY, LONGEST_RETRY)).next()

    async def _step(self, workload_id: str) -> None:
        workload = await self._db.read(lambda tx: tx.workloads.get(workload_id))
        if workload is None or workload.state is State.DELETED:
            if workload:
                await self._remove(workload)
            self._over(workload_id)
        elif workload.ended:
            if self._engine.schedules and workload.launched < workload.attempt:  # a start that seemed lost may succeed
                await self._engine.remove(Run.of(workload))
            self._over(workload_id)
        elif workload.state in WAITING and workload.launched < workload.attempt:
            await self._begin(workload)
        elif workload.state not in WAITING or not self._queue.active:
            await self._advance(workload)

    async def _begin(self, workload: Workload) -> None:
        """Find out what an attempt that was not started waits for; without anything it is started."""
        held_up = await self._conditions.look(workload)
        if held_up:
            self._wakeup.wake(workload.id)
            if held_up.ended:
                self._end(held_up)
        elif self._queue.active:
            self._queue.enqueue(workload)
        else:
            await self._advance(workload)

    async def _advance(self, workload: Workload) -> None:
        async with self._launching:
            after = await self._runs.advance(workload)
        self._wakeup.wake(workload.id)
        if workload.launched < after.launched and workload.attempt > 1:
            # Not sooner: until then it is all that the engine has of this workload.
            self._tasks.start(self._settle(Run.of(workload, workload.attempt - 1), 0))
        if after.ended:
            self._end(after)
        elif after.attempt > workload.attempt:
            self._queue.release(workload.id)
            self._remember(after)
            await self._forget(after)
        elif after.state in WAITING:
            self._give_back(after)
        elif after.started_at and not workload.started_at:
            self._queue.hold(after)  # when it ends at the latest is known from now on

    def _give_back(self, workload: Workload) -> None:
        """Queue a workload that has lost its place: at once, or when it may be tried again."""
        if not self._queue.active:
            return
        if workload.not_before is None:
            self._queue.give_back(workload)
        else:
            self._queue.release(workload.id)
            self._remember(workload)

    def _end(self, workload: Workload) -> None:
        if workload.launched < workload.attempt and workload.attempt > 1:
            self._tasks.start(self._settle(Run.of(workload, workload.attempt - 1), 0))
        self._tasks.start(self._settle(Run.of(workload), _kept(workload, workload.attempt)))
        self._over(workload.id)
        self._expiry.ended(workload)

    def _over(self, workload_id: str) -> None:
        self._queue.release(workload_id)
        self._conditions.ended(workload_id)

    async def _remove(self, workload: Workload) -> None:
        for attempt in range(workload.attempt, 0, -1):
            await self._engine.remove(Run.of(workload, attempt))
        await self._db.write(lambda tx: tx.workloads.remove(workload.id))

    async def _forget(self, workload: Workload) -> None:
        """Remove the oldest attempt if there is one too many by now."""
        oldest = workload.attempt - KEPT
        if oldest > 0 and not workload.spec.array:
            await self._engine.remove(Run.of(workload, oldest))

    async def _settle(self, run: Run, keep: int) -> None:
        """Tell the engine that the end is written, until it has heard it."""
        if not isinstance(self._engine, Settles):
            return
        backoff = Backoff(RETRY, LONGEST_RETRY)
        while True:
            try:
                await self._engine.settle(run, keep)
                return
            except (PenstockError, OSError) as error:
                log.warning("%s, attempt %s, cannot be settled: %s", run.workload_id, run.attempt, error)
            await backoff.pause()

    async def _settle_again(self, active: list[Workload]) -> None:
        """Tell the engine of all ends that are written: a crash may have come between the two."""
        attempts = {workload.id: workload.launched for workload in active}
        recent = now() - timedelta(seconds=DAY)
        ended = set(await self._db.read(lambda tx: tx.workloads.ended_since(recent)))
        for run in await self._runs_there():
            if run.attempt < attempts.get(run.workload_id, 0):
                await self._settle(run, 0)
            elif run.workload_id in ended:
                workload = await self._db.read(partial(_get, run.workload_id))
                if workload and workload.ended:
                    self.touch(workload.id)
                    await self._settle(run, _kept(workload, run.attempt))

    async def _runs_there(self) -> list[Run]:
        while True:
            try:
                return await self._engine.runs()
            except (PenstockError, OSError):
                await asyncio.sleep(LONGEST_RETRY)

    async def _watch_engine(self) -> None:
        while True:
            try:
                async for run in self._engine.changes():
                    self.touch(run.workload_id)
            except (PenstockError, OSError) as error:
                log.warning("the engine tells of no changes: %s; trying again", error)
            await asyncio.sleep(RETRY)
            for workload in await self._db.read(lambda tx: tx.workloads.active()):
                self.touch(workload.id)  # what happened meanwhile was told to nobody


def _get(workload_id: str, tx: Store) -> Workload | None:
    return tx.workloads.get(workload_id)


def _kept(workload: Workload, attempt: int) -> int:
    """Return for how many seconds an ended run stays: an attempt that was followed by another is of no use any more."""
    if workload.attempt > attempt:
        return 0
    return DAY if workload.spec.ttl is None else min(workload.spec.ttl, DAY)
