"""Collect what every unit prints, as it is printed, and give it to those who ask.

Only what runs is followed. When a unit has ended, what is left of its log is read once and the log is complete; only
then is the run reported as ended. Who reads a log reads the files, and is woken by what writes them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from penstock.background import Tasks
from penstock.domain.quantities import parse_bytes
from penstock.engines.base import LogQuery, Report, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesError
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.api.requests import RetryPauses
from penstock.engines.kubernetes.logs.files import GONE, KeptLog, LogFollowers, prepare, read_position
from penstock.engines.kubernetes.logs.stream import NS, LogIncomplete, LogLine, follow_log
from penstock.engines.kubernetes.pod_records import PodRecords
from penstock.engines.kubernetes.state.pods import PodRecord
from penstock.engines.kubernetes.state.report import NO_LOG, LogProgress
from penstock.engines.shared.logstore import LogReader
from penstock.errors import Unavailable

log = logging.getLogger(__name__)

LAST_READS = 32
"""How many logs of units that have ended are read at the same time."""
BATCH = 1 << 16
STATUS_SECONDS = 5.0
"""Seconds to wait for the cluster to say that a container has ended whose log has ended."""
DEFECT_SECONDS = 10.0
END_SECONDS = 10.0
"""Seconds after the container's end within which its log ends."""

LONGEST_REST = 0.05
REMOVED = ".removed-"

Unit = tuple[Run, int]


@dataclass
class _UnitLog:
    record: PodRecord
    task: asyncio.Task[None] | None = None
    started: bool = False
    """The task has begun: one cancelled before that would never see why."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its container has ended."""
    done: bool = False
    last: int = 0
    given_up: str | None = None
    after: asyncio.Task[None] | None = None
    """What collected the log of the unit's pod before this one."""


