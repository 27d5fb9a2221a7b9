"""Stop or delete by name what a text describes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from penstock.dialects.document.types import NounDocument
from penstock.dialects.documents import Document, read_documents
from penstock.dialects.manifest.read import ManifestVolume
from penstock.domain.audit import Deed
from penstock.domain.policy import Kind, Verb
from penstock.domain.states import WAITING
from penstock.domain.users import Caller
from penstock.domain.workloads import Workload
from penstock.errors import Forbidden, NotFound, PenstockError
from penstock.services.audit import Audit
from penstock.services.documents.apply import CLAIM, Runnable, kind_of, named_group, workload_deed
from penstock.services.documents.kinds import DELETED, FAILED, NOT_PRESENT, Nouns, order_of, volume_named
from penstock.services.infrastructure import Infrastructure
from penstock.services.people.people import People
from penstock.services.volumes.volumes import Volumes
from penstock.services.workloads.workloads import Workloads
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire.requests import Documents
from penstock.wire.workloads import Applied, Summary

log = logging.getLogger(__name__)
STOPPING, NOT_RUNNING = "is being stopped", "not running"
AT_ONCE = 64
"""How many are deleted at the same time, so that others who ask meanwhile need not wait for all of them."""
PATIENCE = 60.0
"""Seconds that what runs has to end; then its volumes stay, and the same can be asked again."""


@dataclass(eq=False)
class Unapply:
    _db: Database
    _workloads: Workloads
    _volumes: Volumes
    _people: People
    _infrastructure: Infrastructure
    _audit: Audit

    def __post_init__(self) -> None:
        self._nouns = Nouns(self._db, self._people, self._infrastructure, self._volumes)

    async def delete(self, caller: Caller, asked: Documents, *, force: bool = False) -> tuple[Applied, ...]:
        """Delete all that the text names, workloads first, so that nothing uses the volumes any more. With `force` also
        nodes that do not answer."""
        documents = await asyncio.to_thread(read_documents, asked.text, asked.source)
        until = time.monotonic() + PATIENCE
        jobs = [each for each in documents if _runs(each)]
        claims = [each.claim.name for each in documents if isinstance(each, ManifestVolume)]
        nouns = sorted((each for each in documents if isinstance(each, NounDocument)), key=order_of, reverse=True)
        await self._stop_jobs(caller, jobs)
        turns = asyncio.Semaphore(AT_ONCE)
        gone = await asyncio.gather(*(self._delete_workload(caller, job, until, turns) for job in jobs))
        return (
            *itertools.chain(*gone),
            *[await self._delete_volume(caller, name) for name in claims],
            *[await self._delete_noun(caller, noun, force) for noun in nouns],
        )

    def _in_group(self, caller: Caller, document: Runnable) -> Caller:
        named = named_group(document)
        return self._people.in_group(caller, named) if named else caller

    async def stop(self, caller: Caller, asked: Documents) -> tuple[Applied, ...]:
        """Stop each workload that is not over; its state afterwards is its result."""
        documents = await asyncio.to_thread(read_documents, asked.text, asked.source)
        told = iter(await self._stop_jobs(caller, [each for each in documents if _runs(each)]))
        results: list[Applied] = []
        for document in documents:
            if isinstance(document, ManifestVolume):
                results.append(Applied(kind=CLAIM, name=document.claim.name, result=NOT_RUNNING))
            elif isinstance(document, NounDocument):
                results.append(Applied(kind=document.kind, name=document.name, result=NOT_RUNNING))
            else:
                results += next(told)
        return tuple(results)

    async def _stop_jobs(self, caller: Caller, jobs: Sequence[Runnable]) -> list[list[Applied]]:
        """Stop the jobs that have no place yet before the others: nothing else can stop them from getting one."""
        found = [await self._found(caller, job) for job in jobs]
        alive = [(chosen, each) for chosen, there in found for each in there if not each.ended]
        alive.sort(key=lambda one: one[1].state not in WAITING)
        stopped = await self._workloads.stop_these([(chosen, each.id) for chosen, each in alive])
        told = {each.id: said for (_, each), said in zip(alive, stopped, strict=True)}
        return [await self._told(chosen, job, there, told) for job, (chosen, there) in zip(jobs, found, strict=True)]

    async def _found(self, caller: Caller, document: Runnable) -> tuple[Caller, list[Workload]]:
        name = document.task.spec.name or ""
        try:
            chosen = self._in_group(caller, document)
        except NotFound:
            return caller, []
        return chosen, await self._db.read(lambda tx: _named(tx, chosen, name))

    async def _told(
        self, caller: Caller, document: Runnable, found: Sequence[Workload], told: Mapping[str, Summary | PenstockError]
    ) -> list[Applied]:
        kind, name = kind_of(document), document.task.spec.name or ""
        results = []
        for id_ in (each.id for each in found if each.id in told):
            said = told[id_]
            if isinstance(said, PenstockError):
                results.append(await self._failed(caller, kind, workload_deed(caller, document, Verb.stop), said))
            else:
                result = STOPPING if said.ended_at is None else said.status
                results.append(Applied(kind=kind, name=name, id=id_, result=result))
        return results or [Applied(kind=kind, name=name, result=NOT_RUNNING if found else NOT_PRESENT)]

    async def _delete_workload(
        self, caller: Caller, document: Runnable, until: float, turns: asyncio.Semaphore
    ) -> list[Applied]:
        """Delete all of that name, also those that ended long ago: the name is free afterwards."""
        kind = kind_of(document)
        name = document.task.spec.name or ""
        gone: list[Applied] = []
        try:
            chosen = self._in_group(caller, document)
            async with turns:
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
        found = await self._db.read(lambda tx: volume_named(tx, caller.group, name))
        if found is None:
            return Applied(kind=CLAIM, name=name, result=NOT_PRESENT)
        try:
            caller.require(Verb.delete, Kind.Volume)
            await self._volumes.delete(caller, found.id)
        except PenstockError as error:
            return await self._failed(caller, CLAIM, Deed(Verb.delete, Kind.Volume, caller.group, name), error)
        return Applied(kind=CLAIM, name=name, id=found.id, result=DELETED)

    async def _delete_noun(self, caller: Caller, document: NounDocument, force: bool) -> Applied:
        try:
            said = await self._nouns.delete(caller, document, force=force)
        except NotFound:
            return Applied(kind=document.kind, name=document.name, result=NOT_PRESENT)
        except PenstockError as error:
            deed = Deed(Verb.delete, *self._nouns.thing(caller, document))
            return await self._failed(caller, document.kind, deed, error)
        return Applied(kind=document.kind, name=document.name, result=DELETED, message=said)

    async def _failed(self, caller: Caller, kind: str, deed: Deed, error: PenstockError) -> Applied:
        if isinstance(error, Forbidden):
            await self._audit.denied(caller, deed)
        said = f"{error.message} {error.hint or ''}".strip()
        return Applied(kind=kind, name=deed.name, result=FAILED, message=said)


def _runs(document: Document) -> TypeGuard[Runnable]:
    return not isinstance(document, ManifestVolume | NounDocument)


def _named(tx: Store, caller: Caller, name: str) -> list[Workload]:
    return [each for each in tx.workloads.find(name, caller.group) if each.name == name]
