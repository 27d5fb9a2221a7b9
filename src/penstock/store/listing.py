"""One page of workloads, newest first, at the same price however many are stored.

An index can be read off its end only for one state of one group at a time. So a list narrowed by states or to several
groups reads the newest rows of each from a covering index, and merges those few: never a scan past what is not wanted,
never a sort of all.
The page comes back as a single row. SQLite's driver gives up the interpreter's lock for each row it steps to, and on a
busy server it would have to queue up for it a hundred times.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select, union_all

from penstock.domain.states import State
from penstock.store.tables import workloads as w
from penstock.store.transaction import group_names, value

SEPARATOR = "\n"
"""JSON text never has a bare one."""

LISTED = frozenset(State) - {State.DELETED}

_start = value("start")
_count = value("count")


@lru_cache(maxsize=512)
def page(states: frozenset[State], groups: int | None, by_name: bool) -> Select[str, int, Any]:
    """The texts joined, how many there are, and the number of the last. Takes the groups, name, start and count."""
    chosen = _chosen(states, groups, by_name).subquery()
    rows = select(w.c.seq, w.c.summary).where(w.c.seq.in_(select(chosen.c.seq))).order_by(w.c.seq.desc()).subquery()
    return select(func.aggregate_strings(rows.c.summary, SEPARATOR), func.count(), func.min(rows.c.seq))


@lru_cache(maxsize=512)
def documents(states: frozenset[State], groups: int | None, by_name: bool) -> Select[Any]:
    """The newest whole workloads. Takes the same."""
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
