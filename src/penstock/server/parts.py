"""The parts a running server is made of, wired once."""

from __future__ import annotations

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


class Parts:
    def __init__(self, settings: Settings, db: Database, engine: Engine, port: TcpPort) -> None:
        self.settings = settings
        self.db = db
        self.engine = engine
        self.port = port
        self.started_at = now()
        self.uploads = Uploads(settings)
        self.wakeup = Wakeup()
        self.people = People(db)
        self.adoption = Adoption(db, engine, self._adopted)
        self.queue = JobQueue(
            db, engine, settings, self.wakeup, self.people, self.adoption.nodes, lambda id_: self.reconciler.touch(id_)
        )
        self.reconciler = Reconciler(db, engine, settings, self.uploads, self.wakeup, self.queue)
        self.infrastructure = Infrastructure(db, engine, self.reconciler.touch)
        self.workloads = Workloads(db, engine, self.reconciler, self.queue, self.wakeup)
        self.volumes = Volumes(db, engine, settings, self.infrastructure)
        self.sessions = Sessions(db, engine, settings, self.workloads, self.reconciler, self.wakeup)
        self.nodes = Nodes(db, engine, self.queue)
        self.submit = Submit(db, engine, settings, self.reconciler, self.queue, self.uploads, self.volumes, self.people)
        self.retry = Retries(db, engine, settings, self.reconciler, self.queue, self.uploads, self.wakeup, self.people)
        self.events = EventHistory(db, engine)
        self.logs = WorkloadLogs(db, engine, self.wakeup, self.people)
        self.inspect = Inspector(db, engine, self.sessions, self.nodes, self.queue)
        self.tokens = Tokens(db, self.people)
        self.notifications = Notifications(db, settings)
        self.audit = Audit(db)
        self.usage = Usage(db)
        self.idle = Idle(db, engine, settings, self.people, self.reconciler, self.wakeup)

    def _adopted(self, workload: Workload) -> None:
        """Take up what was found after the start; nobody is at the other end of a shell any more."""
        self.reconciler.submitted(workload)
        if workload.session:
            self.sessions.end_later(workload)

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
        """Answer long polls with what is, so that their clients can ask the next server."""
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
