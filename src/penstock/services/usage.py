"""Report who used how much of the machines, to those who may see the workloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from penstock.domain.model import now
from penstock.domain.policy import Kind, Verb
from penstock.domain.users import Caller
from penstock.store.database import Database
from penstock.store.usage import UsageTotals
from penstock.wire.measures import UsageReport, UsageRow

HOUR = 3_600_000
"""In milliseconds."""
CPU_HOUR = 1000 * HOUR
DIGITS = 4
"""Digits of an hour that are shown, so that a second is not nothing."""


class By(StrEnum):
    user = "user"
    group = "group"


class Usage:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def report(self, caller: Caller, since: datetime, by: By | None = None) -> UsageReport:
        """Report on the caller's groups, or on all for who may see all. `by` None tells users in each group apart."""
        groups = _groups(caller)
        until = now()
        taken = await self._db.read(lambda tx: tx.usage.taken(since, until, groups))
        rows = [_row(each, by) for each in _merged(taken, by)]
        rows.sort(key=lambda row: (-row.gpu_hours, -row.cpu_hours, row.name))
        return UsageReport(since=since, until=until, items=tuple(rows))


def _groups(caller: Caller) -> Sequence[str] | None:
    if caller.chosen is None and caller.everywhere(Verb.get, Kind.Workload):
        return None
    return caller.where(Verb.get, Kind.Workload)


def _merged(taken: Iterable[UsageTotals], by: By | None) -> Iterable[UsageTotals]:
    """Add up what belongs to the same user or group: a workload has one of each."""
    found: dict[tuple[str, str], UsageTotals] = {}
    for each in taken:
        key = ("" if by is By.user else each.group, "" if by is By.group else each.user)
        found[key] = _sum(found[key], each) if key in found else each._replace(group=key[0], user=key[1])
    return found.values()


def _sum(one: UsageTotals, other: UsageTotals) -> UsageTotals:
    peaks = [each.peak_memory_bytes for each in (one, other) if each.peak_memory_bytes is not None]
    return one._replace(
        workloads=one.workloads + other.workloads,
        gpu_ms=one.gpu_ms + other.gpu_ms,
        cpu_ms=one.cpu_ms + other.cpu_ms,
        seen_ms=one.seen_ms + other.seen_ms,
        busy_ms=one.busy_ms + other.busy_ms,
        peak_memory_bytes=max(peaks, default=None),
    )


def _row(taken: UsageTotals, by: By | None) -> UsageRow:
    return UsageRow(
        name="/".join(each for each in (taken.group, taken.user) if each),
        group=None if by is By.user else taken.group,
        user=None if by is By.group else taken.user,
        workloads=taken.workloads,
        gpu_hours=round(taken.gpu_ms / HOUR, DIGITS),
        gpu_hours_measured=round(taken.seen_ms / HOUR, DIGITS),
        gpu_hours_used=round(taken.busy_ms / HOUR, DIGITS) if taken.seen_ms else None,
        cpu_hours=round(taken.cpu_ms / CPU_HOUR, DIGITS),
        peak_memory_bytes=taken.peak_memory_bytes,
    )
