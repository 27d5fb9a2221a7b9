"""After the records were lost: what an engine has kept of ours becomes records again.

What the store knows is left alone. A workload that is found begins as QUEUED, its attempt already launched, and the
reconciler finds out what became of it. Its owner is who its record says; an admin gives that name a token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from penstock.domain.model import now
from penstock.domain.names import NAME_LIMIT
from penstock.domain.users import Account, Caller
from penstock.domain.volumes import Phase, Volume
from penstock.domain.workloads import Reason, State, Unit, Wants, Workload
from penstock.engines.base import Engine
from penstock.errors import Unavailable
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire import Check

log = logging.getLogger(__name__)
RETRY = 2.0
SHOWN = 300
FOUND = "found in the cluster; the server's own records were lost"


class Adoption:
    def __init__(self, db: Database, engine: Engine, adopted: Callable[[Workload], None]) -> None:
        self._db = db
        self._engine = engine
        self._adopted = adopted
        self._unreadable: tuple[str, ...] = ()
        self._waiting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Before anything is reconciled; where the engine does not answer yet, as soon as it does."""
        try:
            await self._adopt()
        except Unavailable:
            self._waiting = asyncio.create_task(self._adopt_later())

    async def close(self) -> None:
        if self._waiting:
            self._waiting.cancel()
            await asyncio.gather(self._waiting, return_exceptions=True)

    async def _adopt_later(self) -> None:
        while True:
            await asyncio.sleep(RETRY)
            try:
                for workload in await self._adopt():
                    self._adopted(workload)
                return
            except Unavailable:
                continue

    async def _adopt(self) -> list[Workload]:
        """What is new to the store by it."""
        found = await self._engine.found()
        self._unreadable = found.unreadable
        for said in found.unreadable:
            log.warning("not taken over: %s", said)
        workloads = [self._again(workload, workload.attempt) for workload in found.workloads]
        workloads += [self._again(workload, workload.attempt - 1) for workload in found.held]
        workloads.sort(key=lambda workload: workload.created_at)
        volumes = sorted(found.volumes, key=lambda pair: pair[0].created_at)
        if not workloads and not volumes:
            return []
        try:
            count, new = await self._db.write(lambda tx: _adopt(tx, workloads, volumes))
        except Exception:
            log.exception("what was found cannot be adopted all at once")
            count, new = await self._adopt_each(workloads, volumes)
        if count or new:
            log.warning("adopted %s volumes and %s workloads that the records did not know", count, len(new))
        return new

    async def _adopt_each(
        self, workloads: list[Workload], volumes: list[tuple[Volume, Account]]
    ) -> tuple[int, list[Workload]]:
        """One that the store cannot take must not keep the others, or the server, from their work."""
        count = 0
        new: list[Workload] = []
        for one, of in [*(([], [pair]) for pair in volumes), *(([workload], []) for workload in workloads)]:
            try:
                more, taken = await self._db.write(partial(_adopt, workloads=one, volumes=of))
            except Exception as error:
                thing = one[0] if one else of[0][0]
                self._unreadable += (f"{thing.object_name}: {type(error).__name__}: {error}"[:SHOWN],)
            else:
                count += more
                new += taken
        return count, new

    def _again(self, workload: Workload, launched: int) -> Workload:
        """What became of it is not in its record."""
        update = {
            "namespace": self._engine.namespace(workload.user, workload.group),
            "state": State.QUEUED,
            "reason": Reason.ADOPTED,
            "message": FOUND,
            "wants": Wants.RUN,
            "launched": launched,
            "exit_code": None,
            "started_at": None,
            "ended_at": None,
            "updated_at": now(),
        }
        return workload.model_copy(update=update)

    def checks(self, caller: Caller) -> list[Check]:
        """For doctor: what was found and could not be read; what it is called is for admins."""
        if not self._unreadable:
            return []
        detail = f"{len(self._unreadable)} found in the cluster and not taken over"
        detail += f": {'; '.join(self._unreadable[:3])}" if caller.admin else ""
        fix = "look at the annotation penstock.dev/record; what has it goes on, but is not listed here"
        return [Check(name="records", ok=False, detail=detail, fix=fix, required=False)]


def _adopt(tx: Store, workloads: list[Workload], volumes: list[tuple[Volume, Account]]) -> tuple[int, list[Workload]]:
    new_volumes = [(volume, account) for volume, account in volumes if tx.volumes.get(volume.id) is None]
    for volume, account in new_volumes:
        taken = any(each.name == volume.name for each in tx.volumes.find(volume.name, volume.group))
        there = volume.model_copy(update={"made": True})
        tx.volumes.add(_renamed(there) if taken else there, account)
    new = [workload for workload in workloads if tx.workloads.get(workload.id) is None]
    for workload in new:
        tx.workloads.add(workload)
        tx.workloads.set_units(workload.id, _done_before(workload))
    return len(new_volumes), new


def _done_before(workload: Workload) -> list[Unit]:
    """What a later attempt of an array does not run has completed in an earlier one."""
    if workload.spec.array is None or not workload.indexes:
        return []
    rest = set(range(workload.spec.array.count)) - set(workload.indexes)
    done = Unit(
        attempt=workload.attempt - 1,
        rank=0,
        state=State.EXITED,
        reason=Reason.FINISHED,
        message="completed in an earlier attempt",
        exit_code=0,
    )
    return [done.model_copy(update={"index": index}) for index in sorted(rest)]


def _renamed(volume: Volume) -> Volume:
    """Another of its group has the name by now. Where it really is it keeps the one it has."""
    name = f"{volume.name[: NAME_LIMIT - len(volume.id) - 1].rstrip('-')}-{volume.id}"
    phase = Phase.Bound if volume.phase is Phase.Deleting else volume.phase
    return volume.model_copy(update={"name": name, "claim": volume.object_name, "phase": phase})
