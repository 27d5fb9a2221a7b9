"""Rebuild lost records from what an engine has kept of ours.

What the store knows is left alone. A workload that is found has its attempt already launched, and the reconciler finds
out what became of it. Where a cluster schedules, the workload begins as QUEUED. On a Docker host it keeps the place it
has, and that is in the records before our scheduler uses the host: so each host is asked when it is seen for the first
time, for the documents that name the hosts were lost with the rest. The owner is who the found record says; an admin
gives that name a token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from penstock.domain.model import now
from penstock.domain.names import NAME_LIMIT
from penstock.domain.nodes import Node
from penstock.domain.policy import Kind
from penstock.domain.states import WAITING, Reason, State
from penstock.domain.users import Account, Caller
from penstock.domain.volumes import Phase, Volume
from penstock.domain.workloads import Unit, Wants, Workload
from penstock.engines.base import Engine, Found, HasHosts, KeepsRecords, LeftOver, Run, namespace_of
from penstock.errors import PenstockError, Unavailable
from penstock.services.reconcile.records import UNPLACED
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire.server import Check

log = logging.getLogger(__name__)
RETRY = 2.0
PATIENCE = 1.0
"""How many seconds a host may keep the others waiting for their next job."""
SHOWN = 300
LOST = "the server's own records were lost"
FOUND = f"found in the cluster; {LOST}"
NOT_YET = {"ready": False, "message": "what runs there is being looked up"}


class Adoption:
    def __init__(self, db: Database, engine: Engine, adopted: Callable[[Workload], None]) -> None:
        self._db = db
        self._engine = engine
        self._adopted = adopted
        self._unreadable: tuple[str, ...] = ()
        self._work: asyncio.Task[None] | None = None
        self._on_hosts = isinstance(engine, HasHosts)
        self._known: set[tuple[str, str]] = set()
        """The hosts, by name and address, whose work is in the records."""

    async def open(self) -> None:
        """Adopt before anything is reconciled; where the engine does not answer yet, as soon as it does."""
        try:
            await self._adopt(self._new(await self._engine.nodes()) if self._on_hosts else ())
        except Unavailable:
            self._work = asyncio.create_task(self._adopt_later())

    async def close(self) -> None:
        if self._work:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def _adopt_later(self) -> None:
        while True:
            await asyncio.sleep(RETRY)
            try:
                await self._take_over(())
                return
            except Unavailable:
                continue

    async def nodes(self) -> list[Node]:
        """Return the engine's nodes, of which none is ready before what runs there is in the records."""
        nodes = await self._engine.nodes()
        if not self._on_hosts:
            return nodes
        self._known &= {(node.name, node.address) for node in nodes}  # one that was taken out may come back
        if new := self._new(nodes):
            if self._work is None or self._work.done():
                self._work = asyncio.create_task(self._take_over(new))
            await asyncio.wait({self._work}, timeout=PATIENCE)
            if self._work.done():
                self._work.result()
        late = {node.name for node in self._new(nodes)}
        return [node.model_copy(update=NOT_YET) if node.name in late else node for node in nodes] if late else nodes

    def _new(self, nodes: Sequence[Node]) -> list[Node]:
        return [node for node in nodes if node.ready and (node.name, node.address) not in self._known]

    async def _take_over(self, nodes: Sequence[Node]) -> None:
        for workload in await self._adopt(nodes):
            self._adopted(workload)

    async def _adopt(self, nodes: Sequence[Node] = ()) -> list[Workload]:
        """Adopt what these nodes have and return the workloads that are new to the store."""
        if not isinstance(self._engine, KeepsRecords):
            return []
        names = [node.name for node in nodes]
        found = await self._without_removed(await self._engine.found(names), names)
        for said in found.unreadable:
            log.warning("not taken over: %s", said)
        self._unreadable = tuple(sorted({*self._unreadable, *found.unreadable}))
        new = await self._write(await self._without_deleted(found))
        self._known |= {(node.name, node.address) for node in nodes if node.name in found.nodes}
        return new

    async def _without_removed(self, found: Found, nodes: Sequence[str]) -> Found:
        """Leave out workloads that were being removed while they were looked for. Their records went after them, so a
        second look does not find what the records do not know for this reason."""

        def unknown(tx: Store) -> set[str]:
            return {workload.id for workload in found.workloads if tx.workloads.get(workload.id) is None}

        new = await self._db.read(unknown)
        if not new or not isinstance(self._engine, KeepsRecords):
            return found
        gone = new - {workload.id for workload in (await self._engine.found(nodes)).workloads}
        return found.model_copy(update={"workloads": tuple(each for each in found.workloads if each.id not in gone)})

    async def _without_deleted(self, found: Found) -> Found:
        """Delete volumes that somebody deleted while their node was away, and return the rest."""

        def gone(tx: Store) -> list[Volume]:
            new = [volume for volume, _ in found.volumes if tx.volumes.get(volume.id) is None]
            return [volume for volume in new if tx.audit.was_deleted(Kind.Volume, volume.id)]

        deleted = await self._db.read(gone)
        for volume in deleted:
            try:
                await self._engine.delete_volume(volume)
            except PenstockError as error:
                log.warning("volume %s was deleted and is still there: %s", volume.object_name, error)
        ids = {volume.id for volume in deleted}
        return found.model_copy(update={"volumes": tuple(pair for pair in found.volumes if pair[0].id not in ids)})

    async def _write(self, found: Found) -> list[Workload]:
        """Adopt the oldest first, each by itself: one that the store cannot take must not keep the others, or the
        server, from their work."""
        volumes = sorted(found.volumes, key=lambda pair: pair[0].created_at)
        workloads = sorted(map(self._again, found.workloads), key=lambda workload: workload.created_at)
        made = await asyncio.gather(*(self._taken(pair[0], partial(_adopt_volume, *pair)) for pair in volumes))
        new = await asyncio.gather(*(self._taken(each, partial(_adopt_workload, each)) for each in workloads))
        if any(made) or any(new):
            log.warning("adopted %s volumes and %s workloads that the records did not know", sum(made), sum(new))
        return [workload for workload, is_new in zip(workloads, new, strict=True) if is_new]

    async def _taken(self, thing: Workload | Volume, adopt: Callable[[Store], bool]) -> bool:
        try:
            return await self._db.write(adopt)
        except Exception as error:
            log.exception("%s cannot be adopted", thing.object_name)
            self._unreadable += (f"{thing.object_name}: {type(error).__name__}: {error}"[:SHOWN],)
            return False

    def _again(self, workload: Workload) -> Workload:
        """Return a found workload as it is stored anew. Its record does not say what became of it; where our scheduler
        gave it a place it keeps that."""
        placed = {
            "state": State.REQUESTED_LAUNCH,
            "message": f"found on {', '.join(dict.fromkeys(workload.hosts))}; {LOST}",
        }
        update = {
            "namespace": namespace_of(self._engine, workload.user, workload.group),
            "state": State.QUEUED,
            "reason": Reason.ADOPTED,
            "message": FOUND,
            "wants": Wants.RUN,
            "launched": workload.attempt,
            "exit_code": None,
            "started_at": workload.started_at if self._on_hosts else None,
            "ended_at": None,
            "updated_at": now(),
        }
        return workload.model_copy(update=update | (placed if self._on_hosts else {}))

    async def checks(self, caller: Caller) -> list[Check]:
        """Return for `penstock doctor` what was found and could not be read, and what runs although nobody asked for
        it."""
        return [*self._not_taken_over(caller), *await self._left_over()]

    def _not_taken_over(self, caller: Caller) -> list[Check]:
        """Report what was not taken over; only admins are told the names."""
        if not self._unreadable:
            return []
        where, what = ("on hosts", "label") if self._on_hosts else ("in the cluster", "annotation")
        detail = f"{len(self._unreadable)} found {where} and not taken over"
        detail += f": {'; '.join(self._unreadable[:3])}" if caller.admin else ""
        fix = f"look at the {what} penstock.dev/record; what has it goes on, but is not listed here"
        return [Check(name="records", ok=False, detail=detail, fix=fix, required=False)]

    async def _left_over(self) -> list[Check]:
        left = await self._engine.left_over() if isinstance(self._engine, HasHosts) else []
        records = await self._db.read(lambda tx: [tx.workloads.get(each.run.workload_id) for each in left])
        known = zip(left, records, strict=True)
        return [_check(each, record) for each, record in known if not _goes_on(each.run, record)]


