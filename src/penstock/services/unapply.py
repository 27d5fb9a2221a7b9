"""The undoing of apply: what a text describes is stopped and deleted, by name."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time

from penstock.dialects.manifest import ManifestVolume, ManifestWorkload, TaskDocument, read_documents
from penstock.domain.policy import Kind, Verb
from penstock.domain.users import Caller
from penstock.domain.workloads import Workload
from penstock.errors import NotFound, PenstockError
from penstock.services.apply import CLAIM, FAILED, TASK, require
from penstock.services.volumes import Volumes
from penstock.services.workloads import Workloads
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire import Applied, Documents

log = logging.getLogger(__name__)
DELETED, NOT_PRESENT = "deleted", "not present"
PATIENCE = 60.0
"""Seconds that what runs has to end; then its volumes stay, and the same can be asked again."""


class Unapply:
    def __init__(self, db: Database, workloads: Workloads, volumes: Volumes) -> None:
        self._db = db
        self._workloads = workloads
        self._volumes = volumes

    async def delete(self, caller: Caller, asked: Documents) -> tuple[Applied, ...]:
        """Workloads first, so that nothing uses the volumes any more."""
        documents = read_documents(asked.text, asked.source)
        until = time.monotonic() + PATIENCE
        jobs = [each for each in documents if not isinstance(each, ManifestVolume)]
        claims = [each.claim.name for each in documents if isinstance(each, ManifestVolume)]
        gone = await asyncio.gather(*(self._delete_workload(caller, job, until) for job in jobs))
        return (*itertools.chain(*gone), *[await self._delete_volume(caller, name) for name in claims])

    async def _delete_workload(
        self, caller: Caller, document: TaskDocument | ManifestWorkload, until: float
    ) -> list[Applied]:
        """All of that name, those that ended long ago, too: the name is free afterwards."""
        kind = document.kind if isinstance(document, ManifestWorkload) else TASK
        name = document.task.spec.name or ""
        gone: list[Applied] = []
        try:
            while found := await self._db.read(lambda tx: _named(tx, caller, name)):
                await asyncio.gather(*(self._stop(caller, each, until) for each in found if not each.ended))
                for each in found:
                    await self._workloads.delete(caller, each.id)
                    gone.append(Applied(kind=kind, name=name, id=each.id, result=DELETED))
        except NotFound:
            log.debug("someone else deleted one of %s at the same time", name)
        except PenstockError as error:
            return [*gone, _failed(kind, name, error)]
        return gone or [Applied(kind=kind, name=name, result=NOT_PRESENT)]

    async def _stop(self, caller: Caller, workload: Workload, until: float) -> None:
        await self._workloads.stop(caller, workload.id)
        await self._workloads.wait(caller, workload.id, max(until - time.monotonic(), 0))

    async def _delete_volume(self, caller: Caller, name: str) -> Applied:
        found = await self._db.read(lambda tx: [v for v in tx.volumes.find(name, caller.group) if v.name == name])
        if not found:
            return Applied(kind=CLAIM, name=name, result=NOT_PRESENT)
        try:
            require(caller, Verb.delete, Kind.Volume)
            await self._volumes.delete(caller, found[0].id)
        except PenstockError as error:
            return _failed(CLAIM, name, error)
        return Applied(kind=CLAIM, name=name, id=found[0].id, result=DELETED)


def _named(tx: Store, caller: Caller, name: str) -> list[Workload]:
    return [each for each in tx.workloads.find(name, caller.group) if each.name == name]


def _failed(kind: str, name: str, error: PenstockError) -> Applied:
    return Applied(kind=kind, name=name, result=FAILED, message=f"{error.message} {error.hint or ''}".strip())
