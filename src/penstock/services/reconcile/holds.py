"""Hold a workload back until others have completed and its next attempt is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime

from penstock.domain.attempts import LONGEST_WAIT
from penstock.domain.model import now
from penstock.domain.states import WAITING, Reason, State
from penstock.domain.workloads import Wants, Workload
from penstock.store.database import Database
from penstock.store.session import Store

EARLY = 0.05
"""How many seconds a timer may come too soon."""


class StartConditions:
    def __init__(self, db: Database, touch: Callable[[str], None]) -> None:
        self._db = db
        self._touch = touch
        self._awaited: dict[str, set[str]] = {}
        """Id of a workload → those that wait for it."""
        self._due: dict[str, tuple[datetime, float]] = {}
        """Id → its `not_before`, and the same by the loop's time: a clock that jumps changes nothing."""

    def concern(self, workload: Workload) -> bool:
        """Could something hold it up? Most are spared the look."""
        return workload.launched < workload.attempt and bool(workload.after_ids or workload.not_before)

    def ended(self, workload_id: str) -> None:
        """Look again at those that waited for this workload."""
        self._due.pop(workload_id, None)
        for other in self._awaited.pop(workload_id, ()):
            self._touch(other)

    async def look(self, workload: Workload) -> Workload | None:
        """Return the workload as it waits or has ended because of what it waited for; None if nothing holds it up."""
        if not self.concern(workload):
            return None
        if workload.after_ids:
            after = await self._db.read(lambda tx: tx.workloads.unmet(workload.id))
            if after:
                for other in after:
                    self._awaited.setdefault(other, set()).add(workload.id)
                waiting = await self._db.write(lambda tx: _wait(tx, workload.id))
                if waiting:
                    return waiting
        return workload if self._is_early(workload) else None

    def _is_early(self, workload: Workload) -> bool:
        if workload.not_before is None:
            return False
        loop = asyncio.get_running_loop()
        known, due = self._due.get(workload.id, (None, 0.0))
        if known != workload.not_before:
            left = min(max((workload.not_before - now()).total_seconds(), 0), LONGEST_WAIT)
            due = loop.time() + left
            self._due[workload.id] = (workload.not_before, due)
            loop.call_at(due, self._touch, workload.id)
        return loop.time() < due - EARLY


def _wait(tx: Store, workload_id: str) -> Workload | None:
    """Write what it waits for now, or that it will never come. None if nothing is left to wait for."""
    workload = tx.workloads.get(workload_id)
    if workload is None or workload.state not in WAITING or workload.wants is not Wants.RUN:
        return workload
    unmet = tx.workloads.unmet(workload_id)
    lost = [said for id_, other in unmet.items() if (said := _lost(id_, other))]
    if lost:
        return tx.workloads.move(workload, State.CRASHED, Reason.DEPENDENCY_FAILED, "; ".join(lost))
    if not unmet:
        return None
    return tx.workloads.move(workload, State.QUEUED, Reason.WAITS_FOR_OTHERS, waits_for(unmet.values()))


def waits_for(others: Iterable[Workload | None]) -> str:
    return f"waits for {', '.join(f'{other.name} ({other.id})' for other in others if other)}"


def _lost(other_id: str, other: Workload | None) -> str | None:
    """Return why the other will never complete; None if it still may."""
    if other is None or other.state is State.DELETED:
        return f"{other_id}, which it waits for, was deleted before it completed"
    if not other.ended:
        return None
    why = f": {other.message}" if other.message else ""
    word = {State.STOPPED: "was stopped", State.UNKNOWN: "has an unknown outcome"}.get(other.state, "failed")
    return f"{other.name} ({other.id}) {word}{why}"
