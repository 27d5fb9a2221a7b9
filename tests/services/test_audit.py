"""Refusals in the audit: the count of a minute is written when it is over."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.domain.audit import AuditEntry, Deed
from penstock.domain.policy import Kind, Verb
from penstock.domain.users import Caller, Proof
from penstock.services import audit
from penstock.services.audit import Audit
from penstock.store.database import Database


async def lines(kept: Audit) -> list[AuditEntry]:
    entries, _ = await kept.page(user=None, name=None, limit=500, cursor=None)
    return entries[::-1]


async def refuse(kept: Audit, user: str, times: int) -> None:
    for number in range(times):
        deed = Deed(Verb.get, Kind.Workload, "", f"never{number}")
        await kept.denied(Caller(user=user, proof=Proof.header), deed)


async def test_the_rest_is_counted_once_the_minute_is_over(tmp_path: Path, monkeypatch):
    loop = asyncio.get_running_loop()
    clock = loop.time
    db = await Database.open(f"sqlite:///{tmp_path}/a.db")
    kept = Audit(db)
    await refuse(kept, "nosy", 50)
    version = db.version
    assert len(await lines(kept)) == audit.LINES
    monkeypatch.setattr(loop, "time", lambda: clock() + audit.WINDOW)
    while len(found := await lines(kept)) == audit.LINES:
        version = await db.changed(version, 10)
    assert found[-1].detail == "… and 30 more refused requests of nosy in this minute; the last: get Workload never49"
    await refuse(kept, "nosy", 1)
    assert len(await lines(kept)) == audit.LINES + 2, "a new minute begins"
    await kept.close()
    await db.close()


async def test_whoever_comes_under_many_names_is_counted_as_one(tmp_path: Path):
    """In header mode a process can call itself whatever it likes."""
    db = await Database.open(f"sqlite:///{tmp_path}/a.db")
    kept = Audit(db)
    for number in range(audit.USERS + 500):
        await refuse(kept, f"user{number}", 1)
    assert len(await lines(kept)) == audit.USERS + audit.LINES
    await kept.close()
    *_, last = await lines(kept)
    assert (last.user, "480 more refused requests of others" in (last.detail or "")) == ("", True)
    await db.close()


async def test_refusals_at_the_same_time_are_not_written_twice(tmp_path: Path):
    db = await Database.open(f"sqlite:///{tmp_path}/a.db")
    kept = Audit(db)
    await asyncio.gather(*(refuse(kept, "nosy", 50) for _ in range(5)))
    assert len(await lines(kept)) == audit.LINES
    await kept.close()
    await db.close()
