"""Delete workloads whose `ttl` or retention has ended. Volumes stay."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

from penstock.domain.model import now
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Wants, Workload
from penstock.errors import PenstockError
from penstock.services.workloads.uploads import Uploads
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
HOUR = 3600.0
LONGEST_SLEEP = 60.0
"""Seconds until the clock is looked at again: it may have been set."""
RETRY = 5.0


class Expiry:
    def __init__(self, db: Database, uploads: Uploads, retention: timedelta, touch: Callable[[str], None]) -> None:
        self._db = db
        self._uploads = uploads
        self._retention = retention
        self._touch = touch
        self._wake = asyncio.Event()

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        return [self._end_ttls(), self._tidy()]

    def ended(self, workload: Workload) -> None:
        if workload.spec.ttl is not None:
            self._wake.set()

    async def _end_ttls(self) -> None:
        while True:
            self._wake.clear()
            try:
                soonest = await self._delete(lambda tx: tx.workloads.expired(now()), Reason.TTL)
            except (PenstockError, OSError) as error:
                log.warning("what has outlived its ttl cannot be deleted: %s; trying again", error)
                soonest = now() + timedelta(seconds=RETRY)
            left = (soonest - now()).total_seconds() if soonest else None
            await self._sleep(left)

    async def _sleep(self, seconds: float | None) -> None:
        """Sleep until something with a ttl has ended, or the soonest is due; for ever if there is none."""
        try:
            async with asyncio.timeout(None if seconds is None else min(max(seconds, 0), LONGEST_SLEEP)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _tidy(self) -> None:
        while True:
            try:
                await self._end_retention(now() - self._retention)
            except (PenstockError, OSError) as error:
                log.warning("what retention ends cannot be deleted: %s; trying again in an hour", error)
            await asyncio.sleep(HOUR)

    async def _end_retention(self, before: datetime) -> None:
        await self._delete(lambda tx: tx.workloads.ended_before(before), Reason.RETENTION)
        await self._db.write(lambda tx: tx.submissions.prune(before))
        active = await self._db.read(lambda tx: tx.workloads.active())
        await self._uploads.prune({id_ for workload in active for id_ in workload.files.values()})

    async def _delete(self, find: Callable[[Store], list[str]], reason: Reason) -> datetime | None:
        """Mark workloads as deleted, which the reconciler then removes. Return when the next `ttl` is over."""
        if not await self._db.read(find):
            return await self._db.read(lambda tx: tx.workloads.next_expiry())

        def delete(tx: Store) -> tuple[list[str], datetime | None]:
            ids = find(tx)
            for workload_id in ids:
                workload = tx.workloads.get(workload_id)
                if workload and workload.ended:
                    tx.workloads.move(workload, State.DELETED, reason, wants=Wants.DELETE)
            return ids, tx.workloads.next_expiry()

        ids, soonest = await self._db.write(delete)
        for workload_id in ids:
            self._touch(workload_id)
        return soonest