class LogCollector:
    def __init__(self, api: KubernetesApi, cluster: Cluster, records: PodRecords, limit: str) -> None:
        self._api, self._cluster, self._records = api, cluster, records
        self._limit, self._limit_text = parse_bytes(limit), limit
        self._units: dict[Unit, _UnitLog] = {}
        self.followers = LogFollowers()
        self._turns = _FairShare()
        self._last_reads = asyncio.Semaphore(LAST_READS)
        self.threads = ThreadPoolExecutor(4, "penstock-logs")
        self._tasks = Tasks()
        self._closing = False
        records.subscribe(self.see)

    def open(self) -> None:
        """Take away what a server that was killed had begun to remove."""
        self._tasks.start(asyncio.to_thread(_sweep, self._records.directory))

    async def close(self) -> None:
        """Stop; the next server goes on where this one stands."""
        self._closing = True
        await self._tasks.close()
        self.threads.shutdown(wait=True)

    def see(self, run: Run, record: PodRecord) -> None:
        """Take in the newest state of a unit's pod: its log is followed from when its container runs."""
        self.followers.ring(run, record.part)
        if not record.ran:
            return
        unit = self._units.get((run, record.part))
        if unit is None or unit.record.uid != record.uid:
            before = unit.task if unit else None
            unit = self._units[run, record.part] = self._begun(run, record)
            if before:
                before.cancel()
                unit.after = before
        unit.record = record
        if record.exit_code is not None or record.over:
            unit.ended.set()
        if unit.task is None and not unit.done:
            unit.task = self._tasks.start(self._collect(run, record.part, unit))

    def _begun(self, run: Run, record: PodRecord) -> _UnitLog:
        known = read_position(self._records.run_dir(run), record.part)
        if known is None or known.uid != record.uid:
            return _UnitLog(record)
        return _UnitLog(record, done=known.done, last=max(known.times, default=0))

    def progress(self, run: Run, record: PodRecord) -> LogProgress:
        """How much of a unit's log is stored; nothing is begun for that."""
        if not record.ran:
            return NO_LOG
        unit = self._units.get((run, record.part)) or self._begun(run, record)
        return LogProgress(unit.done, datetime.fromtimestamp(unit.last / NS, UTC) if unit.last else None)

    def give_up(self, run: Run, record: PodRecord, why: str) -> None:
        """Complete a log without its end: the pod is there, but its node is not."""
        self.see(run, record)
        unit = self._units.get((run, record.part))
        if unit is None or unit.done or unit.given_up is not None or unit.task is None:
            return
        unit.given_up = why
        if unit.started:
            unit.task.cancel()

    async def _collect(self, run: Run, part: int, unit: _UnitLog) -> None:
        unit.started = True
        pauses = RetryPauses()
        if unit.after:
            await asyncio.wait([unit.after])
        while not unit.done:
            try:
                await self._collect_once(run, part, unit)
            except asyncio.CancelledError:
                if unit.given_up is None or self._closing or (run, part) not in self._units:
                    raise
                log.info("no more of the log of %s, part %d: %s", run.workload_id, part, unit.given_up)
            except (OSError, KubernetesError) as error:
                log.warning("the log of %s, part %d, cannot be kept: %s; trying again", run.workload_id, part, error)
                await asyncio.sleep(pauses.next())
            except Exception:
                log.exception("the log of %s, part %d: a defect; trying again", run.workload_id, part)
                await asyncio.sleep(DEFECT_SECONDS)
        unit.task = None
        self.followers.ring(run, part)
        self._cluster.changed(run)

    async def _collect_once(self, run: Run, part: int, unit: _UnitLog) -> None:
        run_dir = self._records.run_dir(run)
        prepare(run_dir, self._limit, self._limit_text)
        pod = None if unit.given_up else self._records.pod(unit.record)
        kept_log = KeptLog(run_dir, part, self._limit)
        try:
            kept_log.resume(unit.record.uid, there=pod is not None)
            writer = _Writer(kept_log, unit, lambda: self.followers.ring(run, part), self._turns)
            try:
                if pod:
                    await self._read(pod, unit, writer)
                else:
                    raise LogIncomplete(unit.given_up or GONE)
            except LogIncomplete as error:
                log.info("the log of %s, part %d, is not whole: %s", run.workload_id, part, error)
                kept_log.say(unit.given_up or GONE)
            await asyncio.get_running_loop().run_in_executor(self.threads, kept_log.finish)
            unit.done = True
        finally:
            kept_log.close()

    async def _read(self, pod: Pod, unit: _UnitLog, writer: _Writer) -> None:
        if unit.ended.is_set():
            async with self._last_reads:
                return await writer.copy(self._lines(pod, unit, writer))
        following = asyncio.create_task(writer.copy(self._lines(pod, unit, writer)))
        ending = asyncio.create_task(unit.ended.wait())
        try:
            await asyncio.wait([following, ending], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([following], timeout=END_SECONDS)
            if following.done():
                return following.result()
        finally:
            for task in (following, ending):
                task.cancel()
            await asyncio.gather(following, ending, return_exceptions=True)
        return await self._read(self._records.pod(unit.record) or pod, unit, writer)

    def _lines(self, pod: Pod, unit: _UnitLog, writer: _Writer) -> AsyncGenerator[LogLine, None]:
        async def look() -> Pod | None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STATUS_SECONDS):
                    await unit.ended.wait()
            return self._records.pod(unit.record)

        return follow_log(self._api, pod, names.CONTAINER, writer.log.mark, look=look, lost=writer.miss)

    def is_complete(self, run: Run, part: int) -> bool | None:
        """Is the log complete? None if nothing was collected of the unit since this server started."""
        unit = self._units.get((run, part))
        return unit.done if unit else None

    async def remove(self, run: Run) -> None:
        tasks = []
        for key in [key for key in self._units if key[0] == run]:
            if task := self._units.pop(key).task:
                task.cancel()
                tasks.append(task)
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self.threads, _erase, self._records.run_dir(run))
        self.followers.let_go(run)


