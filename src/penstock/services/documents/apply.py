"""Apply a text of documents, of which all is checked before any is written.

Each thing is made by its name: what is there already and the same is left alone, so that the same text can be applied
again and again; what already exists and is different is refused, but for a volume that is to grow.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from penstock.dialects.document.types import NounDocument, WorkloadDocument
from penstock.dialects.documents import Document, ReadResult, TaskDocument, read_whole, twice
from penstock.dialects.manifest.read import ManifestVolume, ManifestWorkload
from penstock.dialects.yaml import in_order
from penstock.domain.audit import Deed
from penstock.domain.policy import Kind, Verb
from penstock.domain.scheduling.explain import WaitCause
from penstock.domain.users import Caller, Group
from penstock.domain.volumes import Volume
from penstock.errors import Forbidden, Invalid, NameTaken, NotFound, PenstockError, Problem
from penstock.services.audit import Audit
from penstock.services.documents.check import Findings, by_dependency
from penstock.services.documents.diff import (
    alive,
    different,
    is_same,
    last_of,
    open_secrets,
    volume_differences,
    with_kept,
)
from penstock.services.documents.kinds import (
    CREATED,
    FAILED,
    NOT_CHANGED,
    RESIZED,
    ApplyProgress,
    NounDocuments,
    Nouns,
    Planned,
    placed,
    placing,
    together,
    volume_named,
)
from penstock.services.idempotency import KeyedRequest
from penstock.services.infrastructure import Infrastructure
from penstock.services.people.people import People
from penstock.services.scheduler.queue import JobQueue
from penstock.services.volumes.volumes import Volumes
from penstock.services.workloads.references import UpcomingObjects, homes_of
from penstock.services.workloads.submit import Prepared, Submit, sends_workdir
from penstock.services.workloads.uploads import Uploads
from penstock.store.database import Database
from penstock.wire.requests import Application, NewVolume, Submission
from penstock.wire.workloads import Applied

CLAIM, TASK, WORKLOAD = "PersistentVolumeClaim", "Task", "Workload"

Runnable = TaskDocument | ManifestWorkload | WorkloadDocument


@dataclass(eq=False)
class Apply:
    _db: Database
    _submit: Submit
    _volumes: Volumes
    _uploads: Uploads
    _people: People
    _infrastructure: Infrastructure
    _audit: Audit
    _queue: JobQueue

    def __post_init__(self) -> None:
        self._nouns = Nouns(self._db, self._people, self._infrastructure, self._volumes)

    async def apply(self, caller: Caller, asked: Application, key: str | None = None) -> tuple[Applied, ...]:
        read = await asyncio.to_thread(read_whole, asked.text, asked.source)
        _refuse_other_kinds(read, asked)
        if not read.problems and not asked.dry_run:
            self._refuse_missing_files(read.documents, asked)
        plans = await self._plan(caller, read, asked)
        if any(plan.workload or plan.volume for plan in plans):
            self._submit.refuse_without_room()
        if asked.dry_run:
            return self._would_be_applied(plans)
        return await self._make_all(caller, plans, key)

    def _would_be_applied(self, plans: Sequence[Planned]) -> tuple[Applied, ...]:
        """Say what would become of each document. What would be made has no id, and a workload waits behind those that
        come before it in the text."""
        jobs = [plan.job for plan in plans if plan.job]
        causes = self._queue.outlook_together(jobs) if len(jobs) > 1 else {}
        applied = []
        for plan in plans:
            more: dict[str, Any] = {"id": None} if plan.result == CREATED else {}
            if plan.id in causes:
                more |= _waits(causes[plan.id])
                more["message"] = self._submit.would(more["message"], more["ahead"])
            applied.append(plan.applied(**more))
        return tuple(applied)

    # planning

    async def _plan(self, caller: Caller, read: ReadResult, asked: Application) -> list[Planned]:
        """Plan the documents in the order they are made, what others need first, and refuse every problem of all of
        them."""
        documents, found = read.documents, Findings(asked.source, read)
        if read.problems:
            asked = asked.model_copy(update={"dry_run": True})
        found.problems.extend(twice(documents, caller.group))
        nouns, volumes, workloads = [], [], []
        made: list[tuple[Planned, Callable[[Problem], Problem]]] = []
        said = NounDocuments.of(documents)
        for noun in said.documents:
            with found.of(noun, self._nouns.deed(caller, noun)):
                nouns.append(await _planned(partial(self._nouns.plan, caller, noun, said)))
                made.append((nouns[-1], partial(placed, noun)))
        for document in (each for each in documents if isinstance(each, ManifestVolume)):
            with found.of(document, Deed(Verb.create, Kind.Volume, caller.group, document.claim.name)):
                volumes.append(await _planned(partial(self._plan_volume, caller, document)))
                made.append((volumes[-1], partial(placed, document)))
        groups = {each.name: each.noun for each in said.documents if isinstance(each.noun, Group)}
        found.problems.extend(await self._beyond_limits(made, groups))
        fresh = {plan.name for plan in nouns if plan.result == CREATED and plan.kind == Kind.Storage}
        coming = UpcomingObjects(
            volumes={(new.group, new.name): new for plan in [*nouns, *volumes] if (new := plan.volume)},
            larger=[larger for plan in volumes if (larger := plan.larger)],
            groups=groups,
            storages=tuple(storage for storage in said.storages if storage.name in fresh),
            hosts=said.hosts,
            homes=frozenset().union(*(_homes(caller, each) for each in documents)),
        )
        order, circles = by_dependency(documents, caller.group)
        found.problems.extend(circles)
        for number in order:
            each = cast(Runnable, documents[number])
            with found.of(each, workload_deed(caller, each, Verb.create)):
                chosen = self._in_group(caller, each, said.groups)
                plan = await _planned(partial(self._plan_workload, chosen, each, number, asked, coming))
                workloads.append(plan)
                coming.add_homes(plan.homes.values())
                if there := plan.workload or plan.known:
                    coming.workloads[chosen.group, plan.name] = there
        await self._refuse(caller, found)
        return [*nouns, *volumes, *workloads]

    async def _refuse(self, caller: Caller, found: Findings) -> None:
        error = found.error
        if isinstance(error, Forbidden):
            for _, deed, _ in found.refused:
                await self._audit.denied(caller, deed)
            error.noted = True
        if error:
            raise error

    async def _beyond_limits(
        self, made: Sequence[tuple[Planned, Callable[[Problem], Problem]]], groups: Mapping[str, Group]
    ) -> list[Problem]:
        """Return which volumes are too large for their groups when all of the text are made, each where its document
        says its size."""
        volumes = [(volume, at) for plan, at in made if (volume := plan.volume or plan.larger)]
        found = await self._volumes.beyond_limits([volume for volume, _ in volumes], groups)
        return [at(problem) for (_, at), problems in zip(volumes, found, strict=True) for problem in problems]

    def _in_group(self, caller: Caller, document: Runnable, groups: frozenset[str]) -> Caller:
        """Return the caller in the group that the document names, which may be made by the same text."""
        named, task = named_group(document), document.task
        try:
            return self._people.in_group(caller, named, groups) if named else caller
        except NotFound as error:
            raise Invalid(error.message, problems=[task.problem(error.message, "group")]) from None

    async def _plan_volume(self, caller: Caller, document: ManifestVolume) -> Planned:
        claim = document.claim
        modes = [str(mode) for mode in claim.access_modes]
        given = {"name": claim.name, "size": claim.size, "storage_class": claim.storage_class, "access_modes": modes}
        asked = NewVolume.model_validate(given)
        found = await self._db.read(lambda tx: volume_named(tx, caller.group, claim.name))
        with placing(document, "size"):
            wanted = await self._volumes.plan(caller, asked)
            if found is None:
                return Planned(CLAIM, claim.name, CREATED, volume=wanted, asked=asked)
            return await self._plan_known_volume(caller, found, wanted, asked)

    async def _plan_known_volume(self, caller: Caller, found: Volume, wanted: Volume, asked: NewVolume) -> Planned:
        fields = ("access_modes", *(("storage_class",) if asked.storage_class else ()))
        if problems := volume_differences(found, wanted, fields):
            raise Invalid(f"Volume {found.name} already exists and is different.", problems=problems)
        if found.size_bytes == wanted.size_bytes:
            return Planned(CLAIM, found.name, NOT_CHANGED, id=found.id)
        caller.require(Verb.update, Kind.Volume)
        larger = await self._volumes.larger(found, asked.size or "")
        said_size = f"{found.size} to {asked.size}"
        return Planned(CLAIM, found.name, RESIZED, id=found.id, message=said_size, larger=larger, asked=asked)

    async def _plan_workload(
        self,
        caller: Caller,
        document: Runnable,
        number: int,
        asked: Application,
        coming: UpcomingObjects,
    ) -> Planned:
        task, kind = document.task, kind_of(document)
        name = task.spec.name
        if name is None:
            problem = Problem("is missing: what is applied is found again by it", where=asked.source, field="name")
            raise Invalid("A task that is applied needs a name.", problems=[problem])
        there = await self._db.read(lambda tx: alive(tx, caller.group, name))
        same = next((other for other in there if is_same(other, with_kept(task, other))), None)
        if same:
            return Planned(kind, name, NOT_CHANGED, id=same.id, message=f"it is {same.status}", known=same)
        if there:
            seen, task = caller.rights.may(Verb.get, Kind.Workload, caller.group), with_kept(task, there[0])
            problems = open_secrets(task) or [different(there[0], task, seen=seen)]
            raise Invalid(f"{name} already exists and is different.", problems=problems)
        if task.spec.open_secrets:
            task = with_kept(task, await self._db.read(lambda tx: last_of(tx, caller, name)))
        sent = asked.files.get(_file(number))
        files = {"workdir": sent} if sent else {}
        given = {"text": "", "source": asked.source, "files": files, "venv": asked.venv, "dry_run": asked.dry_run}
        submission = Submission.model_validate(given)
        prepared = await self._submit.prepare(caller, task, submission, coming)
        said = (await self._submit.outlook(prepared)).message if asked.dry_run else prepared.workload.message
        return Planned(
            kind,
            name,
            CREATED,
            id=prepared.workload.id,
            message=said,
            ahead=prepared.workload.ahead,
            workload=prepared.workload,
            job=prepared.job,
            homes=prepared.homes,
            caller=caller,
        )

    def _refuse_missing_files(self, documents: Sequence[Document], asked: Application) -> None:
        """Ask for all local directories that the texts name, at once."""
        wanted = {
            _file(number): document.task.spec.workdir
            for number, document in enumerate(documents)
            if not isinstance(document, ManifestVolume | NounDocument) and sends_workdir(document.task.spec)
        }
        missing = {name: path for name, path in wanted.items() if name not in asked.files}
        if missing:
            raise self._uploads.needed(missing)

    # making

    async def _make_all(self, caller: Caller, plans: Sequence[Planned], key: str | None) -> tuple[Applied, ...]:
        """Make all that is planned. What cannot be made by now is its own result, and the others go on."""
        made, results = ApplyProgress(), list[Applied]()
        for some in together(plans):
            keys = [_key(key, len(results) + number) for number in range(len(some))]
            making = (self._make_or_say(caller, plan, key, made) for plan, key in zip(some, keys, strict=True))
            for plan, applied in zip(some, await asyncio.gather(*making), strict=True):
                made.note(plan, applied)
                results.append(applied)
        return await self._with_places(plans, results)

    async def _make_or_say(self, caller: Caller, plan: Planned, key: str | None, made: ApplyProgress) -> Applied:
        try:
            return await self._make(plan.caller or caller, plan, key, made)
        except PenstockError as error:
            said = " ".join([error.message, *map(str, error.problems), error.hint or ""]).strip()
            return replace(plan, result=FAILED, id=None, message=said).applied()

    async def _with_places(self, plans: Sequence[Planned], results: Sequence[Applied]) -> tuple[Applied, ...]:
        """Return the results with what each waits for once all are in the queue: each was planned as if it were
        alone."""
        new = [one.id for plan, one in zip(plans, results, strict=True) if plan.workload and one.id == plan.id]
        causes = await self._queue.settled_causes([id_ for id_ in new if id_]) if len(new) > 1 else {}
        return tuple(one.model_copy(update=_waits(causes[one.id])) if one.id in causes else one for one in results)

    async def _make(self, caller: Caller, plan: Planned, key: str | None, made: ApplyProgress) -> Applied:
        """Make it; if somebody else has made one of its name meanwhile, plan it anew and try once more."""
        try:
            return await self._make_planned(caller, plan, key, made)
        except NameTaken:
            if plan.again is None:
                raise
            return await self._make_planned(caller, await plan.again(), key, made)

    async def _make_planned(self, caller: Caller, plan: Planned, key: str | None, made: ApplyProgress) -> Applied:
        if plan.write:
            await plan.write()
        elif plan.result == RESIZED and plan.asked and plan.id:
            await self._volumes.resize(caller, plan.id, plan.asked.size or "")
        elif plan.volume and plan.asked:
            view = await self._volumes.add(caller, plan.volume, plan.asked, key)
            return plan.applied(id=view.id, message=view.message, notices=view.notices)
        elif plan.workload:
            request = KeyedRequest(caller, key, Kind.Workload, plan.workload.spec.model_dump_json().encode())
            workload = made.resolved(plan.workload)
            view_of = await self._submit.add(caller, Prepared(workload, plan.homes), request, alone=True)
            return plan.applied(id=view_of.id, message=workload.message, ahead=workload.ahead)
        return plan.applied()


async def _planned(again: Callable[[], Awaitable[Planned]]) -> Planned:
    return replace(await again(), again=again)


def _refuse_other_kinds(read: ReadResult, asked: Application) -> None:
    if asked.kinds is None:
        return
    hint = "penstock apply -f FILE takes it"
    problems = []
    for document in read.documents:
        kind = _kind(document)
        if kind not in asked.kinds:
            said = f"a {kind} is not taken here, only {' and '.join(asked.kinds)}"
            problems.append(Problem(said, where=_kind_place(document), field="kind", hint=hint))
    if problems:
        said = f"{asked.source} cannot be applied; nothing was changed."
        raise Invalid(said, problems=in_order([*read.problems, *problems]))


def _kind(document: Document) -> str:
    if isinstance(document, NounDocument):
        return document.kind
    return CLAIM if isinstance(document, ManifestVolume) else kind_of(document)


def _kind_place(document: Document) -> str | None:
    """Return where a document says its kind; a task says none, and is known by its name."""
    if isinstance(document, NounDocument | ManifestVolume):
        return document.place("kind")[0]
    return document.task.where("kind") or document.task.where("name")


def workload_deed(caller: Caller, document: Runnable, verb: Verb) -> Deed:
    return Deed(verb, Kind.Workload, named_group(document) or caller.group, document.task.spec.name or "")


def named_group(document: Runnable) -> str | None:
    return document.group if isinstance(document, WorkloadDocument) else None


def kind_of(document: Runnable) -> str:
    if isinstance(document, ManifestWorkload):
        return document.kind
    return WORKLOAD if isinstance(document, WorkloadDocument) else TASK


def _homes(caller: Caller, document: Document) -> frozenset[tuple[str, str]]:
    if isinstance(document, ManifestVolume | NounDocument):
        return frozenset()
    return homes_of(document.task.spec, named_group(document) or caller.group)


def _file(number: int) -> str:
    return f"{number}.workdir"


def _waits(cause: WaitCause | None) -> dict[str, Any]:
    return {"message": cause.message, "ahead": cause.ahead} if cause else {"message": None, "ahead": None}


def _key(key: str | None, number: int) -> str | None:
    return hashlib.sha256(f"{key}/{number}".encode()).hexdigest() if key else None
