"""Tell what happened to a workload or a volume, in order, from our history and the engine's events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.domain.states import Reason, State
from penstock.domain.users import Caller
from penstock.domain.workloads import Change, Workload
from penstock.engines.base import Engine, HasCluster, Run
from penstock.services import lookup
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire.pages import Event

BAD = frozenset({State.CRASHED, State.STUCK, State.UNKNOWN})
BEGINS = frozenset({Reason.SUBMITTED, Reason.RETRY, Reason.REQUEUED, Reason.RESTARTED})
SECOND = timedelta(seconds=1)
ATTEMPTS = 5
"""How many attempts the engine is asked about: the newest."""


class EventHistory:
    def __init__(self, db: Database, engine: Engine) -> None:
        self._db = db
        self._engine = engine

    async def of_workload(self, caller: Caller, ref: str) -> tuple[Event, ...]:
        def look(tx: Store) -> tuple[Workload, tuple[Change, ...]]:
            workload = lookup.workload(tx, caller, ref)
            return workload, tx.workloads.history(workload.id)

        workload, history = await self._db.read(look)
        found: list[Event] = []
        for number in range(max(workload.attempt - ATTEMPTS, 0) + 1, workload.attempt + 1):
            found += await self._engine.events(Run.of(workload, number))
        begun = [change.at for change in history if change.reason in BEGINS]
        hide = workload.spec.without_secrets
        happened = _in_order([_ours(change) for change in history], found, begun)
        return tuple(event.model_copy(update={"message": hide(event.message)}) for event in happened)

    async def of_volume(self, caller: Caller, ref: str) -> tuple[Event, ...]:
        volume = await self._db.read(lambda tx: lookup.volume(tx, caller, ref))
        where = f"on the storage {volume.storage}" if volume.storage else f"in the storage class {volume.storage_class}"
        created = f"{where}, asked for by {volume.user}"
        about = f"volume {volume.name}"
        ours = Event(at=volume.created_at, kind="Normal", reason="CREATED", about=about, message=created)
        seen = await self._engine.volume_events(volume) if isinstance(self._engine, HasCluster) else []
        return _in_order([ours], seen, [volume.created_at])


def _in_order(ours: list[Event], theirs: list[Event], begun: list[datetime]) -> tuple[Event, ...]:
    """Merge our events and the engine's. A cluster writes whole seconds: what it says of the second in which something
    began came after that. Its own order is kept."""
    placed = [(event.at, 0, event) for event in ours]
    last = datetime.min.replace(tzinfo=UTC)
    for event in theirs:
        at = event.at
        if at.microsecond == 0:
            at = max((began for began in begun if at <= began < at + SECOND), default=at)
        last = max(last, at)
        placed.append((last, 1, event))
    return tuple(event for *_, event in sorted(placed, key=lambda each: each[:2]))


def _ours(change: Change) -> Event:
    said = f"{change.state}: {change.message}" if change.message else str(change.state)
    kind = "Warning" if change.state in BAD else "Normal"
    return Event(at=change.at, kind=kind, reason=change.reason, about="job", message=said)
