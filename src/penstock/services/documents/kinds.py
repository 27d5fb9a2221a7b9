"""Apply and delete documents of users, groups, nodes, storages and volumes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.dialects.document.types import AskedVolume, NounDocument
from penstock.dialects.manifest.read import ManifestVolume
from penstock.domain.audit import Deed
from penstock.domain.nodes import Host
from penstock.domain.policy import SHARED_GROUP, Kind, Verb
from penstock.domain.scheduling.demand import QueuedJob
from penstock.domain.users import Caller, Group, User
from penstock.domain.volumes import Storage, Volume
from penstock.domain.workloads import Workload
from penstock.errors import Conflict, Invalid, NotFound, Problem
from penstock.services.documents.diff import VOLUME_FIELDS, volume_differences
from penstock.services.infrastructure import Infrastructure, Place, kind_of, lost_message
from penstock.services.people.people import ANOTHER_ADMIN, NO_ADMIN, People, is_admin
from penstock.services.volumes.volumes import Volumes
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire.requests import NewVolume
from penstock.wire.workloads import Applied

ORDER = ("Group", "User", "Storage", "Node", "Volume")
"""The order in which kinds are made: what others need comes first."""
DELETED, NOT_PRESENT = "deleted", "not present"


@dataclass(frozen=True)
class NounDocuments:
    """The documents of a text that are no workloads, in the order they are made."""

    documents: tuple[NounDocument, ...]
    groups: frozenset[str]
    storages: tuple[Storage, ...]
    hosts: tuple[Host, ...]

    @classmethod
    def of(cls, documents: Iterable[object]) -> NounDocuments:
        nouns = sorted((each for each in documents if isinstance(each, NounDocument)), key=order_of)
        groups = frozenset(each.name for each in nouns if isinstance(each.noun, Group))
        found = [each.within(SHARED_GROUP) for each in nouns if isinstance(each.noun, Storage | Host)]
        storages = tuple(noun for noun in found if isinstance(noun, Storage))
        hosts = tuple(noun for noun in found if isinstance(noun, Host))
        return cls(tuple(nouns), groups, storages, hosts)


def order_of(document: NounDocument) -> tuple[int, bool]:
    """Return the place in the order. Who is an admin is written before those who are none any more, so that there is
    always one."""
    return ORDER.index(document.kind), isinstance(document.noun, User) and not is_admin(document.noun)


@dataclass(eq=False)
class Nouns:
    _db: Database
    _people: People
    _infrastructure: Infrastructure
    _volumes: Volumes

    # making

    async def plan(self, caller: Caller, document: NounDocument, coming: NounDocuments) -> Planned:
        """Plan what a document makes; `coming` are all documents of the same text."""
        if document.group:
            with placing(document, "group"):
                caller = self._people.in_group(caller, document.group, coming.groups)
        noun = document.within(self._group_of(caller, document))
        if isinstance(noun, User):
            return self._plan_user(caller, document, noun, coming)
        if isinstance(noun, Group):
            return self._plan_group(caller, document, noun)
        if isinstance(noun, AskedVolume):
            return await self._plan_volume(caller, document, noun, coming.storages)
        return await self._plan_place(caller, document, noun, coming.hosts)

    def _group_of(self, caller: Caller, document: NounDocument) -> str:
        """Return the group of a document. Nodes and storages that name none are everyone's."""
        return document.group or (caller.group if document.kind == "Volume" else SHARED_GROUP)

    def deed(self, caller: Caller, document: NounDocument) -> Deed:
        return Deed(Verb.update if self._is_known(document) else Verb.create, *self.thing(caller, document))

    def _is_known(self, document: NounDocument) -> bool:
        if isinstance(document.noun, User):
            return self._people.user(document.name) is not None
        if isinstance(document.noun, Group):
            return self._people.group(document.name) is not None
        place = isinstance(document.noun, Storage | Host)
        return place and self._infrastructure.known(Kind(document.kind), document.name) is not None

    def thing(self, caller: Caller, document: NounDocument) -> tuple[Kind, str, str]:
        kind = Kind(document.kind)
        if kind is Kind.User:
            return kind, "", document.name
        return kind, document.name if kind is Kind.Group else self._group_of(caller, document), document.name

    def _plan_user(self, caller: Caller, document: NounDocument, user: User, coming: NounDocuments) -> Planned:
        self._people.refuse_unruly(caller)
        users = [each.noun for each in coming.documents if isinstance(each.noun, User)]
        known = self._people.user(user.name)
        with placing(document, "groups"):
            self._people.refuse_wrong(user, coming.groups, users)
            if known and is_admin(known) and not is_admin(user) and self._people.leave_no_admin(users):
                raise Conflict(NO_ADMIN, hint=ANOTHER_ADMIN)
        return _planned(document, known is not None, known == user, partial(self._people.put_user, caller, user))

    def _plan_group(self, caller: Caller, document: NounDocument, group: Group) -> Planned:
        self._people.refuse_unruly(caller)
        known = self._people.group(group.name)
        return _planned(document, known is not None, known == group, partial(self._people.put_group, caller, group))

    async def _plan_place(
        self, caller: Caller, document: NounDocument, place: Place, coming: Sequence[Host]
    ) -> Planned:
        known = self._infrastructure.known(kind_of(place), place.name)
        caller.require(Verb.update if known else Verb.create, kind_of(place), place.group)
        with placing(document, "address"):
            if conflict := self._infrastructure.conflict(place, coming):
                raise Invalid(conflict["message"], problems=[conflict])
            await self._infrastructure.refuse_other_engine(place)
        return _planned(
            document, known is not None, known == place, partial(self._infrastructure.put, caller, place, coming)
        )

    async def _plan_volume(
        self, caller: Caller, document: NounDocument, volume: AskedVolume, coming: Sequence[Storage]
    ) -> Planned:
        asked = NewVolume(
            name=volume.name,
            size=volume.size,
            storage_class=volume.storage_class,
            access_modes=[str(mode) for mode in volume.access_modes] or None,
            storage=volume.storage,
            sub_path=volume.sub_path,
            readonly=volume.readonly,
        )
        with placing(document, "storage"):
            wanted = await self._volumes.plan(caller, asked, coming)
        found = await self._db.read(lambda tx: volume_named(tx, caller.group, volume.name))
        if found is None:
            return Planned(document.kind, volume.name, CREATED, volume=wanted, asked=asked, caller=caller)
        if wanted.awaits_node and not found.many_nodes:  # some node has used it since
            wanted = wanted.model_copy(update={"storage": found.storage})
        if problems := volume_differences(found, wanted, VOLUME_FIELDS):
            with placing(document):
                raise Invalid(f"Volume {found.name} already exists and is different.", problems=problems)
        return Planned(document.kind, volume.name, NOT_CHANGED, id=found.id)

    # undoing

    async def delete(self, caller: Caller, document: NounDocument, *, force: bool = False) -> str | None:
        """Delete what the document names, with `force` also a node that does not answer, and return what there is to
        say of it."""
        caller = self._people.in_group(caller, document.group) if document.group else caller
        if isinstance(document.noun, User):
            await self._people.remove_user(caller, document.name)
        elif isinstance(document.noun, Group):
            await self._people.remove_group(caller, document.name)
        elif isinstance(document.noun, Storage | Host):
            lost = await self._infrastructure.remove(caller, kind_of(document.noun), document.name, force=force)
            return lost_message(lost)
        else:
            found = await self._db.read(lambda tx: volume_named(tx, caller.group, document.name))
            if found is None:
                raise NotFound(f"Volume {document.name} not found")
            caller.require(Verb.delete, Kind.Volume)
            await self._volumes.delete(caller, found.id)
        return None