class _FairShare:
    """Share the time between logs that come faster than they can be taken in: together those have half of it. What a
    node throws away meanwhile is said in the log."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._busy = 0

    async def rest(self, spent: float) -> None:
        self._busy += 1
        try:
            async with self._lock:
                await asyncio.sleep(min(spent, LONGEST_REST) if self._busy > 1 else 0)
        finally:
            self._busy -= 1


class _Writer:
    """Write lines that came together at once."""

    def __init__(self, kept_log: KeptLog, unit: _UnitLog, wake: Callable[[], None], turns: _FairShare) -> None:
        self.log, self._unit, self._wake, self._turns = kept_log, unit, wake, turns
        self._lines: list[LogLine] = []
        self._size = 0
        self._due: asyncio.Handle | None = None

    async def copy(self, lines: AsyncGenerator[LogLine, None]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with aclosing(lines) as source:
                async for line in source:
                    self._lines.append(line)
                    self._size += len(line.data)
                    if self._size >= BATCH:
                        self.flush()
                        await self._turns.rest(loop.time() - began)
                        began = loop.time()
                    elif self._due is None:
                        self._due = loop.call_soon(self.flush)  # when this task next waits for more
        finally:
            self.flush()

    def miss(self, why: str) -> None:
        """Say that something is missing between what was written and what comes."""
        self.flush()
        self.log.say(why)

    def flush(self) -> None:
        if self._due:
            self._due.cancel()
            self._due = None
        if self._lines:
            self.log.take(self._lines)
            self._unit.last = self.log.last
            self._lines, self._size = [], 0
            self._wake()


def _sweep(directory: Path) -> None:
    for grave in directory.glob(f"{REMOVED}*"):
        shutil.rmtree(grave, ignore_errors=True)


def _erase(run_dir: Path) -> None:
    """Rename it first, so that what a crash leaves is not taken for a run."""
    grave = run_dir.with_name(f"{REMOVED}{run_dir.name}")
    shutil.rmtree(grave, ignore_errors=True)
    with suppress(FileNotFoundError):
        run_dir.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)


class CollectedLogs:
    """Read the logs that were collected, and follow those that still grow."""

    def __init__(
        self, cluster: Cluster, records: PodRecords, collector: LogCollector, report_of: Callable[[Run], Report]
    ) -> None:
        """`report_of` says whether a unit has ended that never printed anything."""
        self._cluster, self._records, self._collector = cluster, records, collector
        self._report_of = report_of
        self._tasks = Tasks()

    def open(self) -> None:
        self._tasks.start(self._wake_those_who_follow())

    async def close(self) -> None:
        await self._tasks.close()

    async def _wake_those_who_follow(self) -> None:
        async for run in self._cluster.changes():
            self._collector.followers.ring_all(run)

    def read(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        return self._follow(run, part, query) if query.follow else self._read_now(run, part, query)

    async def _read_now(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        reader = LogReader(self._records.run_dir(run), part)
        reader.refresh()
        offset, end = await reader.start(query, self._collector.threads), reader.size()
        while offset < end and (found := reader.read(offset))[0]:
            data, offset = found
            yield data
            await asyncio.sleep(0)

    async def _follow(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        reader = LogReader(self._records.run_dir(run), part)
        reader.refresh()
        offset = await reader.start(query, self._collector.threads)
        with self._collector.followers.listen(run, part) as follower:
            while True:
                over = follower.is_removed or self._is_over(run, part)
                reader.refresh()
                while (found := reader.read(offset))[0]:
                    data, offset = found
                    yield data
                    await asyncio.sleep(0)
                if over:
                    return
                await follower.next()

    def _is_over(self, run: Run, part: int) -> bool:
        """Has the unit ended? Asked before the last look at the files, so that nothing is missed."""
        complete = self._collector.is_complete(run, part)
        if complete is not None:
            return complete
        try:
            units = self._report_of(run).units
        except Unavailable:
            return False
        return any(unit.ended_at is not None for unit in units if part == (unit.index or unit.rank))
