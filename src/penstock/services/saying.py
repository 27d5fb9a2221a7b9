"""Why each workload that waits does so: said when it comes, and to those at the head whenever the queue moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice

from penstock.domain.scheduling import Pool
from penstock.domain.workloads import Reason, Workload
from penstock.services.bell import Bell
from penstock.services.placing import write_said
from penstock.store.database import Database

PAUSE = 1.0
"""Seconds between two rounds."""
HEAD = 64
"""So many are told of every move; the others hear it when somebody looks at them."""
AT_ONCE = 256


class Saying:
    def __init__(self, db: Database, bell: Bell, pool: Pool, outside: Callable[[], Mapping[str, str]]) -> None:
        self._db = db
        self._bell = bell
        self._pool = pool
        self._outside = outside
        """What is to be said to those that wait outside the pool."""
        self._said: dict[str, str] = {}
        self._unsaid: dict[str, None] = {}
        """Waiting, and not yet told why; in the order they came."""
        self._last = 0.0

    def comes(self, workload: Workload) -> None:
        if workload.reason is Reason.NO_AVAILABLE_RESOURCES and workload.message:
            self._said[workload.id] = workload.message
        else:
            self._unsaid[workload.id] = None

    def forget(self, workload_id: str) -> None:
        self._said.pop(workload_id, None)
        self._unsaid.pop(workload_id, None)

    def due(self) -> dict[str, str]:
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

    async def say(self, says: Mapping[str, str]) -> None:
        self._last = time.monotonic()
        if not says:
            return
        await self._db.write(lambda tx: write_said(tx, says))
        for id_, said in says.items():
            self._unsaid.pop(id_, None)
            if id_ in self._pool.waiting or id_ in self._outside():
                self._said[id_] = said
                self._bell.ring(id_)
