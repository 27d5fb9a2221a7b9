"""The parts a running server is made of, wired once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.domain.model import now
from penstock.engines.base import Engine
from penstock.services.bell import Bell
from penstock.services.logs import Logs
from penstock.services.reconcile import Reconciler
from penstock.services.tokens import Tokens
from penstock.services.uploads import Uploads
from penstock.services.volumes import Volumes
from penstock.services.workloads import Workloads
from penstock.settings import Settings
from penstock.store.database import Database


@dataclass(frozen=True)
class Parts:
    settings: Settings
    db: Database
    engine: Engine
    reconciler: Reconciler
    volumes: Volumes
    workloads: Workloads
    logs: Logs
    uploads: Uploads
    tokens: Tokens
    bell: Bell
    address: str | None
    """Where TCP listens."""
    started_at: datetime

    @classmethod
    def wire(cls, settings: Settings, db: Database, engine: Engine, address: str | None) -> Parts:
        uploads, bell = Uploads(settings), Bell()
        reconciler = Reconciler(db, engine, settings, uploads, bell)
        return cls(
            settings=settings,
            db=db,
            engine=engine,
            reconciler=reconciler,
            volumes=Volumes(db, engine, settings),
            workloads=Workloads(db, engine, settings, reconciler, uploads, bell),
            logs=Logs(db, engine, bell),
            uploads=uploads,
            tokens=Tokens(db),
            bell=bell,
            address=address,
            started_at=now(),
        )

    async def open(self) -> None:
        await self.engine.open()
        await self.volumes.recover()
        await self.reconciler.open()

    def stop_waiting(self) -> None:
        """Long polls are answered with what is, so that their clients can ask the next server."""
        self.bell.stop()
        self.db.stop_waiting()

    async def close(self) -> None:
        await self.reconciler.close()
        await self.engine.close()
        await self.db.close()
