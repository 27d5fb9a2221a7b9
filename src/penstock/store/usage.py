"""Store usage: a row for each stretch of time in which a workload held resources.

Rows are written with the moves that begin and end it, and kept when everything else about the workload is gone. What
still runs counts up to now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Select, case, distinct, func, insert, null, or_, select, update

from penstock.domain.states import State
from penstock.domain.workloads import Unit, Workload
from penstock.store.tables import units as u
from penstock.store.tables import usage as t
from penstock.store.transaction import Table, from_ms, group_names, group_values, to_ms, value

_workload = t.c.workload_id == value("ref")
_open = t.c.ended_at.is_(None)
_row = t.c.seq == value("number")

_BEGIN = insert(t).inline()
_LAST = select(t.c.seq, t.c.began_at, t.c.places, t.c.peak_memory_bytes, t.c.ended_at)
_LAST = _LAST.where(_workload, t.c.attempt == value("at_attempt")).order_by(t.c.seq.desc()).limit(1)
_RESUME = update(t).where(_row).values(ended_at=null())
_CHANGE = (
    update(t)
    .where(_workload, _open)
    .values(places=value("count"), cpus_milli=value("cpus"), memory_bytes=value("memory"))
)
_END = update(t).where(_row).values(ended_at=value("time"), places=value("count"), peak_memory_bytes=value("peak"))
_SAW = update(t).where(_workload, _open)
_SAW = _SAW.values(gpu_seen_ms=t.c.gpu_seen_ms + value("seen"), gpu_busy_ms=t.c.gpu_busy_ms + value("busy"))
_WITH_GPUS = select(t.c.workload_id).where(_open, t.c.gpus > 0).order_by(t.c.seq)
_UNITS = select(u.c.doc).where(u.c.workload_id == value("ref"), u.c.attempt == value("at_attempt"))

UNCOUNTED = 0.0
"""Places of an array that a cluster starts as it likes: its units tell how many it had."""


class UsageTotals(NamedTuple):
    """The usage of one user in one group. Times are milliseconds, of GPUs and of thousandths of CPUs."""

    group: str
    user: str
    workloads: int
    gpu_ms: float
    cpu_ms: float
    seen_ms: float
    busy_ms: float
    peak_memory_bytes: int | None


@lru_cache
def _taken(groups: int | None) -> Select[Any]:
    """Of a stretch that is only partly within the time asked for, as much as that part is of it."""
    end = func.coalesce(t.c.ended_at, value("until"))
    whole = end - t.c.began_at
    within = end - case((t.c.began_at < value("since"), value("since")), else_=t.c.began_at)
    share = 1.0 * within / func.nullif(whole, 0)
    sums = (
        func.sum(t.c.places * t.c.gpus * within),
        func.sum(t.c.places * t.c.cpus_milli * within),
        func.coalesce(func.sum(t.c.gpu_seen_ms * share), 0.0),
        func.coalesce(func.sum(t.c.gpu_busy_ms * share), 0.0),
        func.max(t.c.peak_memory_bytes),
    )
    statement = select(t.c.group_name, t.c.made_by, func.count(distinct(t.c.workload_id)), *sums)
    return _within(statement, groups).group_by(t.c.group_name, t.c.made_by).order_by(t.c.group_name, t.c.made_by)


@lru_cache
def _uncounted(groups: int | None) -> Select[Any]:
    columns = t.c.group_name, t.c.made_by, t.c.workload_id, t.c.attempt, t.c.gpus, t.c.cpus_milli, t.c.began_at
    return _within(select(*columns), groups).where(_open, t.c.places == UNCOUNTED)


def _within(statement: Select[Any], groups: int | None) -> Select[Any]:
    statement = statement.where(or_(_open, t.c.ended_at > value("since")), t.c.began_at <= value("until"))
    if groups is None:
        return statement
    return statement.where(or_(*(t.c.group_name == value(name) for name in group_names(groups))))


class UsageTable(Table):
    # what moves write

    def follow(self, before: Workload | None, after: Workload) -> None:
        """Record that the workload got, changed or lost its places by this move. A shell on a volume is no workload to
        anyone."""
        if after.session:
            return
        had, has = before is not None and before.placed, after.placed
        if has and not had:
            self._begin(before, after)
        elif before and had and not has:
            self._end(before, after)
        elif before and has and (before.gpus, before.counted) != (after.gpus, after.counted):
            places, cpus, memory = _reserved(after)
            self._tx.write(_CHANGE, {"ref": after.id, "count": places, "cpus": cpus, "memory": memory})
        elif before is None and after.ended and after.started_at:
            self._begin(None, after)
            self._end(after, after)

    def _begin(self, before: Workload | None, after: Workload) -> None:
        seen_late = before is None or after.state is State.RUNNING
        doubted = before is not None and before.state is State.UNKNOWN
        last = self._last(after) if seen_late or doubted else None
        if doubted and last:
            self._tx.write(_RESUME, {"number": last[0]})  # it had them all the time
        elif after.state is not State.REQUESTED_CANCEL:  # before it had any
            moment = min(after.started_at or after.updated_at, after.updated_at) if seen_late else after.updated_at
            self._tx.write(_BEGIN, _begun(after, max(moment, from_ms(last[4])) if last and last[4] else moment))

    def _end(self, before: Workload, after: Workload) -> None:
        last = self._last(before)
        if last is None or last[4] is not None:
            return
        number, began, places, peak, _ = last
        rows = self._tx.rows(_UNITS, {"ref": before.id, "at_attempt": before.attempt})
        units = [Unit.model_validate_json(row[0]) for row in rows]
        over = max(_end_of(units, after), from_ms(began))
        if before.spec.array and not before.counted and not before.gpus:
            places = mean_places(units, from_ms(began), over)
        peaks = [unit.peak_memory_bytes for unit in units if unit.peak_memory_bytes is not None]
        most = max([peak, *peaks] if peak is not None else peaks, default=None)
        self._tx.write(_END, {"number": number, "time": to_ms(over), "count": places, "peak": most})

    def _last(self, workload: Workload) -> tuple[Any, ...] | None:
        return self._tx.first(_LAST, {"ref": workload.id, "at_attempt": workload.attempt})

    # what is seen of its GPUs

    def with_gpus(self) -> list[str]:
        return [row[0] for row in self._tx.rows(_WITH_GPUS)]

    def saw(self, workload_id: str, seen_ms: int, busy_ms: int) -> None:
        """Record for how long its GPUs together were seen, and for how long they worked."""
        self._tx.write(_SAW, {"ref": workload_id, "seen": seen_ms, "busy": busy_ms})

    # what was taken

    def taken(self, since: datetime, until: datetime, groups: Sequence[str] | None) -> list[UsageTotals]:
        """Return the usage in these groups or (None) all, each user in each group once."""
        if groups is not None and not groups:
            return []
        values = {"since": to_ms(since), "until": to_ms(until)} | group_values(groups or ())
        number = None if groups is None else len(groups)
        found = {(row[0], row[1]): _read(row) for row in self._tx.rows(_taken(number), values)}
        for group, user, ref, attempt, gpus, cpus_milli, began in self._tx.rows(_uncounted(number), values):
            rows = self._tx.rows(_UNITS, {"ref": ref, "at_attempt": attempt})
            start = max(from_ms(began), since)
            held = _held_ms([Unit.model_validate_json(row[0]) for row in rows], start, until)
            taken = found[group, user]
            found[group, user] = taken._replace(
                gpu_ms=taken.gpu_ms + held * gpus, cpu_ms=taken.cpu_ms + held * cpus_milli
            )
        return list(found.values())


def _read(row: tuple[Any, ...]) -> UsageTotals:
    group, user, workloads, gpus, cpus, seen, busy, peak = row
    return UsageTotals(group, user, workloads, float(gpus), float(cpus), float(seen), float(busy), peak)


def _begun(workload: Workload, moment: datetime) -> dict[str, Any]:
    places, cpus, memory = _reserved(workload)
    return {
        "workload_id": workload.id,
        "attempt": workload.attempt,
        "group_name": workload.group,
        "made_by": workload.user,
        "places": places,
        "gpus": workload.spec.resources.gpus,
        "cpus_milli": cpus,
        "memory_bytes": memory,
        "began_at": to_ms(moment),
        "gpu_seen_ms": 0,
        "gpu_busy_ms": 0,
    }


def _reserved(workload: Workload) -> tuple[float, int, int]:
    """Return how many places it has, and the CPUs and the memory of each: as they are counted, else as they were asked
    for."""
    asked, least = workload.spec.resources, workload.spec.resources.requests
    cpus = asked.cpus_milli if least.cpus_milli is None else least.cpus_milli
    memory = asked.memory_bytes if least.memory_bytes is None else least.memory_bytes
    places = len(workload.counted or workload.gpus) if workload.spec.array else workload.spec.nodes
    if counted := workload.counted:
        cpus, memory = (sum(amounts) // len(counted) for amounts in zip(*counted, strict=True))
    return float(places) or UNCOUNTED, cpus or 0, memory or 0


def _end_of(units: Sequence[Unit], after: Workload) -> datetime:
    """Return when its last unit ended, which nobody may have seen then; otherwise now."""
    ends = [unit.ended_at for unit in units if unit.ended_at]
    over = after.ended_at or after.updated_at
    return min(max(ends), over) if ends and len(ends) == len(units) else over


def mean_places(units: Iterable[Unit], began: datetime, ended: datetime) -> float:
    """Return how many of the units ran, on average over this time."""
    return _held_ms(units, began, ended) / max(to_ms(ended) - to_ms(began), 1)


def _held_ms(units: Iterable[Unit], began: datetime, ended: datetime) -> int:
    spans = [(max(unit.started_at, began), min(unit.ended_at or ended, ended)) for unit in units if unit.started_at]
    return sum(max(to_ms(end) - to_ms(start), 0) for start, end in spans)