def _planned(document: NounDocument, known: bool, same: bool, write: Callable[[], Awaitable[object]]) -> Planned:
    result = NOT_CHANGED if same else CONFIGURED if known else CREATED
    return Planned(document.kind, document.name, result, write=None if same else write)


@contextmanager
def placing(document: NounDocument | ManifestVolume, field: str = "") -> Iterator[None]:
    """Say of what is found wrong where it stands in the document; an error that is not about a field is about this
    one."""
    try:
        yield
    except Invalid as error:
        raise Invalid(error.message, problems=[placed(document, each) for each in error.problems]) from None
    except (Conflict, NotFound) as error:
        problem = Problem(error.message, field=field, hint=error.hint)
        raise Invalid(error.message, problems=[placed(document, problem)]) from None


def placed(document: NounDocument | ManifestVolume, problem: Problem) -> Problem:
    where, field = document.place(*str(problem.get("field", "")).split("."))
    return Problem(problem["message"], where=where, field=field, hint=problem.get("hint"))


def volume_named(tx: Store, group: str, name: str) -> Volume | None:
    return next((volume for volume in tx.volumes.find(name, group) if volume.name == name), None)


CREATED, CONFIGURED, RESIZED, NOT_CHANGED, FAILED = "created", "configured", "resized", "not changed", "failed"

