"""Say why a workload does not run, what the engine knows of it, what it uses, and what nodes do."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.policy import Verb
from penstock.domain.scheduling.explain import NodeAnswer
from penstock.domain.secrets import mask_secrets
from penstock.domain.states import WAITING
from penstock.domain.users import Caller
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine, Run
from penstock.errors import Conflict, Invalid
from penstock.services import lookup
from penstock.services.nodes import Nodes
from penstock.services.scheduler.queue import JobQueue
from penstock.services.workloads.sessions import Sessions, named_conflict
from penstock.store.database import Database
from penstock.wire.measures import Inspection, MeasureView, NodeMeasure
from penstock.wire.workloads import Explained, ExplainedNode


class Inspector:
    def __init__(self, db: Database, engine: Engine, sessions: Sessions, nodes: Nodes, queue: JobQueue) -> None:
        self._db = db
        self._engine = engine
        self._sessions = sessions
        self._nodes = nodes
        self._queue = queue

    async def explain(self, caller: Caller, ref: str) -> Explained:
        workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref))
        found = self._queue.explain(workload.id) if workload.state in WAITING else None
        return Explained(
            id=workload.id,
            name=workload.name,
            state=workload.state,
            sentence=found.sentence if found else _said(workload, ours=self._queue.active),
            ahead=found.ahead if found else None,
            since=workload.ended_at or workload.started_at or workload.queued_at or workload.created_at,
            nodes=tuple(map(_node, found.answers)) if found else (),
        )

    async def inspect(self, caller: Caller, ref: str, attempt: int | None = None) -> Inspection:
        """Return what the engine knows of an attempt, the newest unless another is named."""
        workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref, Verb.inspect))
        run = Run.of(workload, attempt)
        found = mask_secrets(await self._engine.inspect(run), workload.spec.secret_values)
        return Inspection(
            id=workload.id, name=workload.name, attempt=run.attempt, engine=self._engine.name, found=found
        )

    async def top(self, caller: Caller, ref: str, part: int | None) -> MeasureView:
        workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref, Verb.inspect))
        if problem := lookup.part_problem(workload, part):
            raise Invalid(f"{workload.name} ({workload.id}) has no such part.", problems=[problem])
        chosen = await self._sessions.running_part(workload, part)
        try:
            found = await self._engine.top(Run.of(workload), chosen)
        except Conflict as error:
            raise named_conflict(workload, chosen, error) from error
        # A program may have been started with a secret in its command line.
        shown = mask_secrets(found.model_dump(), workload.spec.secret_values)
        return MeasureView(**shown, id=workload.id, name=workload.name, part=chosen)

    async def nodes(self, caller: Caller, names: Sequence[str], wait: float) -> list[NodeMeasure]:
        """Return what nodes do. Who computes on a GPU is shown as in the list of nodes."""
        return await self._nodes.measured(caller, await self._engine.activity(names, wait))


def _node(answer: NodeAnswer) -> ExplainedNode:
    return ExplainedNode(name=answer.node, fits=not answer.obstacles, obstacles=answer.obstacles)


def _said(workload: Workload, *, ours: bool) -> str:
    """Say what is the case for a workload that does not wait in our queue."""
    why = f": {workload.message}" if workload.message else ""
    if workload.ended:
        return f"it has ended and is {workload.status}{why}"
    if workload.state in WAITING:
        return workload.message or ("it starts in a moment" if ours else "the cluster decides when it starts")
    on = f" on {', '.join(dict.fromkeys(workload.hosts))}" if workload.hosts else ""
    return f"it does not wait: it is {workload.state}{on}{why}"
