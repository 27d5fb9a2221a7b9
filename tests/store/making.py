"""Volumes and workloads to keep."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from penstock.domain.names import new_id
from penstock.domain.states import Reason, State
from penstock.domain.users import Account
from penstock.domain.volumes import AccessMode, Volume
from penstock.domain.workloads import Resources, Spec, Workload
from penstock.store.session import Store

MOMENT = datetime(2026, 11, 15, 21, 31, 15, 123000, UTC)
ACCOUNT = Account(uid=1000, gid=1001, user="ann")


def a_volume(name: str = "data", group: str = "ann", **fields: Any) -> Volume:
    given = {
        "id": new_id(),
        "size": "10Gi",
        "size_bytes": 10 * 2**30,
        "storage_class": "standard",
        "access_modes": (AccessMode.ReadWriteOnce,),
        "created_at": MOMENT,
    }
    return Volume(name=name, group=group, user=group, **(given | fields))


def a_workload(name: str = "train", group: str = "ann", **fields: Any) -> Workload:
    spec = Spec(name=name, run="echo hello", resources=Resources(cpus_milli=4000), envs={"WHO": "wörld \0 🌊"})
    given = {"id": new_id(), "account": ACCOUNT, "spec": spec, "created_at": MOMENT, "updated_at": MOMENT}
    return Workload(name=name, group=group, user=group, **(given | fields))


def run_until(tx: Store, workload: Workload, *states: State) -> Workload:
    """Through these states, for a reason that is no matter here."""
    for state in states:
        workload = tx.workloads.move(workload, state, Reason.PLACED)
    return workload


def end(tx: Store, workload: Workload, state: State = State.EXITED) -> Workload:
    return run_until(tx, workload, State.ASSIGNED, State.LAUNCHING, State.RUNNING, state)
