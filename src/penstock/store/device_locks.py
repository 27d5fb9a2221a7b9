"""Which workload has which GPU and CPU: a row each, so that no two ever have one.

Rows are taken when a workload is placed and given back with the change that ends it or puts it back. Both are lines of
the audit, in the same write.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite

from penstock.domain.audit import AuditEntry
from penstock.domain.model import now
from penstock.domain.policy import Kind
from penstock.domain.workloads import Workload
from penstock.store.audit import AuditTable
from penstock.store.tables import locks as k
from penstock.store.transaction import Table, to_ms, value

TAKE, GIVE = "take", "give"
CPU = "cpu "
"""What stands before the number of a CPU; a GPU is known by its uuid."""
Device = tuple[str, str]
"""Node and device. Where there is only one node it has no name."""

_ADD = {
    "sqlite": sqlite.insert(k).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(k).on_conflict_do_nothing(),
}
_OF = select(k.c.node, k.c.device).where(k.c.workload_id == value("ref"))
_WHOSE = select(k.c.workload_id).where(k.c.node == value("at_node"), k.c.device == value("at_device"))
_REMOVE = delete(k).where(k.c.workload_id == value("ref"))


def is_locking(workload: Workload) -> bool:
    """Has the workload something that nobody else may have meanwhile?"""
    return any(workload.gpus) or any(workload.cpusets)


def devices_of(workload: Workload) -> list[Device]:
    nodes = workload.hosts or ("",) * max(len(workload.gpus), len(workload.cpusets))
    gpus = [(nodes[rank], uuid) for rank, own in enumerate(workload.gpus) for uuid in own]
    return gpus + [(nodes[rank], f"{CPU}{number}") for rank, own in enumerate(workload.cpusets) for number in own]


class LockTable(Table):
    def take(self, workload: Workload) -> list[str]:
        """Everything it was given, or nothing: then the ids of those that have some of it."""
        wanted, moment = devices_of(workload), now()
        for node, device in wanted:
            row = {"node": node, "device": device, "workload_id": workload.id, "since": to_ms(moment)}
            if not self._tx.write(_ADD[self._tx.dialect.name], row):
                self._tx.write(_REMOVE, {"ref": workload.id})
                return self._holders(wanted)
        self._note(TAKE, workload, wanted)
        return []

    def give(self, workload: Workload) -> None:
        given: list[Device] = [(node, device) for node, device in self._tx.rows(_OF, {"ref": workload.id})]
        if given:
            self._tx.write(_REMOVE, {"ref": workload.id})
            self._note(GIVE, workload, given)

    def _holders(self, wanted: Sequence[Device]) -> list[str]:
        rows = [self._tx.first(_WHOSE, {"at_node": node, "at_device": device}) for node, device in wanted]
        return sorted({row[0] for row in rows if row})

    def _note(self, verb: str, workload: Workload, devices: Sequence[Device]) -> None:
        for node, device in devices:
            entry = AuditEntry(
                at=now(),
                user=workload.user,
                verb=verb,
                kind=Kind.CPU if device.startswith(CPU) else Kind.GPU,
                group=workload.group,
                name=f"{node}/{device}" if node else device,
                id=workload.id,
            )
            AuditTable(self._tx).add(entry)
