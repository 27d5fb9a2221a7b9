"""What the engine knows of a workload, what it uses, and what nodes do."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain.policy import Verb
from penstock.domain.secrets import mask_secrets
from penstock.domain.users import Caller
from penstock.engines.base import Engine, Run
from penstock.errors import Conflict, Invalid
from penstock.services import lookup
from penstock.services.nodes import Nodes
from penstock.services.workloads.sessions import Sessions, said_of
from penstock.store.database import Database
from penstock.wire.measures import Inspection, MeasureView, NodeMeasure


class Looking:
    def __init__(self, db: Database, engine: Engine, sessions: Sessions, nodes: Nodes) -> None:
        self._db = db
        self._engine = engine
        self._sessions = sessions
        self._nodes = nodes

    async def inspect(self, caller: Caller, ref: str, attempt: int | None = None) -> Inspection:
        """The newest attempt, unless another is named."""
        workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref, Verb.inspect))
        run = Run.of(workload, attempt)
        found = mask_secrets(await self._engine.inspect(run), workload.spec.secret_values)
        return Inspection(
            id=workload.id, name=workload.name, attempt=run.attempt, engine=self._engine.name, found=found
        )

    async def top(self, caller: Caller, ref: str, part: int | None) -> MeasureView:
        workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref, Verb.inspect))
        if problem := lookup.part_problem(workload, part):
            raise Invalid(f"{workload.name} ({workload.id}) cannot be looked at there.", problems=[problem])
        chosen = await self._sessions.running_part(workload, part)
        try:
            found = await self._engine.top(Run.of(workload), chosen)
        except Conflict as error:
            raise said_of(workload, chosen, error) from error
        shown = mask_secrets(
            found.model_dump(), workload.spec.secret_values
        )  # a program may have been started with one
        return MeasureView(**shown, id=workload.id, name=workload.name, part=chosen)

    async def nodes(self, caller: Caller, names: Sequence[str], wait: float) -> list[NodeMeasure]:
        """Who computes on a GPU is shown as in the list of nodes."""
        return await self._nodes.measured(caller, await self._engine.activity(names, wait))