AT_ONCE = 64


@dataclass(frozen=True)
class Planned:
    kind: str
    name: str
    result: str
    id: str | None = None
    message: str | None = None
    ahead: int | None = None
    """Of a workload: how many are before it in the queue."""
    volume: Volume | None = None
    larger: Volume | None = None
    """The volume that is there, with its new size."""
    asked: NewVolume | None = None
    workload: Workload | None = None
    known: Workload | None = None
    """The workload that is there and the same, for others of the text that name it."""
    job: QueuedJob | None = None
    """The workload as the queue sees it."""
    homes: dict[str, Volume] = field(default_factory=dict)
    """Volumes that are made with the workload."""
    caller: Caller | None = None
    """Who makes it, where the document names another group than theirs."""
    write: Callable[[], Awaitable[object]] | None = None
    """Makes it so."""
    again: Callable[[], Awaitable[Planned]] | None = None
    """Plans it once more, where someone else made one of its name meanwhile."""

    def applied(self, **more: Any) -> Applied:
        notices = self.workload.notices if self.workload else ()
        fields: dict[str, Any] = {
            "id": self.id,
            "result": self.result,
            "message": self.message,
            "ahead": self.ahead,
        } | more
        return Applied(kind=self.kind, name=self.name, **({"notices": notices} | fields))


def together(plans: Sequence[Planned]) -> Iterator[list[Planned]]:
    """Group the plans, in their order, into those that can share a write: new workloads of which none needs another of
    them."""
    some: list[Planned] = []
    ids: set[str] = set()
    for plan in plans:
        new = plan.workload
        if some and (new is None or plan.homes or len(some) == AT_ONCE or ids.intersection(new.after_ids)):
            yield some
            some, ids = [], set()
        if new is None or plan.homes:
            yield [plan]
        else:
            some.append(plan)
            ids.add(new.id)
    if some:
        yield some


@dataclass
class ApplyProgress:
    """What became of the documents so far, for those of the same text that need it."""

    ids: dict[str, str] = field(default_factory=dict)
    """Planned → real: someone else may have made the same meanwhile."""
    lost: dict[str, str] = field(default_factory=dict)
    """By the planned id, the names of those that could not be made."""

    def note(self, plan: Planned, applied: Applied) -> None:
        if planned := plan.volume or plan.workload:
            if applied.id is None:
                self.lost[planned.id] = f"{plan.kind} {plan.name}"
            elif applied.id != planned.id:
                self.ids[planned.id] = applied.id

    def resolved(self, workload: Workload) -> Workload:
        """Return the workload with the ids of what was really made."""
        needs = (*workload.volume_ids.values(), *workload.after_ids)
        if lost := [self.lost[id_] for id_ in needs if id_ in self.lost]:
            raise Conflict(f"It needs {', '.join(dict.fromkeys(lost))}, which could not be made.")
        if not any(id_ in self.ids for id_ in needs):
            return workload
        message = workload.message
        for planned, real in self.ids.items():
            message = message and message.replace(f"({planned})", f"({real})")
        mounts = {path: self.ids.get(id_, id_) for path, id_ in workload.volume_ids.items()}
        after = tuple(self.ids.get(id_, id_) for id_ in workload.after_ids)
        return workload.model_copy(update={"volume_ids": mounts, "after_ids": after, "message": message})
