"""Write the audit in the same transaction as the change it records."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace

from penstock.domain.audit import AuditEntry, Deed
from penstock.domain.model import now
from penstock.domain.policy import Kind, Verb
from penstock.domain.users import Caller
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.errors import PenstockError
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
DONE, DENIED, FAILED = "done", "denied", "failed"
WINDOW = 60.0
LINES = 20
"""How many different refusals of one user are written in a minute, each with what was asked for."""
USERS = 200
"""How many users are told apart in a minute."""
OTHERS = ""


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
        AuditEntry(
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


@dataclass
class _Minute:
    """The refusals to one user in the minute since the first."""

    caller: Caller
    whose: str
    seen: set[tuple[str, Deed, str | None]] = field(default_factory=set)
    more: int = 0
    last: tuple[Deed, str | None] | None = None
    ends: asyncio.TimerHandle | None = None


class Audit:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._minutes: dict[str, _Minute] = {}
        """By user."""
        self._counting: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Write the refusals that are counted and not written yet."""
        for user in list(self._minutes):
            self._end(user)
        await asyncio.gather(*self._counting)

    async def page(
        self, *, user: str | None, name: str | None, limit: int, cursor: str | None
    ) -> tuple[list[AuditEntry], str | None]:
        return await self._db.read(lambda tx: tx.audit.page(user=user, name=name, limit=limit, cursor=cursor))

    async def done(self, caller: Caller, verb: Verb, kind: Kind) -> None:
        """Record something that was done outside the store."""
        await self._db.write(lambda tx: note(tx, caller, verb, kind))

    async def denied(self, caller: Caller, deed: Deed, detail: str | None = None) -> None:
        """Record a refusal, the same once a minute and only so many of one user: one who knocks at every door must not
        fill the disk. The rest is counted, and costs no write until the minute is over."""
        minute, what = self._minute(caller), (caller.user, deed, detail)
        if what in minute.seen:
            return
        if len(minute.seen) >= LINES:
            minute.more, minute.last = minute.more + 1, (deed, detail)
            return
        minute.seen.add(what)
        verb, kind, group, name = deed
        await self._db.write(
            lambda tx: note(tx, caller, verb, kind, group=group, name=name, result=DENIED, detail=detail)
        )

    def _minute(self, caller: Caller) -> _Minute:
        """Return the minute of this user. Too many users at once share one: whoever can choose a name could choose a
        new one each time."""
        user = caller.user if caller.user in self._minutes or len(self._minutes) < USERS else OTHERS
        found = self._minutes.get(user)
        if found is None:
            named = caller if user == caller.user else replace(caller, user=OTHERS)
            found = self._minutes[user] = _Minute(named, user or "others")
            found.ends = asyncio.get_running_loop().call_later(WINDOW, self._end, user)
        return found

    def _end(self, user: str) -> None:
        minute = self._minutes.pop(user)
        if minute.ends:
            minute.ends.cancel()
        if minute.more:
            task = asyncio.create_task(self._count(minute))
            self._counting.add(task)
            task.add_done_callback(self._counting.discard)

    async def _count(self, minute: _Minute) -> None:
        if minute.last is None:
            return
        (verb, kind, group, name), detail = minute.last
        last = detail or f"{verb} {kind} {name}".strip()
        said = f"… and {minute.more:,} more refused requests of {minute.whose} in this minute; the last: {last}"
        try:
            await self._db.write(
                lambda tx: note(tx, minute.caller, verb, kind, group=group, name=name, result=DENIED, detail=said)
            )
        except PenstockError as error:
            log.warning("%s (not written down: %s)", said, error)
