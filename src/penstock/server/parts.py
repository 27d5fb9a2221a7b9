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
from penstock.services.infrastructure import Infrastructure
from penstock.services.nodes import Nodes
from penstock.services.notifications import Notifications
from penstock.services.people.people import People
from penstock.services.people.tokens import Tokens
from penstock.services.reconcile.reconciler import Reconciler
from penstock.services.scheduler.queue import JobQueue
from penstock.services.usage import Usage
from penstock.services.volumes.volumes import Volumes
from penstock.services.wakeup import Wakeup
from penstock.services.workloads.events import EventHistory
from penstock.services.workloads.inspect import Inspector
from penstock.services.workloads.logs import WorkloadLogs
from penstock.services.workloads.retry import Retries
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
    queue: JobQueue
    reconciler: Reconciler
    volumes: Volumes
    submit: Submit
    retry: Retries
    workloads: Workloads
    events: EventHistory
    nodes: Nodes
    logs: WorkloadLogs
    sessions: Sessions
    inspect: Inspector
    uploads: Uploads
    tokens: Tokens
    people: People
    infrastructure: Infrastructure
    notifications: Notifications
    audit: Audit
    usage: Usage
    idle: Idle
    wakeup: Wakeup
    port: TcpPort
    started_at: datetime

    @classmethod
    def wire(cls, settings: Settings, db: Database, engine: Engine, port: TcpPort) -> Parts:
        uploads, wakeup, people = Uploads(settings), Wakeup(), People(db)
        adoption = Adoption(db, engine, lambda workload: _adopted(reconciler, sessions, workload))
        queue = JobQueue(db, engine, settings, wakeup, people, adoption.nodes, lambda id_: reconciler.touch(id_))
        reconciler = Reconciler(db, engine, settings, uploads, wakeup, queue)
        infrastructure = Infrastructure(db, engine, reconciler.touch)
        workloads = Workloads(db, engine, reconciler, queue, wakeup)
        volumes = Volumes(db, engine, settings, infrastructure)
        sessions = Sessions(db, engine, settings, workloads, reconciler, wakeup)
        nodes = Nodes(db, engine, queue)
        return cls(
            settings=settings,
            db=db,
            engine=engine,
            adoption=adoption,
            queue=queue,
            reconciler=reconciler,
            volumes=volumes,
            submit=Submit(db, engine, settings, reconciler, queue, uploads, volumes, people),
            retry=Retries(db, engine, settings, reconciler, queue, uploads, wakeup, people),
            workloads=workloads,
            events=EventHistory(db, engine),
            nodes=nodes,
            logs=WorkloadLogs(db, engine, wakeup, people),
            sessions=sessions,
            inspect=Inspector(db, engine, sessions, nodes, queue),
            uploads=uploads,
            tokens=Tokens(db, people),
            people=people,
            infrastructure=infrastructure,
            notifications=Notifications(db, settings),
            audit=Audit(db),
            usage=Usage(db),
            idle=Idle(db, engine, settings, people, reconciler, wakeup),
            wakeup=wakeup,
            port=port,
            started_at=now(),
        )

    async def open(self) -> None:
        await self.people.open()
        await self.engine.open()
        await self.infrastructure.open()
        await self.adoption.open()
        await self.volumes.recover()
        await self.queue.open()
        await self.reconciler.open()
        self.queue.start()
        await self.sessions.recover()
        await self.notifications.open()
        await self.idle.open()

    def stop_waiting(self) -> None:
        """Long polls are answered with what is, so that their clients can ask the next server."""
        self.sessions.stop()
        self.wakeup.stop()
        self.db.stop_waiting()

    async def close(self) -> None:
        await self.idle.close()
        await self.notifications.close()
        await self.sessions.close()
        await self.adoption.close()
        await self.reconciler.close()
        await self.queue.close()
        await self.volumes.close()
        await self.engine.close()
        await self.audit.close()
        await self.db.close()


def _adopted(reconciler: Reconciler, sessions: Sessions, workload: Workload) -> None:
    """Found after the start: of a shell nobody is at the other end any more."""
    reconciler.submitted(workload)
    if workload.session:
        sessions.end_later(workload)
