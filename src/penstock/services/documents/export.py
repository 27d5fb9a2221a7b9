"""Write what exists as documents that `apply` finds unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dialects.document.types import AskedVolume, Noun
from penstock.dialects.document.write import write_noun, write_workload
from penstock.domain.policy import Kind, Verb
from penstock.domain.users import Caller
from penstock.domain.volumes import Phase, Volume
from penstock.domain.workloads import Workload
from penstock.errors import Forbidden
from penstock.services import lookup
from penstock.services.infrastructure import Infrastructure
from penstock.services.people.people import People
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire.documents import DocumentView

PAGED = ("Workload", "Volume")
"""Kinds of which there are too many to be in memory whole."""

Found = tuple[list[DocumentView], str | None]


class Export:
    def __init__(self, db: Database, people: People, infrastructure: Infrastructure) -> None:
        self._db = db
        self._people = people
        self._infrastructure = infrastructure

    async def page(self, caller: Caller, kind: str, name: str | None, *, limit: int, cursor: str | None) -> Found:
        """Return workloads or volumes that the caller may see, or the one that is named, and where the next page
        begins."""
        look = _workloads if kind == "Workload" else _volumes
        return await self._db.read(lambda tx: look(tx, caller, name, limit, cursor))

    def nouns(self, caller: Caller, kind: str) -> Sequence[Noun]:
        if kind == "Storage":
            return self._infrastructure.storages(caller)
        if kind == "Node":
            return self._infrastructure.registered(caller)
        if kind == "Group":
            return [group for group in self._people.groups(caller) if self._people.group(group.name)]
        return self._people.users(caller)


def document(kind: str, noun: Noun) -> DocumentView:
    return DocumentView(kind=kind, name=noun.name, group=getattr(noun, "group", None), text=write_noun(noun))


def refuse_unseen(caller: Caller, kind: str) -> None:
    """Refuse a kind that the caller may not see; everyone sees their own user and groups."""
    if kind not in ("User", "Group") and not caller.may(Verb.get, Kind(kind)):
        raise Forbidden(caller.refusal(Verb.get, Kind(kind)))


def _workloads(tx: Store, caller: Caller, name: str | None, limit: int, cursor: str | None) -> Found:
    if name is not None:
        return [_workload(lookup.workload(tx, caller, name))], None
    listed, after = tx.workloads.page(caller.listed(Kind.Workload), limit=limit, cursor=cursor)
    found = [tx.workloads.get(row.id) for row in listed]
    return [_workload(each) for each in found if each and not each.session], after


def _workload(workload: Workload) -> DocumentView:
    """Write a workload as a document. A task without a name has one of its own by now, and is found again by that."""
    spec = workload.spec.model_copy(update={"name": workload.name})
    text = write_workload(spec, workload.group)
    return DocumentView(kind="Workload", name=workload.name, group=workload.group, text=text)


def _volumes(tx: Store, caller: Caller, name: str | None, limit: int, cursor: str | None) -> Found:
    if name is not None:
        return [_volume(lookup.volume(tx, caller, name))], None
    found, after = tx.volumes.page(caller.listed(Kind.Volume), limit=limit, cursor=cursor)
    return [_volume(each) for each in found if each.phase is not Phase.Deleting], after


def _volume(volume: Volume) -> DocumentView:
    text = write_noun(AskedVolume.of(volume), volume.group)
    return DocumentView(kind="Volume", name=volume.name, group=volume.group, text=text)
