"""List, show, wait for, stop and delete workloads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from penstock.domain.attempts import latest
from penstock.domain.policy import Kind, Verb
from penstock.domain.states import WAITING, Reason, State
from penstock.domain.users import Caller
from penstock.domain.workloads import Unit, Wants, Workload
from penstock.engines.base import Engine
from penstock.errors import Conflict, NotFound, PenstockError
from penstock.services import audit, lookup
from penstock.services.reconcile.reconciler import Reconciler
from penstock.services.scheduler.queue import JobQueue
from penstock.services.scheduler.reasons import as_of_now, summaries_as_of_now
from penstock.services.wakeup import Wakeup
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.store.workloads import ListedWorkload
from penstock.wire.workloads import Summary, WorkloadView, summary_texts

LARGEST_PAGE = 500
PAGES_KEPT = 100
AT_ONCE = 256
"""How many are asked to stop in one transaction, so that others need not wait long for theirs."""


class Workloads:
    def __init__(self, db: Database, engine: Engine, reconciler: Reconciler, queue: JobQueue, wakeup: Wakeup) -> None:
        self._db = db
        self._engine = engine
        self._reconciler = reconciler
        self._queue = queue
        self._wakeup = wakeup
        self._pages: dict[object, tuple[int, tuple[list[ListedWorkload], str | None]]] = {}
        """What was asked for → the version of the store then, and the page."""

    # look

    async def page(
        self,
        caller: Caller,
        *,
        everyone: bool,
        name: str | None,
        states: list[State] | None,
        statuses: list[str] | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[list[str], str | None]:
        """Return summaries as JSON; those that wait say why as of now. The page is read anew once something was
        written."""
        groups = _groups(caller, everyone=everyone)
        asked = (groups, name, tuple(states or ()), tuple(statuses or ()), limit, cursor)
        version = self._db.version
        known = self._pages.get(asked)
        if known and known[0] == version:
            return self._texts(known[1][0]), known[1][1]
        found = await self._db.read(
            lambda tx: tx.workloads.page(
                groups, name=name, states=states, statuses=statuses, limit=limit, cursor=cursor
            )
        )
        if len(self._pages) >= PAGES_KEPT:
            self._pages.clear()
        self._pages[asked] = (version, found)
        return self._texts(found[0]), found[1]

    def _texts(self, listed: list[ListedWorkload]) -> list[str]:
        return summary_texts(summaries_as_of_now(listed, self._queue.causes))

    async def whole_page(
        self,
        caller: Caller,
        *,
        everyone: bool,
        name: str | None,
        statuses: list[str] | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[list[tuple[Summary, tuple[Unit, ...]]], str | None]:
        """Return summaries with their units, for the list of k8s-cli."""
        groups = _groups(caller, everyone=everyone)

        def look(tx: Store) -> tuple[list[ListedWorkload], list[tuple[Unit, ...]], str | None]:
            items, after = tx.workloads.page(groups, name=name, statuses=statuses, limit=limit, cursor=cursor)
            return items, [latest(tx.workloads.units(item.id)) for item in items], after

        items, units, after = await self._db.read(look)
        shown = map(Summary.model_validate_json, summaries_as_of_now(items, self._queue.causes))
        return list(zip(shown, units, strict=True)), after

    async def get(self, caller: Caller, ref: str) -> WorkloadView:
        def look(tx: Store) -> WorkloadView:
            workload = lookup.workload(tx, caller, ref)
            history, units = tx.workloads.history(workload.id), tx.workloads.units(workload.id)
            return WorkloadView.whole(workload, history, units, self._queue.limits)

        return as_of_now(await self._db.read(look), self._queue.causes)

    async def wait(self, caller: Caller, ref: str, timeout: float) -> WorkloadView:
        """Return the workload once it has ended, or as it is when the time is up. Only its own changes wake the
        waiter."""
        until = time.monotonic() + timeout
        view = await self.get(caller, ref)
        with self._wakeup.listen(view.id) as listener:
            while True:
                listener.clear()
                view = await self.get(caller, view.id)
                left = until - time.monotonic()
                if view.ended_at is not None or left <= 0 or self._wakeup.stopping:
                    return view
                await listener.change(left)

    # end

    async def stop(self, caller: Caller, ref: str) -> Summary:
        def change(tx: Store) -> Workload:
            return self._ask_to_stop(tx, lookup.workload(tx, caller, ref, Verb.stop), caller)

        return self._stopped(await self._db.write(change))

    async def stop_for(self, owner: Caller, workload_id: str) -> None:
        """Stop it in the name of its owner, who may have lost the right to it meanwhile."""
        self._stopped(await self._db.write(lambda tx: self._ask_to_stop(tx, _by_id(tx, workload_id), owner)))

    async def stop_these(self, asked: Sequence[tuple[Caller, str]]) -> list[Summary | PenstockError]:
        """Stop these and return what each is then, or why it is not stopped. None gives back its place before all are
        asked, so that none starts in the place of another."""
        stopped: list[Workload | PenstockError] = []
        for some in (asked[start : start + AT_ONCE] for start in range(0, len(asked), AT_ONCE)):
            stopped += await self._db.write(partial(self._ask_each_to_stop, some))
        return [self._stopped(each) if isinstance(each, Workload) else each for each in stopped]

    def _ask_each_to_stop(self, asked: Sequence[tuple[Caller, str]], tx: Store) -> list[Workload | PenstockError]:
        found: list[Workload | PenstockError] = []
        for caller, id_ in asked:
            try:
                found.append(self._ask_to_stop(tx, lookup.workload(tx, caller, id_, Verb.stop), caller))
            except PenstockError as error:
                found.append(error)
        return found

    async def stop_all(self, caller: Caller, *, everyone: bool) -> list[Summary]:
        """Stop all that the caller made and may stop, or everyone's: what others made in a common group is theirs."""

        def change(tx: Store) -> list[Workload]:
            groups = caller.where(Verb.stop, Kind.Workload)
            mine = [w for w in tx.workloads.active() if everyone or (w.group in groups and w.user == caller.user)]
            return [self._ask_to_stop(tx, workload, caller) for workload in mine if workload.wants is Wants.RUN]

        return [self._stopped(workload) for workload in await self._db.write(change)]

    def _ask_to_stop(self, tx: Store, workload: Workload, caller: Caller) -> Workload:
        """Stop one that waits in our own queue at once; ask the engine to stop any other. An ended one stays as it
        is."""
        if workload.ended or workload.wants is Wants.STOP:
            return workload
        at_once = workload.state in WAITING and not self._engine.schedules
        state = State.STOPPED if at_once else State.REQUESTED_CANCEL
        stopped: Workload = tx.workloads.move(
            workload, state, Reason.STOPPED_BY_USER, f"by {caller.user}", wants=Wants.STOP
        )
        audit.note_of(tx, caller, Verb.stop, workload)
        return stopped

    def _stopped(self, workload: Workload) -> Summary:
        self._wakeup.wake(workload.id)
        self._reconciler.touch(workload.id)
        return Summary.of(workload)

    async def delete(self, caller: Caller, ref: str) -> list[Workload]:
        """Delete the one with this id, or all of this name; the newest first. One that is alive keeps them all."""

        def change(tx: Store) -> list[Workload]:
            gone: list[Workload] = []
            meant = lookup.workloads(tx, caller, ref, Verb.delete)
            while meant:
                gone += [_forget(tx, caller, workload) for workload in meant]
                left = tx.workloads.find(ref, meant[0].group)
                meant = [each for each in left if each.name == ref and each.ended]
            return gone

        gone = await self._db.write(change)
        for workload in gone:
            self._reconciler.touch(workload.id)
        return gone

    async def delete_for(self, owner: Caller, workload_id: str) -> None:
        """Delete it in the name of its owner, as `stop_for` stops it."""
        gone = await self._db.write(lambda tx: _forget(tx, owner, _by_id(tx, workload_id)))
        self._reconciler.touch(gone.id)

    async def counts(self) -> dict[str, int]:
        return await self._db.read(lambda tx: tx.workloads.counts())


def _by_id(tx: Store, workload_id: str) -> Workload:
    found = tx.workloads.get(workload_id)
    if found is None or found.state is State.DELETED:
        raise NotFound(f"Task {workload_id} not found")
    return found


def _forget(tx: Store, caller: Caller, workload: Workload) -> Workload:
    if not workload.ended:
        raise _not_over(workload)
    moved: Workload = tx.workloads.move(workload, State.DELETED, Reason.DELETED_BY_USER, wants=Wants.DELETE)
    audit.note_of(tx, caller, Verb.delete, workload)
    return moved


def _not_over(workload: Workload) -> Conflict:
    name = f"{workload.name} ({workload.id})"
    if workload.wants is not Wants.STOP:
        return Conflict(f"{name} is {workload.status}.", hint=f"penstock jobs stop {workload.id}")
    why = f" ({workload.message.rstrip('.')})" if workload.message else ""
    return Conflict(f"{name} was asked to stop{why} and has not ended yet.", hint=f"penstock jobs wait {workload.id}")


def _groups(caller: Caller, *, everyone: bool) -> tuple[str, ...] | None:
    return None if everyone else caller.listed(Kind.Workload)
