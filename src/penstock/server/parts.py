"""The parts a running server is made of, wired once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.domain.model import now
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine
from penstock.server.listeners import TcpPort
from penstock.services.adoption import Adoption
from penstock.services.audit import Audit
from penstock.services.idle import Idle
from penstock.services.infrastructure import Places
from penstock.services.nodes import Nodes
from penstock.services.notifications import Notifying
from penstock.services.people.people import People
from penstock.services.people.tokens import Tokens
from penstock.services.reconcile.reconciler import Reconciler
from penstock.services.scheduler.explain import Explaining
from penstock.services.usage import Usage
from penstock.services.volumes.volumes import Volumes
from penstock.services.wakeup import Bell
from penstock.services.workloads.events import Happenings
from penstock.services.workloads.inspect import Looking
from penstock.services.workloads.logs import Logs
from penstock.services.workloads.retry import Retrying
from penstock.services.workloads.sessions import Sessions
from penstock.services.workloads.submit import Submit
from penstock.services.workloads.uploads import Uploads
from penstock.services.workloads.workloads import Workloads
from penstock.settings import Settings
from penstock.store.database import Database


@dataclass(frozen=True)
class Parts:
    settings: Settings
    db: Database
    engine: Engine
    adoption: Adoption
    reconciler: Reconciler
    volumes: Volumes
    submit: Submit
    retrying: Retrying
    workloads: Workloads
    happenings: Happenings
    nodes: Nodes
    logs: Logs
    sessions: Sessions
    looking: Looking
    explaining: Explaining
    uploads: Uploads
    tokens: Tokens
    people: People
    places: Places
    notifying: Notifying
    audit: Audit
    usage: Usage
    idle: Idle
    bell: Bell
    port: TcpPort
    started_at: datetime

    @classmethod
    def wire(cls, settings: Settings, db: Database, engine: Engine, port: TcpPort) -> Parts:
        uploads, bell, people = Uploads(settings), Bell(), People(db)
        adoption = Adoption(db, engine, lambda workload: _adopted(reconciler, sessions, workload))
        reconciler = Reconciler(db, engine, settings, uploads, bell, people, adoption.nodes)
        places = Places(db, engine, reconciler.touch)
        workloads = Workloads(db, engine, reconciler, bell)
        volumes = Volumes(db, engine, settings, places)
        sessions = Sessions(db, engine, settings, workloads, reconciler, bell)
        nodes = Nodes(db, engine, reconciler)
        return cls(
            settings=settings,
            db=db,
            engine=engine,
            adoption=adoption,
            reconciler=reconciler,
            volumes=volumes,
            submit=Submit(db, engine, settings, reconciler, uploads, volumes, people),
            retrying=Retrying(db, engine, settings, reconciler, uploads, bell, people),
            workloads=workloads,
            happenings=Happenings(db, engine),
            nodes=nodes,
            logs=Logs(db, engine, bell, people),
            sessions=sessions,
            looking=Looking(db, engine, sessions, nodes),
            explaining=Explaining(db, reconciler),
            uploads=uploads,
            tokens=Tokens(db, people),
            people=people,
            places=places,
            notifying=Notifying(db, settings),
            audit=Audit(db),
            usage=Usage(db),
            idle=Idle(db, engine, settings, people, reconciler, bell),
            bell=bell,
            port=port,
            started_at=now(),
        )

    async def open(self) -> None:
        await self.people.open()
        await self.engine.open()
        await self.places.open()
        await self.adoption.open()
        await self.volumes.recover()
        await self.reconciler.open()
        await self.sessions.recover()
        await self.notifying.open()
        await self.idle.open()

    def stop_waiting(self) -> None:
        """Long polls are answered with what is, so that their clients can ask the next server."""
        self.sessions.stop()
        self.bell.stop()
        self.db.stop_waiting()

    async def close(self) -> None:
        await self.idle.close()
        await self.notifying.close()
        await self.sessions.close()
        await self.adoption.close()
        await self.reconciler.close()
        await self.volumes.close()
        await self.engine.close()
        await self.audit.close()
        await self.db.close()


def _adopted(reconciler: Reconciler, sessions: Sessions, workload: Workload) -> None:
    """Found after the start: of a shell nobody is at the other end any more."""
    reconciler.submitted(workload)
    if workload.session:
        sessions.end_later(workload)
