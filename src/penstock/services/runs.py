"""One step of one run: start it, stop it, or write down what the engine saw."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from pathlib import Path

from penstock.domain.outcome import outcome
from penstock.domain.volumes import Phase, Volume
from penstock.domain.workloads import PLACED, Reason, State, Unit, Wants, Workload
from penstock.engines.base import BoundMount, DevicesBusy, Engine, Launch, Presence, Report, Run
from penstock.errors import NotFound, PenstockError
from penstock.services.uploads import Uploads
from penstock.store.database import Database
from penstock.store.session import Store

log = logging.getLogger(__name__)
PASSING = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""What will be better in a moment: the workload goes back into the queue."""
NOT_SEEN_RUNNING = PLACED - {State.RUNNING, State.REQUESTED_CANCEL}


class Runs:
    def __init__(self, db: Database, engine: Engine, uploads: Uploads, stop_grace: int) -> None:
        self._db = db
        self._engine = engine
        self._uploads = uploads
        self._grace = stop_grace

    async def advance(self, workload: Workload) -> Workload:
        """Takes a placed workload one step on; what it is afterwards."""
        run = Run(workload.id, workload.attempt)
        if workload.wants is Wants.STOP:
            await self._engine.stop(run, self._grace)
        report = await self._engine.observe(run)
        if report.presence is Presence.absent:
            if workload.wants is Wants.STOP:
                return await self._end(workload, State.STOPPED, Reason.STOPPED_BY_USER, "stopped before it started")
            if workload.state not in NOT_SEEN_RUNNING:
                return await self._end(workload, State.UNKNOWN, Reason.OUTCOME_UNKNOWN, "what it left behind is gone")
            failed = await self._start(workload)
            if failed:
                return failed
            report = await self._engine.observe(run)
        return await self._write_down(workload, report)

    async def _start(self, workload: Workload) -> Workload | None:
        """None when it began; otherwise the workload as it ended or was put back."""
        try:
            volumes = await self._volumes_of(workload)
            lost = await self._lost(volumes.values())
            if lost:
                said = f"the data of volume {', '.join(lost)} is gone"
                return await self._end(workload, State.CRASHED, Reason.VOLUME_LOST, said)
            await self._engine.start(self._launch_of(workload, volumes))
        except DevicesBusy as busy:
            said = f"GPU {busy} was taken by another server on this machine"
            return await self._move(workload, State.QUEUED, Reason.GIVEN_BACK, said, gpus=(), master_port=None)
        except PenstockError as error:
            said = f"{error.message} {error.hint or ''}".strip()
            return await self._end(workload, State.CRASHED, Reason.LAUNCH_FAILED, said)
        except OSError as error:
            if error.errno in PASSING:
                said = f"the machine is short of something: {error.strerror}"
                return await self._move(workload, State.QUEUED, Reason.GIVEN_BACK, said, gpus=(), master_port=None)
            log.warning("%s could not be started", workload.id, exc_info=True)
            return await self._end(workload, State.CRASHED, Reason.LAUNCH_FAILED, f"could not be prepared: {error}")
        return None

    async def _volumes_of(self, workload: Workload) -> dict[str, Volume]:
        ids = workload.volume_ids
        if not ids:
            return {}
        found = await self._db.read(lambda tx: {path: tx.volumes.get(id_) for path, id_ in ids.items()})
        missing = [path for path, volume in found.items() if volume is None]
        if missing:
            raise PenstockError(f"the volume at {missing[0]} is gone")
        return {path: volume for path, volume in found.items() if volume}

    async def _lost(self, volumes: Iterable[Volume]) -> list[str]:
        known = {volume.id: volume for volume in volumes}
        reports = await self._engine.volume_reports(list(known.values())) if known else {}
        return sorted(known[id_].name for id_, report in reports.items() if report.phase is Phase.Lost)

    def _launch_of(self, workload: Workload, volumes: dict[str, Volume]) -> Launch:
        mounts = tuple(
            BoundMount(path=m.path, volume=volumes[m.path], read_only=m.read_only or volumes[m.path].read_only)
            for m in workload.spec.mounts
        )
        sent = workload.files.get("workdir")
        return Launch(
            workload_id=workload.id,
            attempt=workload.attempt,
            name=workload.name,
            spec=workload.spec,
            account=workload.account,
            mounts=mounts,
            gpus=workload.gpus or ((),) * workload.spec.nodes,
            master_port=workload.master_port or 0,
            workdir_archive=self._uploads.path(workload.user, sent) if sent else None,
            venv=Path(workload.venv) if workload.venv else None,
            stop_grace=self._grace,
        )

    async def _write_down(self, workload: Workload, report: Report) -> Workload:
        if report.presence is Presence.running:
            begun = [unit.started_at for unit in report.units if unit.started_at]
            if not begun or workload.state not in NOT_SEEN_RUNNING or workload.wants is Wants.STOP:
                return workload
            return await self._db.write(lambda tx: _running(tx, workload.id, report.units))
        if report.presence is Presence.lost:
            units = tuple(_doubted(unit) for unit in report.units)
            reason = next((u.reason for u in units if u.state is State.UNKNOWN and u.reason), Reason.OUTCOME_UNKNOWN)
            return await self._db.write(
                lambda tx: _ended(tx, workload.id, units, State.UNKNOWN, reason, report.message, None)
            )
        end = outcome(report.units)
        return await self._db.write(
            lambda tx: _ended(tx, workload.id, report.units, end.state, end.reason, end.message, end.exit_code)
        )

    async def _end(self, workload: Workload, state: State, reason: Reason, message: str) -> Workload:
        return await self._db.write(lambda tx: _ended(tx, workload.id, (), state, reason, message, None))

    async def _move(self, workload: Workload, state: State, reason: Reason, message: str, **fields: object) -> Workload:
        def change(tx: Store) -> Workload:
            return tx.workloads.move(_known(tx, workload.id), state, reason, message, **fields)

        return await self._db.write(change)


def _doubted(unit: Unit) -> Unit:
    if unit.ended_at is not None:
        return unit
    reason = unit.reason if unit.reason is Reason.NODE_LOST else Reason.OUTCOME_UNKNOWN
    return unit.model_copy(update={"state": State.UNKNOWN, "reason": reason})


def _known(tx: Store, workload_id: str) -> Workload:
    workload = tx.workloads.get(workload_id)
    if workload is None:
        raise NotFound(f"Task {workload_id} not found")
    return workload


def _running(tx: Store, workload_id: str, units: tuple[Unit, ...]) -> Workload:
    current = _known(tx, workload_id)
    if current.state not in NOT_SEEN_RUNNING:
        return current
    tx.workloads.set_units(workload_id, units)
    began = min(unit.started_at for unit in units if unit.started_at)
    return tx.workloads.move(current, State.RUNNING, Reason.STARTED, started_at=began)


def _ended(
    tx: Store,
    workload_id: str,
    units: tuple[Unit, ...],
    state: State,
    reason: Reason,
    message: str | None,
    exit_code: int | None,
) -> Workload:
    """Ends it. One that was never seen running but did run gets its RUNNING line first: history has no holes."""
    current = _known(tx, workload_id)
    if current.ended:
        return current
    tx.workloads.set_units(workload_id, units)
    began = min((unit.started_at for unit in units if unit.started_at), default=None)
    if began and current.state in NOT_SEEN_RUNNING:
        current = tx.workloads.move(current, State.RUNNING, Reason.STARTED, started_at=began)
    return tx.workloads.move(current, state, reason, message, exit_code=exit_code, gpus=(), master_port=None)
