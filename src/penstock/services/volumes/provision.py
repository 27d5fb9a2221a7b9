"""Create and delete volumes as their records say, and retry while the engine does not answer."""

from __future__ import annotations

import logging

from penstock.background import Backoff, Tasks
from penstock.domain.volumes import Phase, Volume
from penstock.engines.base import Engine, VolumeReport
from penstock.errors import InUse, PenstockError, Unavailable
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
RETRY = 1.0
LONGEST_RETRY = 30.0


class Provisioner:
    def __init__(self, db: Database, engine: Engine) -> None:
        self._db = db
        self._engine = engine
        self.unmade: set[str] = set()
        """Ids of volumes that are being made, or wait to be: the engine is not asked about them."""
        self._retries = Tasks()

    async def recover(self) -> None:
        """Finish what a crash interrupted."""
        for volume in await self._db.read(lambda tx: tx.volumes.unfinished()):
            if volume.made and volume.phase is Phase.Pending:
                continue
            try:
                await (self.destroy(volume) if volume.phase is Phase.Deleting else self.make(volume))
            except (PenstockError, OSError) as error:
                log.warning("volume %s: %s", volume.id, error)

    async def close(self) -> None:
        await self._retries.close()

    async def make(self, volume: Volume) -> tuple[Volume, VolumeReport | None]:
        """Make it and return what the engine says of it. Raises where the engine will never make it; where it does not
        answer the volume is made later."""
        self.unmade.add(volume.id)
        try:
            made = await self._make(volume)
        except Unavailable as error:
            self._later(volume)
            message = f"it is made as soon as that works: {error.message}"
            return await self._update(volume, Phase.Pending, message), None
        except BaseException:
            self.unmade.discard(volume.id)
            raise
        self.unmade.discard(volume.id)
        return made

    async def destroy(self, volume: Volume) -> None:
        """Destroy it and its record. Where the engine does not answer the record says so, and it is destroyed later."""
        try:
            await self._engine.delete_volume(volume)
        except Unavailable as error:
            said = volume.model_copy(update={"message": error.message})
            await self._db.write(lambda tx: tx.volumes.update(said) if tx.volumes.get(volume.id) else None)
            self._later(volume)
            raise
        except InUse:
            await self._db.write(lambda tx: _keep(tx, volume))
            raise
        await self._db.write(lambda tx: tx.volumes.remove(volume.id))

    async def _make(self, volume: Volume) -> tuple[Volume, VolumeReport | None]:
        account = await self._db.read(lambda tx: tx.volumes.account(volume.id))
        is_made = account is not None and not volume.awaits_node
        if account and is_made:
            await self._engine.create_volume(volume, account)
        report = (await self._engine.volume_reports([volume])).get(volume.id)
        if not is_made:
            return volume, report
        phase = report.phase if report and report.phase is not Phase.Lost else Phase.Bound
        return await self._update(volume, phase, None, made=True), report

    async def _update(self, volume: Volume, phase: Phase, message: str | None, *, made: bool = False) -> Volume:
        seen = volume.model_copy(update={"phase": phase, "message": message, "made": made or volume.made})

        def update(tx: Store) -> Volume:
            known = tx.volumes.get(volume.id)
            if known and known.phase is not Phase.Deleting:
                tx.volumes.update(seen)
            return seen

        return volume if seen == volume else await self._db.write(update)

    def _later(self, volume: Volume) -> None:
        if volume.id not in self._retries:
            self._retries.start(self._keep_trying(volume.id), key=volume.id)

    async def _keep_trying(self, volume_id: str) -> None:
        backoff = Backoff(RETRY, LONGEST_RETRY)
        while True:
            await backoff.pause()
            try:
                volume = await self._db.read(lambda tx: tx.volumes.get(volume_id))
                if volume is not None and volume.phase is Phase.Deleting:
                    await self.destroy(volume)
                elif volume is not None and volume.phase is Phase.Pending:
                    await self._make(volume)
            except Unavailable:
                continue
            except Exception as error:
                log.warning("volume %s: %s", volume_id, error)
                await self._give_up(volume_id, error)
            self.unmade.discard(volume_id)
            return

    async def _give_up(self, volume_id: str, error: Exception) -> None:
        volume = await self._db.read(lambda tx: tx.volumes.get(volume_id))
        if volume and volume.phase is Phase.Pending:
            said = error.message if isinstance(error, PenstockError) else "a defect of the server; its log says more"
            await self._update(volume, Phase.Pending, f"it cannot be made: {said}")


def _keep(tx: Store, volume: Volume) -> None:
    """Keep a volume that was to be deleted: somebody began to use it before it could be destroyed."""
    if not tx.volumes.find(volume.name, volume.group):
        tx.volumes.update(volume.model_copy(update={"phase": Phase.Bound}))
