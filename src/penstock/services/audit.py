"""Who did what: a line in the same write as the deed, so that neither is ever without the other."""

from __future__ import annotations

import time

from penstock.domain.audit import Deed, Entry
from penstock.domain.model import now
from penstock.domain.policy import Kind, Verb
from penstock.domain.users import Caller
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.store.database import Database
from penstock.store.session import Store

DONE, DENIED, FAILED = "done", "denied", "failed"


def note(
    tx: Store,
    caller: Caller,
    verb: Verb,
    kind: Kind,
    *,
    group: str = "",
    name: str = "",
    id: str = "",
    result: str = DONE,
    detail: str | None = None,
) -> None:
    tx.audit.add(
        Entry(
            at=now(),
            user=caller.user,
            verb=verb,
            kind=kind,
            group=group,
            name=name,
            id=id,
            result=result,
            detail=detail,
        )
    )


def note_of(
    tx: Store, caller: Caller, verb: Verb, thing: Workload | Volume, detail: str | None = None, result: str = DONE
) -> None:
    kind = Kind.Workload if isinstance(thing, Workload) else Kind.Volume
    note(tx, caller, verb, kind, group=thing.group, name=thing.name, id=thing.id, result=result, detail=detail)


class Audit:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._denied: dict[tuple[str, Deed, str | None], float] = {}

    async def page(
        self, *, user: str | None, name: str | None, limit: int, cursor: str | None
    ) -> tuple[list[Entry], str | None]:
        return await self._db.read(lambda tx: tx.audit.page(user=user, name=name, limit=limit, cursor=cursor))

    async def done(self, caller: Caller, verb: Verb, kind: Kind) -> None:
        """What is done outside the store."""
        await self._db.write(lambda tx: note(tx, caller, verb, kind))

    async def denied(self, caller: Caller, deed: Deed, detail: str | None = None) -> None:
        """Once a minute for each: one who knocks again and again must not fill the disk."""
        key, moment = (caller.user, deed, detail), time.monotonic()
        if moment - self._denied.get(key, -60.0) < 60:
            return
        if len(self._denied) >= 1000:
            self._denied.clear()
        self._denied[key] = moment
        verb, kind, group, name = deed
        await self._db.write(
            lambda tx: note(tx, caller, verb, kind, group=group, name=name, result=DENIED, detail=detail)
        )
