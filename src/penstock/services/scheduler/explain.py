"""Explain why a workload does not run: its reason, and what each node says."""

from __future__ import annotations

from penstock.domain.scheduling.explain import NodeAnswer
from penstock.domain.states import WAITING
from penstock.domain.users import Caller
from penstock.domain.workloads import Workload
from penstock.services import lookup
from penstock.services.reconcile.reconciler import Reconciler
from penstock.store.database import Database
from penstock.wire.workloads import Explained, ExplainedNode, ObstacleView


class Explaining:
    def __init__(self, db: Database, reconciler: Reconciler) -> None:
        self._db = db
        self._reconciler = reconciler

    async def workload(self, caller: Caller, ref: str) -> Explained:
        workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref))
        placement = self._reconciler.placement
        found = placement.explain(workload.id) if placement and workload.state in WAITING else None
        return Explained(
            id=workload.id,
            name=workload.name,
            state=workload.state,
            sentence=found.sentence if found else _said(workload, ours=placement is not None),
            ahead=found.ahead if found else None,
            since=workload.ended_at or workload.started_at or workload.queued_at or workload.created_at,
            nodes=tuple(map(_node, found.answers)) if found else (),
        )


def _node(answer: NodeAnswer) -> ExplainedNode:
    obstacles = tuple(ObstacleView(key=each.key, message=each.message, passes=each.passes) for each in answer.obstacles)
    return ExplainedNode(name=answer.node, fits=not obstacles, obstacles=obstacles)


def _said(workload: Workload, *, ours: bool) -> str:
    """Of one that does not wait in our queue."""
    why = f": {workload.message}" if workload.message else ""
    if workload.ended:
        return f"it has ended and is {workload.status}{why}"
    if workload.state in WAITING:
        return workload.message or ("it starts in a moment" if ours else "the cluster decides when it starts")
    on = f" on {', '.join(dict.fromkeys(workload.hosts))}" if workload.hosts else ""
    return f"it does not wait: it is {workload.state}{on}{why}"