def _goes_on(run: Run, record: Workload | None) -> bool:
    return record is not None and not record.ended and record.attempt == run.attempt


def _check(each: LeftOver, record: Workload | None) -> Check:
    if record:  # its host was taken out as gone for good, and has come back
        said = f"{each.run.workload_id} is over by the records, and still runs on {each.node}"
        fix = f"penstock delete wk {each.run.workload_id} ends and removes it"
    else:
        said = f"the container {each.container} runs on {each.node}, and there is no record of it"
        fix = f"restart the server: it takes over what can be read; the rest ends with `docker rm -f` on {each.node}"
    return Check(name=f"containers on {each.node}", node=each.node, ok=False, detail=said, fix=fix, required=False)


def _adopt_volume(volume: Volume, account: Account, tx: Store) -> bool:
    if tx.volumes.get(volume.id) is not None:
        return False
    taken = any(each.name == volume.name for each in tx.volumes.find(volume.name, volume.group))
    there = volume.model_copy(update={"made": True})
    tx.volumes.add(_renamed(there) if taken else there, account)
    return True


def _adopt_workload(workload: Workload, tx: Store) -> bool:
    known = tx.workloads.get(workload.id)
    if known and not _is_behind(known, workload):
        return False
    if known and not known.ended:
        tx.workloads.move(known, State.UNKNOWN, Reason.OUTCOME_UNKNOWN, **UNPLACED)
    if known:
        tx.workloads.remove(known.id)
    tx.workloads.add(workload)
    tx.workloads.set_units(workload.id, _done_before(workload))
    return True


def _is_behind(known: Workload, found: Workload) -> bool:
    """Was the known record adopted from what an earlier attempt had left on another host? A cluster has all attempts in
    one place."""
    if found.state in WAITING:
        return False
    return known.attempt < found.attempt or (known.attempt == found.attempt and known.state in WAITING)


def _done_before(workload: Workload) -> list[Unit]:
    """Return the units of an array that a later attempt does not run: they completed in an earlier one."""
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
    """Return a volume with another name, for another of its group has its name by now. Where it really is it keeps the
    one it has."""
    name = f"{volume.name[: NAME_LIMIT - len(volume.id) - 1].rstrip('-')}-{volume.id}"
    phase = Phase.Bound if volume.phase is Phase.Deleting else volume.phase
    return volume.model_copy(update={"name": name, "claim": volume.object_name, "phase": phase})
