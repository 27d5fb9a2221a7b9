"""Collect what every unit prints, as it is printed.

Only what runs is followed. When a unit has ended, what is left of its log is read once and the log is complete; only
then is the run reported as ended. Who reads a log reads these files, and is woken by what writes them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from penstock.domain.quantities import parse_bytes
from penstock.engines.base import LogQuery, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import KubernetesError
from penstock.engines.kubernetes.api.objects.pods import Pod
from penstock.engines.kubernetes.api.requests import RetryPauses
from penstock.engines.kubernetes.logs.files import GONE, KeptLog, prepare, read_position
from penstock.engines.kubernetes.logs.follow import LogIncomplete, follow_log
from penstock.engines.kubernetes.logs.lines import NS, LogLine
from penstock.engines.kubernetes.state.last_seen import PodRecord
from penstock.engines.shared.logstore import LogReader

log = logging.getLogger(__name__)

LAST_READS = 32
"""Logs of units that have ended that are read at once."""
BATCH = 1 << 16
STATUS_SECONDS = 5.0
"""A log ends a moment before the cluster says that its container has: so long that is waited for before it is asked."""
DEFECT_SECONDS = 10.0
END_SECONDS = 10.0
"""A log ends at most so long after its container has."""

LONGEST_REST = 0.05
REMOVED = ".removed-"

Unit = tuple[Run, int]


@dataclass
class _Kept:
    seen: PodRecord
    task: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Its container has."""
    done: bool = False
    last: int = 0
    given_up: str | None = None
    after: asyncio.Task[None] | None = None
    """What kept the log of the unit's pod before this one."""


