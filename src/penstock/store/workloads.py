"""Store workloads: the row with its summary, history, units and mounts, and lists of them.

An index can be read off its end only for one state of one group at a time. So a list narrowed by states or to several
groups reads the newest rows of each from a covering index, and merges those few: never a scan past what is not wanted,
never a sort of all.

The page comes back as a single row. SQLite's driver gives up the interpreter's lock for each row it steps to, and on a
busy server it would have to queue up for it a hundred times.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, Update, delete, func, insert, select, true, union_all, update

from penstock.domain.model import now
from penstock.domain.states import ENDED, SHORT, WAITING, Reason, State, check_move
from penstock.domain.summaries import WorkloadSummary
from penstock.domain.workloads import Change, Unit, Workload
from penstock.errors import Conflict
from penstock.store.device_locks import LockTable, is_locking
from penstock.store.outbox import Outbox
from penstock.store.tables import dependencies as d
from penstock.store.tables import history as h
from penstock.store.tables import mounts as m
from penstock.store.tables import units as u
from penstock.store.tables import workloads as w
from penstock.store.transaction import (
    Table,
    Values,
    could_be_stored,
    from_ms,
    group_names,
    group_values,
    read_cursor,
    storable,
    to_ms,
    value,
    write_cursor,
)
from penstock.store.usage import UsageTable

FOUND_LIMIT = 20
"""How many of one name a search gives: enough to say that it is ambiguous."""

FAR = to_ms(datetime(9999, 1, 1, tzinfo=UTC))

_by_id = w.c.id == value("ref")
_active, _ended = w.c.active.is_(True), w.c.active.is_(False)
_unit_key = (u.c.workload_id == value("ref"), u.c.attempt == value("at_attempt"))

_ADD = insert(w).inline()
_ADD_LINE = insert(h).inline()
_ADD_MOUNTS = insert(m).inline()
_ADD_UNITS = insert(u).inline()
_ADD_DEPENDENCIES = insert(d).inline()
_COMPLETE = update(d).where(d.c.after_id == value("ref")).values(completed=true())
_UNMET = select(d.c.after_id).where(d.c.workload_id == value("ref"), d.c.completed.is_(False))
_GET = select(w.c.doc).where(_by_id)
_FIND = select(w.c.doc).where(_by_id, w.c.state != State.DELETED.value)
_FIND_IN_GROUP = _FIND.where(w.c.group_name == value("group"))
_UPDATE = update(w).where(_by_id, w.c.state == value("was"))
_MOVE = _UPDATE.where(w.c.wants == value("wanted"))
_RELEASE = update(m).where(m.c.workload_id == value("ref")).values(active=value("in_use"))
_HISTORY = select(h.c.state, h.c.reason, h.c.message, h.c.at).where(h.c.workload_id == value("ref")).order_by(h.c.seq)
_UNITS = select(u.c.doc).where(u.c.workload_id == value("ref")).order_by(u.c.attempt, u.c.idx, u.c.rank)
_UNITS_OF_ATTEMPT = _UNITS.where(u.c.attempt == value("at_attempt"))
_DROP_EARLIER = delete(u).where(u.c.workload_id == value("ref"), u.c.attempt < value("at_attempt"))
_DROP_UNIT = delete(u).where(*_unit_key, u.c.idx == value("at_idx"), u.c.rank == value("at_rank"))
_ACTIVE = select(w.c.doc).where(_active).order_by(w.c.seq)
_WAITING = _ACTIVE.where(w.c.state.in_(sorted(WAITING)))
_DELETED = select(w.c.doc).where(w.c.state == State.DELETED.value).order_by(w.c.seq)
_ENDED_BEFORE = select(w.c.id).where(w.c.ended_at < value("time"), w.c.state != State.DELETED.value, _ended)
_ENDED_SINCE = select(w.c.id).where(w.c.ended_at >= value("time"), w.c.state != State.DELETED.value, _ended)
_EXPIRED = select(w.c.id).where(w.c.expires_at <= value("time"))
_NEXT_EXPIRY = select(func.min(w.c.expires_at))
_REMOVE = delete(w).where(_by_id)
_USING = (
    select(w.c.doc)
    .where(w.c.id.in_(select(m.c.workload_id).where(m.c.volume_id == value("volume"), m.c.active.is_(True))))
    .order_by(w.c.seq)
)
_COUNTS = select(w.c.state, func.count()).group_by(w.c.state)


class ListedWorkload(NamedTuple):
    id: str
    state: str
    summary: str
    """A `WorkloadSummary` as JSON text."""


class WorkloadTable(Table):
    def add(self, workload: Workload, message: str | None = None) -> None:
        row = _changing(workload) | {
            "id": workload.id,
            "group_name": workload.group,
            "made_by": workload.user,
            "name": workload.name,
            "created_at": to_ms(workload.created_at),
        }
        self._tx.write(_ADD, row)
        if workload.state is not State.INSERTED:  # its history begins where every one does
            begun = {"state": State.INSERTED, "reason": Reason.SUBMITTED, "updated_at": workload.created_at}
            self._note(workload.model_copy(update=begun), None)
        self._note(workload, workload.message if message is None else storable(message))
        mounted = [
            {"workload_id": workload.id, "volume_id": volume, "active": not workload.ended}
            for volume in sorted(set(workload.volume_ids.values()))
        ]
        self._tx.write_each(_ADD_MOUNTS, mounted)
        awaited = [{"workload_id": workload.id, "after_id": id_, "completed": False} for id_ in workload.after_ids]
        self._tx.write_each(_ADD_DEPENDENCIES, awaited)
        if is_locking(workload):  # found beside what runs, by a server that had lost its records
            LockTable(self._tx).take(workload)
        UsageTable(self._tx).follow(None, workload)

    def get(self, id: str) -> Workload | None:
        row = self._tx.first(_GET, {"ref": id}) if could_be_stored(id) else None
        return Workload.model_validate_json(row[0]) if row else None

    def find(self, ref: str, group: str | None) -> list[Workload]:
        """Find the one with this id; or those of this name, active ones first, then the newest first. `group` None
        looks in all groups."""
        if not could_be_stored(ref):
            return []
        by_id = _FIND if group is None else _FIND_IN_GROUP
        row = self._tx.first(by_id, {"ref": ref, "group": group})
        if row:
            return [Workload.model_validate_json(row[0])]
        found: list[Workload] = []
        for states in (LISTED - ENDED, LISTED & ENDED):
            within = () if group is None else (group,)
            values = {"name": ref, "start": read_cursor(None), "count": FOUND_LIMIT - len(found)}
            statement = documents(states, None if group is None else 1, True)
            rows = self._tx.rows(statement, values | group_values(within))
            found += [Workload.model_validate_json(row[0]) for row in rows]
        return found

    def move(
        self, workload: Workload, state: State, reason: Reason, message: str | None = None, **fields: object
    ) -> Workload:
        """Return the workload in its new state, with `fields` changed too; its place in the queue was that of the old
        one. One that was changed since it was read is left alone (Conflict): read it in the same write. Where nothing
        would change, nothing is written."""
        check_move(workload.state, state)
        message = None if message is None else storable(message)
        changes = {"state": state, "reason": reason, "message": message, "ahead": None, **fields}
        if all(getattr(workload, field) == new for field, new in changes.items()):
            return workload
        moment = now()
        if state in ENDED and not (workload.ended and workload.ended_at):
            changes.setdefault("ended_at", moment)
        moved = workload.model_copy(update=changes | {"updated_at": moment})
        self._save(moved, _MOVE, was=workload.state.value, wanted=workload.wants.value)
        if (moved.state, moved.reason, moved.message) != (workload.state, workload.reason, workload.message):
            self._note(moved, message)
        if is_locking(workload) and not is_locking(moved):
            LockTable(self._tx).give(workload)
        if moved.ended != workload.ended and moved.volume_ids:
            self._tx.write(_RELEASE, {"ref": moved.id, "in_use": not moved.ended})
        if workload.state is State.EXITED and state is State.DELETED:
            self._tx.write(_COMPLETE, {"ref": moved.id})
        UsageTable(self._tx).follow(workload, moved)
        return moved

    def remark(self, workload: Workload, reason: Reason, message: str, *, tell: bool) -> Workload:
        """Give a workload that stays in its state another reason and message; with `tell` to all who are told anything
        of it."""
        said = {"reason": reason, "message": storable(message), "updated_at": now()}
        remarked = workload.model_copy(update=said)
        self.update(remarked)
        self._add_line(remarked, remarked.message)
        for to in dict.fromkeys(notice.to for notice in workload.spec.notify) if tell else ():
            Outbox(self._tx).add(to, remarked, remarked.message)
        return remarked

    def update(self, workload: Workload) -> None:
        """Store everything but the state, which only `move` changes."""
        self._save(workload, _UPDATE, was=workload.state.value)

    def page(
        self,
        groups: Sequence[str] | None,
        *,
        name: str | None = None,
        states: Sequence[State] | None = None,
        statuses: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[list[ListedWorkload], str | None]:
        """Return the newest first, of these groups or (None) all, and where the next page begins."""
        wanted = LISTED if states is None else LISTED.intersection(states)
        if statuses is not None:
            wanted = frozenset(state for state in wanted if SHORT[state] in statuses)
        values = {"name": name, "start": read_cursor(cursor), "count": limit + 1} | group_values(groups or ())
        nowhere = groups is not None and not groups
        if not wanted or nowhere or (name is not None and not could_be_stored(name)):
            return [], None
        statement = page(wanted, None if groups is None else len(groups), name is not None)
        [(ids, states_, texts, count, last)] = self._tx.rows(statement, values)
        if not count:
            return [], None
        rows = zip(ids.split(SEPARATOR), states_.split(SEPARATOR), texts.split(SEPARATOR), strict=True)
        found = [ListedWorkload(*row) for row in islice(rows, limit)]
        return found, write_cursor(last) if count > limit else None

    def history(self, id: str) -> tuple[Change, ...]:
        rows = self._tx.rows(_HISTORY, {"ref": id})
        return tuple(
            Change(state=State(state), reason=Reason(reason), message=message, at=from_ms(at))
            for state, reason, message, at in rows
        )

    def units(self, id: str, attempt: int | None = None) -> tuple[Unit, ...]:
        statement = _UNITS if attempt is None else _UNITS_OF_ATTEMPT
        rows = self._tx.rows(statement, {"ref": id, "at_attempt": attempt})
        return tuple(Unit.model_validate_json(row[0]) for row in rows)

    def set_units(self, id: str, units: Sequence[Unit]) -> None:
        """Put each unit in the place of the one with the same attempt, index and rank."""
        keys = [{"ref": id, "at_attempt": x.attempt, "at_idx": x.index, "at_rank": x.rank} for x in units]
        self._tx.write_each(_DROP_UNIT, keys)
        rows = [
            {"workload_id": id, "attempt": x.attempt, "idx": x.index, "rank": x.rank, "doc": x.model_dump_json()}
            for x in units
        ]
        self._tx.write_each(_ADD_UNITS, rows)

    def forget_units(self, id: str, before: int) -> None:
        self._tx.write(_DROP_EARLIER, {"ref": id, "at_attempt": before})

    def active(self) -> list[Workload]:
        """Return those that have not ended, oldest first."""
        return [Workload.model_validate_json(row[0]) for row in self._tx.rows(_ACTIVE)]

    def waiting(self) -> list[Workload]:
        """Return those that hold no resources yet, in the order they came."""
        return [Workload.model_validate_json(row[0]) for row in self._tx.rows(_WAITING)]

    def deleted(self) -> list[Workload]:
        """Return those whose last traces are still to be removed."""
        return [Workload.model_validate_json(row[0]) for row in self._tx.rows(_DELETED)]

    def ended_before(self, time: datetime) -> list[str]:
        return [row[0] for row in self._tx.rows(_ENDED_BEFORE, {"time": to_ms(time)})]

    def ended_since(self, time: datetime) -> list[str]:
        return [row[0] for row in self._tx.rows(_ENDED_SINCE, {"time": to_ms(time)})]

    def expired(self, time: datetime) -> list[str]:
        return [row[0] for row in self._tx.rows(_EXPIRED, {"time": to_ms(time)})]

    def next_expiry(self) -> datetime | None:
        [(soonest,)] = self._tx.rows(_NEXT_EXPIRY)
        return None if soonest is None else from_ms(soonest)

    def unmet(self, id: str) -> dict[str, Workload | None]:
        """Return what it waits for and has not completed, by id; None is gone."""
        awaited = {row[0]: self.get(row[0]) for row in self._tx.rows(_UNMET, {"ref": id})}
        return {id_: other for id_, other in awaited.items() if other is None or other.state is not State.EXITED}

    def remove(self, id: str) -> None:
        self._tx.write(_REMOVE, {"ref": id})

    def using(self, volume_id: str) -> list[Workload]:
        """Return those that have not ended and mount this volume, oldest first."""
        return [Workload.model_validate_json(row[0]) for row in self._tx.rows(_USING, {"volume": volume_id})]

    def counts(self) -> dict[str, int]:
        counted = dict.fromkeys((SHORT[state] for state in State if state in LISTED), 0)
        for state, number in self._tx.rows(_COUNTS):
            if state != State.DELETED:
                counted[SHORT[State(state)]] += number
        return counted

    def _save(self, workload: Workload, statement: Update, **expected: str) -> None:
        if not self._tx.write(statement, _changing(workload) | expected | {"ref": workload.id}):
            raise Conflict(
                f"Workload '{workload.name}' ({workload.id}) was changed by someone else.", hint="Try again."
            )

    def _note(self, workload: Workload, message: str | None) -> None:
        self._add_line(workload, message)
        for notice in workload.spec.notify:
            if workload.state in notice.on:
                Outbox(self._tx).add(notice.to, workload, message)

    def _add_line(self, workload: Workload, message: str | None) -> None:
        line = {
            "workload_id": workload.id,
            "attempt": workload.attempt,
            "state": workload.state.value,
            "reason": workload.reason.value,
            "message": message,
            "at": to_ms(workload.updated_at),
        }
        self._tx.write(_ADD_LINE, line)


def _changing(workload: Workload) -> Values:
    """Return the columns that follow the workload through its life."""
    return {
        "state": workload.state.value,
        "wants": workload.wants.value,
        "active": not workload.ended,
        "updated_at": to_ms(workload.updated_at),
        "ended_at": to_ms(workload.ended_at) if workload.ended_at else None,
        "summary": WorkloadSummary.of(workload).model_dump_json(),
        "doc": workload.model_dump_json(),
        "expires_at": _expiry(workload),
    }


def _expiry(workload: Workload) -> int | None:
    """Return when its `ttl` is over; one that is being deleted needs no second reason."""
    over = workload.ended and workload.state is not State.DELETED
    if not over or workload.ended_at is None or workload.spec.ttl is None:
        return None
    return min(to_ms(workload.ended_at) + workload.spec.ttl * 1000, FAR)


SEPARATOR = "\n"
"""JSON text never has a bare one."""

LISTED = frozenset(State) - {State.DELETED}

_start = value("start")
_count = value("count")


@lru_cache(maxsize=512)
def page(states: frozenset[State], groups: int | None, by_name: bool) -> Select[str, str, str, int, Any]:
    """Select the ids, the states and the summaries, each joined, how many there are, and the number of the last. Takes
    the groups, name, start and count."""
    chosen = _chosen(states, groups, by_name).subquery()
    listed = select(w.c.seq, w.c.id, w.c.state, w.c.summary).where(w.c.seq.in_(select(chosen.c.seq)))
    rows = listed.order_by(w.c.seq.desc()).subquery()
    return select(
        func.aggregate_strings(rows.c.id, SEPARATOR),
        func.aggregate_strings(rows.c.state, SEPARATOR),
        func.aggregate_strings(rows.c.summary, SEPARATOR),
        func.count(),
        func.min(rows.c.seq),
    )


@lru_cache(maxsize=512)
def documents(states: frozenset[State], groups: int | None, by_name: bool) -> Select[Any]:
    """Select the newest whole workloads. Takes the same."""
    chosen = _chosen(states, groups, by_name).subquery()
    return select(w.c.doc).where(w.c.seq.in_(select(chosen.c.seq))).order_by(w.c.seq.desc())


def _chosen(states: frozenset[State], groups: int | None, by_name: bool) -> Select[Any]:
    narrow: list[ColumnElement[bool]] = [w.c.seq <= _start]
    if by_name:
        narrow.append(w.c.name == value("name"))
    if states >= LISTED and not by_name:
        # Deleted ones are few and soon gone: stepping over them is cheaper than sixteen searches.
        wanted: list[ColumnElement[bool]] = [w.c.state != State.DELETED.value]
    else:
        wanted = [w.c.state == state.value for state in sorted(states - {State.DELETED})]
    within = [[]] if groups is None else [[w.c.group_name == value(name)] for name in group_names(groups)]
    each = [_newest(*narrow, *group, state) for group in within for state in wanted]
    if not each:
        return _newest(w.c.seq < 0)
    if len(each) == 1:
        return each[0]
    merged = union_all(*(select(newest.subquery().c.seq) for newest in each)).subquery()
    return select(merged.c.seq).order_by(merged.c.seq.desc()).limit(_count)


def _newest(*narrow: ColumnElement[bool]) -> Select[Any]:
    return select(w.c.seq).where(*narrow).order_by(w.c.seq.desc()).limit(_count)
