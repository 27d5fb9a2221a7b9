"""Watch the GPUs of running workloads and report those that do nothing.

What cannot be seen is never called idle. The clock of a workload is in memory: after a restart, and after every look at
which not all of its GPUs could be seen, it starts anew. That it was reported stands in its record, so it is not again
before its GPUs have worked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import NamedTuple

from penstock.background import Tasks
from penstock.domain.policy import Verb
from penstock.domain.quantities import parse_duration, show_duration
from penstock.domain.states import Reason, State
from penstock.domain.users import Caller, Group, Proof
from penstock.domain.workloads import Wants, Workload
from penstock.engines.base import Engine, Run
from penstock.errors import PenstockError
from penstock.services import audit
from penstock.services.people.people import People
from penstock.services.reconcile.reconciler import Reconciler
from penstock.services.wakeup import Wakeup
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire.measures import GpuMeasure

log = logging.getLogger(__name__)
OURSELVES = "(penstock)"
"""The user in the audit; no real one can be called so."""
MISSED = 4
"""After so many missed looks nothing is known of the time between."""


class GpuLook(NamedTuple):
    """The GPUs of a workload as they were seen at one look."""

    gpus: int
    utilizations: tuple[int, ...]
    """In percent, of the GPUs that could be seen."""
    memory_bytes: int

    @property
    def known(self) -> bool:
        return 0 < self.gpus == len(self.utilizations)


@dataclass
class IdleClock:
    """What is remembered of a workload's GPUs from look to look."""

    at: float
    memory_bytes: int
    idle_since: float | None


@dataclass(frozen=True)
class IdleFinding:
    workload: Workload
    gpus: int
    seen_ms: int
    busy_ms: int
    idle_seconds: float | None
    """None: its GPUs work, or nobody knows."""
    works: bool


class Idle:
    def __init__(
        self, db: Database, engine: Engine, settings: Settings, people: People, reconciler: Reconciler, wakeup: Wakeup
    ) -> None:
        self._db = db
        self._engine = engine
        self._people = people
        self._reconciler = reconciler
        self._wakeup = wakeup
        self._every = parse_duration(settings.gpu_sample)
        self._clocks: dict[Run, IdleClock] = {}
        self._tasks = Tasks()

    async def open(self) -> None:
        self._tasks.start(self._watch())

    async def close(self) -> None:
        await self._tasks.close()

    async def _watch(self) -> None:
        while True:
            try:
                await self.look()
            except (PenstockError, OSError) as error:
                log.warning("what the GPUs do cannot be looked at: %s", error)
            except Exception:
                log.exception("what the GPUs do: a defect")
            await asyncio.sleep(self._every)

    async def look(self) -> None:
        workloads = await self._db.read(_with_gpus)
        use = await self._engine.gpu_use(workloads) if workloads else {}
        moment = monotonic()
        seen = [self._seen(workload, sample_of(use.get(workload.id, ())), moment) for workload in workloads]
        there = {Run.of(workload) for workload in workloads}
        self._clocks = {run: clock for run, clock in self._clocks.items() if run in there}
        told = [each for each in seen if each.seen_ms or each.idle_seconds is not None]
        if told:
            for workload in await self._db.write(partial(self._write, told)):
                self._wakeup.wake(workload.id)
                self._reconciler.touch(workload.id)

    def _seen(self, workload: Workload, sample: GpuLook, moment: float) -> IdleFinding:
        run = Run.of(workload)
        before = self._clocks.get(run)
        if before and moment - before.at > MISSED * self._every:
            before = None
        self._clocks[run] = clock = following(before, sample, moment)
        passed = int(1000 * (moment - before.at)) if before else 0
        return IdleFinding(
            workload,
            sample.gpus,
            seen_ms=passed * len(sample.utilizations),
            busy_ms=passed * sum(sample.utilizations) // 100,
            idle_seconds=None if clock.idle_since is None else moment - clock.idle_since,
            works=any(sample.utilizations),
        )

    def _write(self, seen: Sequence[IdleFinding], tx: Store) -> list[Workload]:
        """Write what was found and return the workloads that changed."""
        changed = []
        for each in seen:
            tx.usage.saw(each.workload.id, each.seen_ms, each.busy_ms)
            found = tx.workloads.get(each.workload.id)
            if found and _runs(found) and found.attempt == each.workload.attempt:
                after = judged(tx, found, each, self._people.group(found.group))
                changed += [after] if after is not found else []
        return changed


def sample_of(gpus: Sequence[GpuMeasure | None]) -> GpuLook:
    there = [gpu for gpu in gpus if gpu]
    utilizations = tuple(gpu.utilization for gpu in there if gpu.utilization is not None)
    return GpuLook(len(gpus), utilizations, sum(gpu.memory_used_bytes or 0 for gpu in there))


def following(before: IdleClock | None, sample: GpuLook, moment: float) -> IdleClock:
    """Advance the clock. GPUs are idle when all are seen, none computes, and none has more in its memory than
    before."""
    grows = before is not None and sample.memory_bytes > before.memory_bytes
    if not sample.known or any(sample.utilizations) or grows:
        return IdleClock(moment, sample.memory_bytes, None)
    since = before.idle_since if before else None
    return IdleClock(moment, sample.memory_bytes, moment if since is None else since)


def judged(tx: Store, workload: Workload, seen: IdleFinding, group: Group | None) -> Workload:
    """Report an idle workload, and stop it where its group says so. Returns the same workload where there is nothing to
    do."""
    reported = workload.reason is Reason.GPUS_IDLE
    if seen.works and reported:
        return tx.workloads.remark(workload, Reason.STARTED, "its GPUs work again", tell=False)
    timeout = workload.spec.idle_timeout or (group.idle_timeout if group else None)
    if timeout is None or seen.idle_seconds is None or seen.idle_seconds < timeout:
        return workload
    stops = group is not None and group.stop_idle
    if reported and not stops:
        return workload
    said = _sentence(seen.gpus, int(seen.idle_seconds), timeout)
    if not stops:
        return tx.workloads.remark(workload, Reason.GPUS_IDLE, said, tell=True)
    said = f"{said}; its group {workload.group} stops such workloads"
    reported_now = tx.workloads.remark(workload, Reason.GPUS_IDLE, said, tell=True)
    audit.note_of(tx, Caller(OURSELVES, Proof.socket), Verb.stop, workload, said)
    return tx.workloads.move(reported_now, State.REQUESTED_CANCEL, Reason.GPUS_IDLE, said, wants=Wants.STOP)


def _sentence(count: int, seconds: int, timeout: int) -> str:
    have = "GPU has" if count == 1 else f"{count} GPUs have"
    return f"its {have} done nothing for {show_duration(seconds)} (idle_timeout is {show_duration(timeout)})"


def _runs(workload: Workload) -> bool:
    return workload.state is State.RUNNING and workload.wants is Wants.RUN


def _with_gpus(tx: Store) -> list[Workload]:
    found = [tx.workloads.get(workload_id) for workload_id in tx.usage.with_gpus()]
    return [workload for workload in found if workload and _runs(workload)]
