"""Record why each waiting workload waits, first for those at the head of the queue."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from penstock.domain.scheduling.explain import SCHEDULING, Cause
from penstock.domain.scheduling.pool import Pool
from penstock.domain.states import WAITING
from penstock.domain.workloads import Workload
from penstock.services.scheduler.demand import write_said
from penstock.services.wakeup import Bell
from penstock.store.database import Database
from penstock.wire.workloads import Summary

Shown = TypeVar("Shown", bound=Summary)
Causes = Callable[[Iterable[str]], Mapping[str, Cause]]
PENDING = '"status":"pending"'
PAUSE = 1.0
"""Seconds between two rounds."""
HEAD = 64
"""So many are told of every move; the others hear it when somebody looks at them."""
AT_ONCE = 256


class Saying:
    def __init__(self, db: Database, bell: Bell, pool: Pool, outside: Callable[[], Mapping[str, Cause]]) -> None:
        self._db = db
        self._bell = bell
        self._pool = pool
        self._outside = outside
        """What is to be said to those that wait outside the pool."""
        self._said: dict[str, Cause] = {}
        self._unsaid: dict[str, None] = {}
        """Waiting, and not yet told why; in the order they came."""
        self._last = 0.0

    def comes(self, workload: Workload) -> None:
        if workload.reason in SCHEDULING and workload.message:
            self._said[workload.id] = Cause(workload.reason, workload.message)
        else:
            self._unsaid[workload.id] = None

    def forget(self, workload_id: str) -> None:
        self._said.pop(workload_id, None)
        self._unsaid.pop(workload_id, None)

    def due(self) -> dict[str, Cause]:
        """What is to be said now, right after a round in which nothing more could start."""
        pool, outside = self._pool, self._outside()
        fresh = [id_ for id_ in islice(self._unsaid, AT_ONCE) if id_ in pool.waiting]
        says = {**pool.causes(dict.fromkeys([*pool.first(HEAD), *fresh])), **outside}
        return {id_: said for id_, said in says.items() if self._said.get(id_) != said}

    def pause(self) -> float:
        """Seconds until the next round may be."""
        return self._last + PAUSE - time.monotonic()

    @property
    def behind(self) -> bool:
        """Are there some that have heard nothing yet?"""
        return any(id_ in self._pool.waiting for id_ in self._unsaid)

    async def say(self, says: Mapping[str, Cause]) -> None:
        self._last = time.monotonic()
        if not says:
            return
        await self._db.write(lambda tx: write_said(tx, says))
        for id_, said in says.items():
            self._unsaid.pop(id_, None)
            if id_ in self._pool.waiting or id_ in self._outside():
                self._said[id_] = said
                self._bell.ring(id_)


def as_of_now(shown: Sequence[Shown], causes: Causes) -> list[Shown]:
    """With the sentence that each would hear now, written or not."""
    says = causes(each.id for each in shown if each.state in WAITING)
    return [each.model_copy(update=_told(says[each.id])) if each.id in says else each for each in shown]


def texts_as_of_now(texts: Sequence[str], causes: Causes) -> list[str]:
    """The same of summaries as they are stored; only those that wait are read, and as little as can be: a page may have
    hundreds."""
    waiting = {number: json.loads(text) for number, text in enumerate(texts) if PENDING in text}
    says = causes(each["id"] for each in waiting.values() if each["state"] in WAITING)
    found = list(texts)
    for number, each in waiting.items():
        if each["id"] in says:
            found[number] = json.dumps(each | _told(says[each["id"]]), ensure_ascii=False, separators=(",", ":"))
    return found


def _told(cause: Cause) -> dict[str, str]:
    return {"state": cause.state, "reason": cause.reason, "message": cause.message}
