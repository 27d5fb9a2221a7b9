"""An engine that schedules, without a cluster: the embedded one, which keeps what it is given as a cluster would.

What runs is real. Only that it takes over what has no place yet, keeps records beside its runs and can lose things
behind the server's back is made here; the Kubernetes engine's own tests prove the same on a real cluster.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.domain.states import Reason, State
from penstock.domain.users import Account, Caller, Proof
from penstock.domain.volumes import AccessMode, Phase, Volume
from penstock.domain.workloads import Spec, Workload
from penstock.engines.base import Event, Found, Launch, Presence, Report, Run
from penstock.engines.local.engine import LocalEngine
from penstock.errors import Unavailable
from penstock.server.parts import Parts
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.wire.requests import Submission
from penstock.wire.workloads import WorkloadView

ANN = Caller(user="ann", proof=Proof.token, uid=None)
ADMIN = Caller(user="root", proof=Proof.socket, uid=os.geteuid(), runs_server=True)


@dataclass
class Kept:
    """What a cluster would have: it outlives servers and their records."""

    records: dict[Run, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    going: set[Run] = field(default_factory=set)
    """Those that are removed just after they were looked for."""
    waiting: dict[Run, Launch] = field(default_factory=dict)
    volumes: dict[str, tuple[Volume, Account]] = field(default_factory=dict)
    settled: dict[Run, int] = field(default_factory=dict)
    literals: dict[str, Volume] = field(default_factory=dict)
    users: dict[str, list[str]] = field(default_factory=dict)
    full: str | None = None
    """Why nothing starts."""
    away: str | None = None
    """Why nothing answers."""
    pending: str | None = None
    """Why volumes are not bound."""


class SchedulingEngine(LocalEngine):
    name = "scheduling"
    schedules = True
    enforces_sizes = True

    def __init__(self, settings: Settings, kept: Kept) -> None:
        super().__init__(settings)
        self.kept = kept
        self.starts: list[Run] = []

    def _answer(self) -> None:
        if self.kept.away:
            raise Unavailable(self.kept.away)

    async def start(self, launch: Launch) -> None:
        self._answer()
        run = Run(launch.workload_id, launch.attempt)
        if run in self.kept.waiting:
            return  # a start may be repeated, and then changes nothing
        self.starts.append(run)
        self.kept.records[run] = launch.record
        if self.kept.full:
            self.kept.waiting[run] = launch
        else:
            await super().start(launch)

    async def make_room(self) -> None:
        self.kept.full = None
        waiting, self.kept.waiting = self.kept.waiting, {}
        for run, launch in waiting.items():
            await super().start(launch)
            self._watcher._tell(run)  # no step looks after this start, and it may have ended before it was watched

    async def observe(self, run: Run) -> Report:
        if run in self.kept.waiting:
            why = self.kept.full
            return Report(
                presence=Presence.waiting, state=State.QUEUED, reason=Reason.NO_AVAILABLE_RESOURCES, message=why
            )
        return await super().observe(run)

    async def stop(self, run: Run, grace: int) -> None:
        self.kept.waiting.pop(run, None)
        if run in self.kept.records:
            await super().stop(run, grace)

    async def remove(self, run: Run) -> None:
        self.kept.waiting.pop(run, None)
        self.kept.records.pop(run, None)
        await super().remove(run)

    async def settle(self, run: Run, keep: int) -> None:
        self._answer()
        self.kept.settled[run] = keep

    async def refusals(self, spec, owner=("", "")):
        self._answer()
        return await super().refusals(spec, owner)

    async def found(self, nodes) -> Found:
        self._answer()
        newest: dict[str, Run] = {}
        for run in self.kept.records:
            if run.attempt >= newest.get(run.workload_id, run).attempt:
                newest[run.workload_id] = run
        workloads = tuple(Workload.model_validate_json(self.kept.records[run]) for run in newest.values())
        for run in self.kept.going:
            self.kept.records.pop(run, None)
        return Found(
            workloads=workloads,
            volumes=tuple(self.kept.volumes.values()),
            unreadable=self.kept.unreadable,
        )

    async def create_volume(self, volume: Volume, account: Account) -> None:
        self._answer()
        await super().create_volume(volume, account)
        self.kept.volumes[volume.id] = (volume, account)

    async def volume_reports(self, volumes):
        self._answer()
        reports = await super().volume_reports(volumes)
        if self.kept.pending:
            pending = {"phase": Phase.Pending, "message": self.kept.pending}
            return {id_: report.model_copy(update=pending) for id_, report in reports.items()}
        return reports

    async def volume_users(self, volume: Volume) -> list[str]:
        return self.kept.users.get(volume.name, [])

    def lost(self, why: str) -> None:
        raise AssertionError(why)

    def namespace(self, user: str, group: str) -> str:
        return group

    async def existing_claim(self, name: str, user: str, group: str) -> Volume | None:
        return self.kept.literals.get(name)

    async def volume_events(self, volume: Volume) -> list[Event]:
        return []

    async def resize_volume(self, volume: Volume) -> None:
        pass

    async def outlook(self, spec: Spec) -> str | None:
        return None


@asynccontextmanager
async def running(place: Path, kept: Kept, database: str = "penstock.db") -> AsyncIterator[Parts]:
    """A server's parts without its HTTP; another `database` is one that has lost its records."""
    settings = Settings(data_dir=place / "data")
    settings.data_dir.mkdir(exist_ok=True, mode=0o711)
    db = await Database.open(f"sqlite:///{place}/{database}")
    parts = Parts(settings, db, SchedulingEngine(settings, kept), None)
    try:
        await parts.open()
        yield parts
    finally:
        await parts.close()


async def submit(parts: Parts, text: str, caller: Caller = ANN, **more) -> WorkloadView:
    made = await parts.submit.text(caller, Submission.model_validate({"text": text} | more))
    assert isinstance(made, WorkloadView)
    return made


async def ended(parts: Parts, workload_id: str, caller: Caller = ANN) -> WorkloadView:
    view = await parts.workloads.wait(caller, workload_id, 60)
    assert view.ended_at, view
    return view


async def until(parts: Parts, workload_id: str, holds) -> Workload:
    """The record once it is so."""
    while True:
        version = parts.db.version
        workload = await parts.db.read(lambda tx: tx.workloads.get(workload_id))
        if workload and holds(workload):
            return workload
        await parts.db.changed(version, 5)


def a_literal(claim: str, group: str = "ann") -> Volume:
    """That was given to this group; to none, if that is empty."""
    from penstock.domain.model import now

    return Volume(
        id=claim,
        name=claim,
        group=group,
        user="ann",
        size="1Gi",
        size_bytes=2**30,
        storage_class="standard",
        access_modes=(AccessMode.ReadWriteMany,),
        claim=claim,
        created_at=now(),
    )
