"""The undoing of apply: what a text describes is stopped, or stopped and deleted, by name."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time

from penstock.dialects.document import NounDocument, WorkloadDocument
from penstock.dialects.documents import read_documents
from penstock.dialects.manifest import ManifestVolume
from penstock.domain.audit import Deed
from penstock.domain.policy import Kind, Verb
from penstock.domain.users import Caller
from penstock.domain.workloads import Workload
from penstock.errors import Forbidden, NotFound, PenstockError
from penstock.services.apply import CLAIM, Runnable, kind_of, workload_deed
from penstock.services.audit import Audit
from penstock.services.nouns import DELETED, NOT_PRESENT, Nouns, order_of
from penstock.services.people import People
from penstock.services.places import Places
from penstock.services.planned import FAILED
from penstock.services.volumes import Volumes
from penstock.services.workloads import Workloads
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire import Applied, Documents

log = logging.getLogger(__name__)
STOPPING, NOT_RUNNING = "is being stopped", "not running"
PATIENCE = 60.0
"""Seconds that what runs has to end; then its volumes stay, and the same can be asked again."""


class Unapply:
    def __init__(
        self, db: Database, workloads: Workloads, volumes: Volumes, people: People, places: Places, audit: Audit
    ) -> None:
        self._db = db
        self._audit = audit
        self._workloads = workloads
        self._volumes = volumes
        self._people = people
        self._nouns = Nouns(db, people, places, volumes, audit)

    async def delete(self, caller: Caller, asked: Documents, *, force: bool = False) -> tuple[Applied, ...]:
        """Workloads first, so that nothing uses the volumes any more. With `force` also nodes that do not answer."""
        documents = await asyncio.to_thread(read_documents, asked.text, asked.source)
        until = time.monotonic() + PATIENCE
        jobs = [each for each in documents if not isinstance(each, ManifestVolume | NounDocument)]
        claims = [each.claim.name for each in documents if isinstance(each, ManifestVolume)]
        nouns = sorted((each for each in documents if isinstance(each, NounDocument)), key=order_of, reverse=True)
        gone = await asyncio.gather(*(self._delete_workload(caller, job, until) for job in jobs))
        return (
            *itertools.chain(*gone),
            *[await self._delete_volume(caller, name) for name in claims],
            *[await self._nouns.delete(caller, noun, force=force) for noun in nouns],
        )

    def _in_group(self, caller: Caller, document: Runnable) -> Caller:
        named = document.group if isinstance(document, WorkloadDocument) else None
        return self._people.in_group(caller, named) if named else caller

    async def stop(self, caller: Caller, asked: Documents) -> tuple[Applied, ...]:
        """Each workload that is not over; what it is now is its result."""
        results = []
        for document in await asyncio.to_thread(read_documents, asked.text, asked.source):
            if isinstance(document, ManifestVolume):
                results.append(Applied(kind=CLAIM, name=document.claim.name, result=NOT_RUNNING))
            elif isinstance(document, NounDocument):
                results.append(Applied(kind=document.kind, name=document.name, result=NOT_RUNNING))
            else:
                results += await self._stop_workload(caller, document)
        return tuple(results)

    async def _stop_workload(self, caller: Caller, document: Runnable) -> list[Applied]:
        kind = kind_of(document)
        name = document.task.spec.name or ""
        try:
            chosen = self._in_group(caller, document)
        except NotFound:
            return [Applied(kind=kind, name=name, result=NOT_PRESENT)]
        found = await self._db.read(lambda tx: _named(tx, chosen, name))
        alive = [each for each in found if not each.ended]
        if not alive:
            return [Applied(kind=kind, name=name, result=NOT_RUNNING if found else NOT_PRESENT)]
        results = []
        for each in alive:
            try:
                stopped = await self._workloads.stop(chosen, each.id)
            except PenstockError as error:
                results.append(await self._failed(chosen, kind, workload_deed(chosen, document, Verb.stop), error))
            else:
                said = STOPPING if stopped.ended_at is None else stopped.status
                results.append(Applied(kind=kind, name=name, id=each.id, result=said))
        return results

    async def _delete_workload(self, caller: Caller, document: Runnable, until: float) -> list[Applied]:
        """All of that name, those that ended long ago, too: the name is free afterwards."""
        kind = kind_of(document)
        name = document.task.spec.name or ""
        gone: list[Applied] = []
        try:
            chosen = self._in_group(caller, document)
            while found := await self._db.read(lambda tx: _named(tx, chosen, name)):
                await asyncio.gather(*(self._stop(chosen, each, until) for each in found if not each.ended))
                for each in found:
                    await self._workloads.delete(chosen, each.id)
                    gone.append(Applied(kind=kind, name=name, id=each.id, result=DELETED))
        except NotFound:
            log.debug("the group of %s is gone, or someone else deleted one of them at the same time", name)
        except PenstockError as error:
            return [*gone, await self._failed(caller, kind, workload_deed(caller, document, Verb.delete), error)]
        return gone or [Applied(kind=kind, name=name, result=NOT_PRESENT)]

    async def _stop(self, caller: Caller, workload: Workload, until: float) -> None:
        await self._workloads.stop(caller, workload.id)
        await self._workloads.wait(caller, workload.id, max(until - time.monotonic(), 0))

    async def _delete_volume(self, caller: Caller, name: str) -> Applied:
        found = await self._db.read(lambda tx: [v for v in tx.volumes.find(name, caller.group) if v.name == name])
        if not found:
            return Applied(kind=CLAIM, name=name, result=NOT_PRESENT)
        try:
            caller.require(Verb.delete, Kind.Volume)
            await self._volumes.delete(caller, found[0].id)
        except PenstockError as error:
            return await self._failed(caller, CLAIM, Deed(Verb.delete, Kind.Volume, caller.group, name), error)
        return Applied(kind=CLAIM, name=name, id=found[0].id, result=DELETED)

    async def _failed(self, caller: Caller, kind: str, deed: Deed, error: PenstockError) -> Applied:
        if isinstance(error, Forbidden):
            await self._audit.denied(caller, deed)
        said = f"{error.message} {error.hint or ''}".strip()
        return Applied(kind=kind, name=deed.name, result=FAILED, message=said)


def _named(tx: Store, caller: Caller, name: str) -> list[Workload]:
    return [each for each in tx.workloads.find(name, caller.group) if each.name == name]
