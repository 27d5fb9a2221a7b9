"""Record why each waiting workload waits, first for those at the head of the queue."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from penstock.domain.scheduling.explain import SCHEDULING, WaitCause
from penstock.domain.scheduling.pool import Pool
from penstock.domain.states import WAITING
from penstock.domain.workloads import Workload
from penstock.services.scheduler.state import write_causes
from penstock.services.wakeup import Wakeup
from penstock.store.database import Database
from penstock.store.workloads import ListedWorkload
from penstock.wire.workloads import Summary

Shown = TypeVar("Shown", bound=Summary)
Causes = Callable[[Iterable[str]], Mapping[str, WaitCause]]
PAUSE = 1.0
"""Seconds between two rounds."""
HEAD = 64
"""How many have each change written; of the others it is worked out when somebody looks at them."""
AT_ONCE = 256


class QueueReasons:
    """The reasons that were written, and those that are to be."""

    def __init__(
        self, db: Database, wakeup: Wakeup, pool: Pool, outside: Callable[[], Mapping[str, WaitCause]]
    ) -> None:
        self._db = db
        self._wakeup = wakeup
        self._pool = pool
        self._outside = outside
        """Return why those wait that are not in the pool."""
        self._written: dict[str, WaitCause] = {}
        self._unwritten: dict[str, None] = {}
        """Workloads that wait and of which no reason was written yet, in the order they came."""
        self._last = 0.0

    def comes(self, workload: Workload) -> None:
        if workload.reason in SCHEDULING and workload.message:
            self._written[workload.id] = WaitCause(workload.reason, workload.message, workload.ahead)
        else:
            self._unwritten[workload.id] = None

    def forget(self, workload_id: str) -> None:
        self._written.pop(workload_id, None)
        self._unwritten.pop(workload_id, None)

    async def write(self) -> float | None:
        """Write what is to be said now, right after a round in which nothing more could start; at most once a second,
        for a queue that moves says something new all the time. Return in how many seconds there is more to write."""
        pause = self._last + PAUSE - time.monotonic()
        if pause > 0:
            return pause
        self._last = time.monotonic()
        if causes := self._due():
            await self._db.write(lambda tx: write_causes(tx, causes))
        for id_, cause in causes.items():
            self._unwritten.pop(id_, None)
            if id_ in self._pool.waiting or id_ in self._outside():
                self._written[id_] = cause
                self._wakeup.wake(id_)
        return PAUSE if any(id_ in self._pool.waiting for id_ in self._unwritten) else None

    def _due(self) -> dict[str, WaitCause]:
        pool, outside = self._pool, self._outside()
        fresh = [id_ for id_ in islice(self._unwritten, AT_ONCE) if id_ in pool.waiting]
        causes = {**pool.causes(dict.fromkeys([*pool.first(HEAD), *fresh])), **outside}
        return {id_: cause for id_, cause in causes.items() if self._written.get(id_) != cause}


def as_of_now(view: Shown, causes: Causes) -> Shown:
    """Return the same, and of one that waits why as of now, written or not."""
    known = causes([view.id]) if view.state in WAITING else {}
    return view.model_copy(update=_fields(known[view.id])) if known else view


def summaries_as_of_now(listed: Sequence[ListedWorkload], causes: Causes) -> list[str]:
    """Return the stored summaries of a list, in which each that waits says why as of now. The others are not read: a
    list may have hundreds."""
    known = causes(row.id for row in listed if row.state in WAITING)
    return [_with_cause(row.summary, known[row.id]) if row.id in known else row.summary for row in listed]


def _with_cause(summary: str, cause: WaitCause) -> str:
    return json.dumps(json.loads(summary) | _fields(cause), ensure_ascii=False, separators=(",", ":"))


def _fields(cause: WaitCause) -> dict[str, str | int | None]:
    return {"state": cause.state, "reason": cause.reason, "message": cause.message, "ahead": cause.ahead}
