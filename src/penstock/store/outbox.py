"""Store notifications to be sent, written with the state they are about and removed once delivered."""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import delete, func, insert, select, update

from penstock.domain.model import iso, now
from penstock.domain.workloads import Workload
from penstock.store.tables import outbox as o
from penstock.store.transaction import Table, from_ms, storable, to_ms, value

_ADD = insert(o).inline()
_RECIPIENTS = select(o.c.to).group_by(o.c.to).order_by(func.min(o.c.seq))
_FIRST = (
    select(o.c.seq, o.c.to, o.c.doc, o.c.tries, o.c.created_at, o.c.due_at)
    .where(o.c.to == value("recipient"))
    .order_by(o.c.seq)
    .limit(1)
)
_LAST = select(func.max(o.c.due_at)).where(o.c.to == value("recipient"))
_LATER = (
    update(o)
    .where(o.c.to == value("recipient"), o.c.seq >= value("number"))
    .values(tries=o.c.tries + 1, due_at=value("time"))
)
_DONE = delete(o).where(o.c.seq == value("number"))


class Notification(NamedTuple):
    seq: int
    to: str
    doc: str
    tries: int
    created_at: datetime
    due_at: datetime


class Outbox(Table):
    def add(self, to: str, workload: Workload, message: str | None) -> None:
        """Tell a recipient the state of a workload, after all that they are still to be told."""
        moment = to_ms(now())
        [(last,)] = self._tx.rows(_LAST, {"recipient": storable(to)})
        doc = storable(told(workload, message))
        row = {"workload_id": workload.id, "to": storable(to), "doc": doc, "tries": 0}
        self._tx.write(_ADD, row | {"created_at": moment, "due_at": max(moment, last or 0)})

    def recipients(self) -> list[str]:
        """Return whoever is to be told something, now or later; who waits longest first."""
        return [to for (to,) in self._tx.rows(_RECIPIENTS)]

    def first(self, to: str) -> Notification | None:
        for seq, recipient, doc, tries, created, due in self._tx.rows(_FIRST, {"recipient": to}):
            return Notification(seq, recipient, doc, tries, from_ms(created), from_ms(due))
        return None

    def later(self, notification: Notification, time: datetime) -> None:
        """It was not heard: those that follow to the same recipient wait with it."""
        self._tx.write(_LATER, {"recipient": notification.to, "number": notification.seq, "time": to_ms(time)})

    def done(self, seq: int) -> None:
        self._tx.write(_DONE, {"number": seq})


def told(workload: Workload, message: str | None) -> str:
    said = {
        "id": workload.id,
        "name": workload.name,
        "group": workload.group,
        "user": workload.user,
        "state": workload.state.value,
        "status": workload.status,
        "reason": workload.reason.value,
        "message": workload.spec.without_secrets(message),
        "exit_code": workload.exit_code,
        "at": iso(workload.updated_at),
    }
    return json.dumps(said)