class LogCollector:
    def __init__(
        self,
        api: KubernetesApi,
        directory: Path,
        limit: str,
        *,
        pod_of: Callable[[PodRecord], Pod | None],
        done: Callable[[Run], None],
        over: Callable[[Run, int], bool],
    ) -> None:
        """`pod_of` finds a pod that is still there, `done` is told when a unit's log is complete, `over` says whether
        a unit without a log has ended."""
        self._api, self._directory = api, directory
        self._limit, self._limit_text = parse_bytes(limit), limit
        self._pod_of, self._done, self._over = pod_of, done, over
        self._units: dict[Unit, _Kept] = {}
        self._wakes = Wakes()
        self._turns = _Turns()
        self._last_reads = asyncio.Semaphore(LAST_READS)
        self._threads = ThreadPoolExecutor(4, "penstock-logs")
        self._closing = False

    def run_dir(self, run: Run) -> Path:
        return self._directory / f"{run.workload_id}-{run.attempt}"

    async def close(self) -> None:
        """What is followed goes on where it stands with the next server."""
        self._closing = True
        tasks = [kept.task for kept in self._units.values() if kept.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=True)

    # keeping

    def see(self, run: Run, seen: PodRecord) -> None:
        """What is new of a unit: its log is followed from when it runs."""
        self._wakes.ring(run, seen.part)
        if not seen.ran:
            return
        kept = self._units.get((run, seen.part))
        if kept is None or kept.seen.uid != seen.uid:
            before = kept.task if kept else None
            kept = self._units[run, seen.part] = self._begun(run, seen)
            if before:
                before.cancel()
                kept.after = before
        kept.seen = seen
        if seen.exit_code is not None or seen.over:
            kept.ended.set()
        if kept.task is None and not kept.done:
            kept.task = asyncio.create_task(self._keep(run, seen.part, kept))

    def _begun(self, run: Run, seen: PodRecord) -> _Kept:
        known = read_position(self.run_dir(run), seen.part)
        if known is None or known.uid != seen.uid:
            return _Kept(seen)
        return _Kept(seen, done=known.done, last=max(known.times, default=0))

    def kept(self, run: Run, seen: PodRecord) -> bool:
        """All that the unit printed is stored, or it never ran."""
        if not seen.ran:
            return True
        if (run, seen.part) not in self._units:
            self.see(run, seen)
        return self._units[run, seen.part].done

    def printed(self, run: Run, part: int) -> datetime | None:
        """When it last did."""
        kept = self._units.get((run, part))
        return datetime.fromtimestamp(kept.last / NS, UTC) if kept and kept.last else None

    def give_up(self, run: Run, part: int, why: str) -> None:
        """Its pod is there but its node is not: nothing more can be read."""
        kept = self._units.get((run, part))
        if kept and not kept.done and kept.given_up is None and kept.task:
            kept.given_up = why
            kept.task.cancel()

    async def _keep(self, run: Run, part: int, kept: _Kept) -> None:
        pauses = RetryPauses()
        if kept.after:
            await asyncio.wait([kept.after])
        while not kept.done:
            try:
                await self._keep_once(run, part, kept)
            except asyncio.CancelledError:
                if kept.given_up is None or self._closing or (run, part) not in self._units:
                    raise
                log.info("no more of the log of %s, part %d: %s", run.workload_id, part, kept.given_up)
            except (OSError, KubernetesError) as error:
                log.warning("the log of %s, part %d, cannot be kept: %s; trying again", run.workload_id, part, error)
                await asyncio.sleep(pauses.next())
            except Exception:
                log.exception("the log of %s, part %d: a defect; trying again", run.workload_id, part)
                await asyncio.sleep(DEFECT_SECONDS)
        kept.task = None
        self._wakes.ring(run, part)
        self._done(run)

    async def _keep_once(self, run: Run, part: int, kept: _Kept) -> None:
        prepare(self.run_dir(run), self._limit, self._limit_text)
        pod = None if kept.given_up else self._pod_of(kept.seen)
        kept_log = KeptLog(self.run_dir(run), part, self._limit)
        try:
            kept_log.resume(kept.seen.uid, there=pod is not None)
            writer = _Writer(kept_log, kept, lambda: self._wakes.ring(run, part), self._turns)
            try:
                if pod:
                    await self._read(pod, kept, writer)
                else:
                    raise LogIncomplete(kept.given_up or GONE)
            except LogIncomplete as error:
                log.info("the log of %s, part %d, is not whole: %s", run.workload_id, part, error)
                kept_log.say(kept.given_up or GONE)
            await asyncio.get_running_loop().run_in_executor(self._threads, kept_log.finish)
            kept.done = True
        finally:
            kept_log.close()

    async def _read(self, pod: Pod, kept: _Kept, writer: _Writer) -> None:
        if kept.ended.is_set():
            async with self._last_reads:
                return await writer.copy(self._lines(pod, kept, writer))
        following = asyncio.create_task(writer.copy(self._lines(pod, kept, writer)))
        ending = asyncio.create_task(kept.ended.wait())
        try:
            await asyncio.wait([following, ending], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([following], timeout=END_SECONDS)
            if following.done():
                return following.result()
        finally:
            for task in (following, ending):
                task.cancel()
            await asyncio.gather(following, ending, return_exceptions=True)
        return await self._read(self._pod_of(kept.seen) or pod, kept, writer)

    def _lines(self, pod: Pod, kept: _Kept, writer: _Writer) -> AsyncGenerator[LogLine, None]:
        async def look() -> Pod | None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STATUS_SECONDS):
                    await kept.ended.wait()
            return self._pod_of(kept.seen)

        return follow_log(self._api, pod, names.CONTAINER, writer.log.mark, look=look, lost=writer.miss)

    # reading

    async def read(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        source = self._follow(run, part, query) if query.follow else self._read_now(run, part, query)
        async for data in source:
            yield data

    async def _read_now(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        reader = LogReader(self.run_dir(run), part)
        reader.refresh()
        offset, end = await reader.start(query, self._threads), reader.size()
        while offset < end and (found := reader.read(offset))[0]:
            data, offset = found
            yield data
            await asyncio.sleep(0)

    async def _follow(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        reader = LogReader(self.run_dir(run), part)
        reader.refresh()
        offset = await reader.start(query, self._threads)
        with self._wakes.listen(run, part) as wake:
            while True:
                turn, over = wake.turn, wake.closed or self._is_over(run, part)
                reader.refresh()
                while (found := reader.read(offset))[0]:
                    data, offset = found
                    yield data
                    await asyncio.sleep(0)
                if over:
                    return
                await wake.next(turn)

    def _is_over(self, run: Run, part: int) -> bool:
        """Asked before the last look at the files, so that nothing is missed."""
        kept = self._units.get((run, part))
        if kept:
            return kept.done
        return self._over(run, part)

    def ring(self, run: Run) -> None:
        """Something about the run changed that no log shows."""
        self._wakes.ring_all(run)

    # removing

    async def sweep(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, _sweep, self._directory)

    async def remove(self, run: Run) -> None:
        tasks = []
        for unit in [unit for unit in self._units if unit[0] == run]:
            if task := self._units.pop(unit).task:
                task.cancel()
                tasks.append(task)
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self._threads, _erase, self.run_dir(run))
        self._wakes.close(run)


class _Turns:
    """Those who print faster than it can be taken in have half of the time together; the rest is everyone's. What a
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
    """Lines that came together are written together."""

    def __init__(self, kept_log: KeptLog, kept: _Kept, wake: Callable[[], None], turns: _Turns) -> None:
        self.log, self._kept, self._wake, self._turns = kept_log, kept, wake, turns
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
        """Something is not there between what was written and what comes."""
        self.flush()
        self.log.say(why)

    def flush(self) -> None:
        if self._due:
            self._due.cancel()
            self._due = None
        if self._lines:
            self.log.take(self._lines)
            self._kept.last = self.log.last
            self._lines, self._size = [], 0
            self._wake()


def _sweep(directory: Path) -> None:
    for grave in directory.glob(f"{REMOVED}*"):
        shutil.rmtree(grave, ignore_errors=True)


def _erase(run_dir: Path) -> None:
    """Its name goes first, so that what a crash leaves is not taken for a run."""
    grave = run_dir.with_name(f"{REMOVED}{run_dir.name}")
    shutil.rmtree(grave, ignore_errors=True)
    with suppress(FileNotFoundError):
        run_dir.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)


PAUSE, CROWD, CROWDED_PAUSE = 0.02, 50, 0.2
"""Seconds between two wake-ups of those who follow one log, and when they are many."""


class Wake:
    """One unit's followers. What comes quickly after another wakes them once, a moment later."""

    def __init__(self) -> None:
        self.turn = 0
        """Grows with every ring: read it, look at the files, then wait for the next."""
        self.followers = 0
        self.closed = False
        """Nothing more will come: the run was removed."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._last = float("-inf")

    def ring(self) -> None:
        loop = asyncio.get_running_loop()
        pause = CROWDED_PAUSE if self.followers > CROWD else PAUSE
        wait = self._last + pause - loop.time()
        if wait <= 0:
            self._ring()
        elif self._timer is None:
            self._timer = loop.call_later(wait, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._last = asyncio.get_running_loop().time()
        self.turn += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def next(self, turn: int) -> None:
        """Return once it has rung since `turn`."""
        if self.turn != turn or self.closed:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()


class Wakes:
    def __init__(self) -> None:
        self._wakes: dict[tuple[Run, int], Wake] = {}

    def ring(self, run: Run, part: int) -> None:
        if wake := self._wakes.get((run, part)):
            wake.ring()

    def ring_all(self, run: Run) -> None:
        for (of, _), wake in list(self._wakes.items()):
            if of == run:
                wake.ring()

    def close(self, run: Run) -> None:
        for (of, _), wake in list(self._wakes.items()):
            if of == run:
                wake.closed = True
                wake.ring()

    @contextmanager
    def listen(self, run: Run, part: int) -> Iterator[Wake]:
        wake = self._wakes.setdefault((run, part), Wake())
        wake.followers += 1
        try:
            yield wake
        finally:
            wake.followers -= 1
            if not wake.followers:
                wake.close()
                self._wakes.pop((run, part), None)
