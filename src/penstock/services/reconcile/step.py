"""One step of one run: start it, stop it, or record what the engine reports."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.domain.attempts import Outcome, keep_recorded_ends
from penstock.domain.model import now
from penstock.domain.states import Reason, State
from penstock.domain.volumes import Phase, Volume
from penstock.domain.workloads import Unit, Wants, Workload
from penstock.engines.base import (
    Advances,
    BoundMount,
    DevicesBusy,
    Engine,
    HasHosts,
    HeldUp,
    KeepsRecords,
    Launch,
    Presence,
    Report,
    Run,
)
from penstock.errors import PenstockError, StorageFull, Unavailable
from penstock.services.reconcile import records
from penstock.services.workloads.references import claim_of, mounted_volumes
from penstock.services.workloads.uploads import Uploads
from penstock.store.database import Database

log = logging.getLogger(__name__)
PASSING = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""Errors that pass in a moment: the workload goes back into the queue."""
PORT_IN_CLUSTER = 29500
"""The port where ranks meet that each have a network address of their own."""
ANSWERS_AGAIN = "its node answers again"
NOT_KNOWN = "what it does is not known"
ADVANCE_AGAIN = 1.0
"""Seconds until an engine that could not do what was due for a run is asked again."""
BETWEEN_UNITS = 1.0
"""Seconds between two writes of how far the units of a workload have come."""


class RunSteps:
    def __init__(
        self,
        db: Database,
        engine: Engine,
        uploads: Uploads,
        stop_grace: int,
        look_again: Callable[[str, float], None],
    ) -> None:
        self._db = db
        self._engine = engine
        self._uploads = uploads
        self._grace = stop_grace
        self._look_again = look_again
        self._units_written: dict[str, float] = {}
        self._steps_written: dict[Run, int] = {}
        """How many of the engine's steps are in the history of a run that has not begun."""
        self._since = now()
        self._asked: set[Run] = set()
        """Runs that this server asked the engine to start."""
        self._begun: set[Run] = set()
        """Runs whose start this server saw come to its end."""
        self._hosts = engine if isinstance(engine, HasHosts) else None
        self._advances = engine if isinstance(engine, Advances) else None
        self._told: set[Run] = set()
        """Runs that the engine was told of, by their start or since."""

    async def advance(self, workload: Workload) -> Workload:
        """Take a workload that the engine has, or may have now, one step on, and return it as it is afterwards."""
        try:
            return await self._step(workload)
        except HeldUp as held:
            self._asked.discard(Run.of(workload))
            self._steps_written.pop(Run.of(workload), None)
            return await self._put_back(workload, held.reason, held.message, held.seconds)

    async def _step(self, workload: Workload) -> Workload:
        run = Run.of(workload)
        await self._remind(workload, run)
        try:
            if workload.wants is Wants.STOP:
                await self._engine.stop(run, self._grace_of(workload))
                workload = await self._reached(workload)
            report = await self._engine.observe(run)
        except Unavailable as error:
            if self._was_never_asked_for(workload):
                return await self._put_back(workload, Reason.GIVEN_BACK, error.message)
            await self._unreachable(workload, error.message)
            raise
        if report.presence is Presence.absent or self._may_be_half_started(workload):
            gone = await self._gone(workload)
            if gone:
                return await self._end(workload, gone)
            self._asked.add(run)
            self._told.add(run)
            failed = await self._start(workload)
            if failed:
                return failed
            self._begun.add(run)
            report = await self._engine.observe(run)
            if report.presence is Presence.absent and self._engine.schedules:
                raise Unavailable(f"{workload.object_name} was created and does not show up yet.")
        after = await self._write_down(workload, report)
        if self._advances and not after.ended:
            try:
                await self._advances.advance(run)
            except PenstockError as error:  # what was recorded is to be told all the same
                log.warning("%s: what is due for it is tried again: %s", workload.id, error.message)
                self._look_again(workload.id, ADVANCE_AGAIN)
        return after

    async def _remind(self, workload: Workload, run: Run) -> None:
        """Tell the engine of a run with several parts that was begun before this server: the records say what it is,
        never what stands beside its containers."""
        if self._hosts is None or workload.spec.parts == 1 or run in self._told:
            return
        self._told.add(run)
        try:
            self._hosts.remind(self._launch_of(workload, await self._volumes_of(workload)))
        except PenstockError as error:
            log.warning("%s: no further part of it can be started: %s", workload.id, error.message)

    def _may_be_half_started(self, workload: Workload) -> bool:
        """May a server that was killed have left a start before its last step? Taken again, it is finished."""
        begun = workload.launched == workload.attempt or Run.of(workload) in self._begun
        return self._engine.schedules and workload.wants is Wants.RUN and not begun

    def _was_never_asked_for(self, workload: Workload) -> bool:
        """Was it placed by this server on a node that does not answer since, and never asked to start?"""
        new = workload.state is State.ASSIGNED and workload.updated_at > self._since
        return new and not self._engine.schedules and Run.of(workload) not in self._asked

    async def _gone(self, workload: Workload) -> Outcome | None:
        """Return what it means that the engine has nothing of it; None: it was not started yet."""
        if workload.wants is Wants.STOP:
            said = await self._db.read(lambda tx: records.vanished_message(tx, workload))
            return Outcome(State.STOPPED, Reason.STOPPED_BY_USER, said)
        if self._engine.schedules:
            if workload.launched < workload.attempt:
                return None
            return Outcome(State.CRASHED, Reason.DELETED_OUTSIDE, "Its Job was deleted in the cluster.")
        if workload.started_at is not None:
            return Outcome(State.UNKNOWN, Reason.OUTCOME_UNKNOWN, "what it left behind is gone")
        return None

    async def _start(self, workload: Workload) -> Workload | None:
        """Start it. None when it began; otherwise the workload as it ended or was put back."""
        try:
            volumes = await self._volumes_of(workload)
            lost = await self._lost(
                volume for path, volume in volumes.items() if not claim_of(workload.volume_ids[path])
            )
            if lost:
                said = f"the data of volume {', '.join(lost)} is gone"
                return await self._end(workload, Outcome(State.CRASHED, Reason.VOLUME_LOST, said))
            await self._engine.start(self._launch_of(workload, volumes))
        except DevicesBusy as busy:
            said = f"GPU {busy} was taken by another server on this machine"
            return await self._put_back(workload, Reason.GIVEN_BACK, said)
        except HeldUp as held:
            await self._put_back(workload, held.reason, held.message)
            raise Unavailable(held.message) from held
        except StorageFull as error:
            await self._put_back(workload, Reason.GIVEN_BACK, error.message)
            raise
        except PenstockError as error:
            if self._engine.schedules and isinstance(error, Unavailable):
                await self._put_back(workload, Reason.CLUSTER_UNREACHABLE, error.message)
                raise
            said = f"{error.message} {error.hint or ''}".strip()
            return await self._end(workload, Outcome(State.CRASHED, Reason.LAUNCH_FAILED, said))
        except OSError as error:
            if error.errno in PASSING:
                said = f"the machine is short of something: {error.strerror}"
                return await self._put_back(workload, Reason.GIVEN_BACK, said)
            log.warning("%s could not be started", workload.id, exc_info=True)
            said = f"could not be prepared: {error}"
            return await self._end(workload, Outcome(State.CRASHED, Reason.LAUNCH_FAILED, said))
        return None

    async def _volumes_of(self, workload: Workload) -> dict[str, Volume]:
        found = await mounted_volumes(self._db, self._engine, workload)
        missing = [path for path, volume in found.items() if volume is None]
        if missing:
            raise PenstockError(f"the volume at {missing[0]} is gone")
        return {path: volume for path, volume in found.items() if volume}

    async def _lost(self, volumes: Iterable[Volume]) -> list[str]:
        """Return the volumes whose data is gone; one that was never made is still waited for."""
        known = {volume.id: volume for volume in volumes if volume.made or volume.phase is Phase.Bound}
        reports = await self._engine.volume_reports(list(known.values())) if known else {}
        return sorted(known[id_].name for id_, report in reports.items() if report.phase is Phase.Lost)

    def _launch_of(self, workload: Workload, volumes: dict[str, Volume]) -> Launch:
        spec = workload.spec.model_copy(update={"max_duration": workload.time_limit})
        mounts = tuple(
            BoundMount(
                path=m.path,
                volume=volumes[m.path],
                read_only=m.read_only or volumes[m.path].read_only,
                sub_path=m.sub_path,
            )
            for m in spec.mounts
        )
        sent = workload.files.get("workdir")
        return Launch(
            workload_id=workload.id,
            attempt=workload.attempt,
            name=workload.name,
            user=workload.user,
            group=workload.group,
            spec=spec,
            account=workload.account,
            indexes=(workload.indexes or tuple(range(spec.array.count))) if spec.array else (),
            mounts=mounts,
            gpus=workload.gpus or ((),) * spec.nodes,
            hosts=workload.hosts,
            cpusets=workload.cpusets,
            master_port=workload.master_port or PORT_IN_CLUSTER,
            record=records.record_of(workload) if isinstance(self._engine, KeepsRecords) else "",
            workdir_archive=self._uploads.path(workload.user, sent) if sent else None,
            venv=Path(workload.venv) if workload.venv else None,
            stop_grace=self._grace_of(workload),
        )

    def _grace_of(self, workload: Workload) -> int:
        return self._grace if workload.spec.stop_grace is None else workload.spec.stop_grace

    # what the engine saw

    async def _write_down(self, workload: Workload, report: Report) -> Workload:
        workload = await self._passed(workload, report)
        if report.presence is Presence.waiting:
            return await self._waiting(workload, report)
        if report.presence is Presence.running:
            return await self._running(workload, report)
        self._units_written.pop(workload.id, None)
        if report.presence is Presence.lost:
            units = tuple(_doubted(unit) for unit in report.units)
            reason = next((u.reason for u in units if u.state is State.UNKNOWN and u.reason), Reason.OUTCOME_UNKNOWN)
            return await self._end(workload, Outcome(State.UNKNOWN, reason, report.message), units)
        return await self._end(workload, None, report.units)

    async def _passed(self, workload: Workload, report: Report) -> Workload:
        """Record the steps that were shorter than the time between two looks: they are lines of its history, too."""
        run = Run.of(workload)
        new = report.steps[self._steps_written.get(run, 0) :]
        if not new or workload.started_at is not None:
            return workload
        self._steps_written[run] = len(report.steps)
        return await self._db.write(lambda tx: records.write_steps(tx, workload, new))

    async def _waiting(self, workload: Workload, report: Report) -> Workload:
        state, reason = report.state or State.QUEUED, report.reason or Reason.IN_QUEUE
        known = (workload.state, workload.reason, workload.message, workload.launched)
        if workload.wants is Wants.STOP or known == (state, reason, report.message, workload.attempt):
            return workload
        if state is State.UNKNOWN:
            return await self._in_doubt(workload, report.message)
        if report.steps and known[:2] == (state, reason):
            return await self._db.write(lambda tx: records.write_message(tx, workload, report.message))
        return await self._db.write(lambda tx: records.write_waiting(tx, workload, state, reason, report.message))

    async def _running(self, workload: Workload, report: Report) -> Workload:
        units, said = report.units, report.message
        if workload.wants is Wants.STOP or not any(unit.started_at for unit in units):
            return workload
        if report.state is State.UNKNOWN:
            workload = await self._in_doubt(workload, said)
            said = workload.message
        elif workload.state not in records.SEEN_RUNNING:
            self._units_written[workload.id] = time.monotonic()
            again = ANSWERS_AGAIN if workload.state is State.UNKNOWN else None
            return await self._db.write(lambda tx: records.write_running(tx, workload, units, said or again))
        if workload.spec.parts == 1:
            if said == workload.message:
                return workload
            return await self._db.write(lambda tx: records.write_progress(tx, workload, (), said))
        return await self._units_of_running(workload, units, said)

    async def _in_doubt(self, workload: Workload, said: str | None) -> Workload:
        if (workload.state, workload.message) == (State.UNKNOWN, said):
            return workload
        return await self._db.write(lambda tx: records.write_doubt(tx, workload, said or NOT_KNOWN))

    async def _units_of_running(self, workload: Workload, units: tuple[Unit, ...], said: str | None) -> Workload:
        """Record the units that changed, at most once a second; the end writes all in any case."""
        kept = await self._db.read(lambda tx: tx.workloads.units(workload.id, workload.attempt))
        known = {unit.model_dump_json() for unit in kept}
        changed = [unit for unit in keep_recorded_ends(kept, units) if unit.model_dump_json() not in known]
        if not changed and said == workload.message:
            return workload
        wait = self._units_written.get(workload.id, 0) + BETWEEN_UNITS - time.monotonic()
        if wait > 0:
            self._look_again(workload.id, wait)
            return workload
        self._units_written[workload.id] = time.monotonic()
        return await self._db.write(lambda tx: records.write_progress(tx, workload, changed, said))

    async def _end(self, workload: Workload, end: Outcome | None, units: tuple[Unit, ...] = ()) -> Workload:
        self._begun.discard(Run.of(workload))
        self._asked.discard(Run.of(workload))
        self._told.discard(Run.of(workload))
        self._steps_written.pop(Run.of(workload), None)
        return await self._db.write(lambda tx: records.write_end(tx, workload, end, units))

    async def _reached(self, workload: Workload) -> Workload:
        """Say again who asked it to stop, once it was told to; most were told at once."""
        first = await self._db.read(lambda tx: records.first_message(tx, workload))
        if first == workload.message:
            return workload
        return await self._db.write(lambda tx: records.write_message(tx, workload, first))

    async def _unreachable(self, workload: Workload, said: str) -> Workload:
        """Record that nobody can tell what it does now."""
        reason = Reason.CLUSTER_UNREACHABLE
        if workload.wants is Wants.STOP:
            if workload.reason is Reason.GPUS_IDLE:  # that is what it says to its end
                return workload
            return await self._db.write(lambda tx: records.write_message(tx, workload, said))
        if not self._engine.schedules:  # placed anew it might run twice
            return await self._in_doubt(workload, said)
        if workload.state is State.RUNNING:
            return await self._db.write(lambda tx: records.write_progress(tx, workload, (), said))
        if workload.launched < workload.attempt:
            return await self._put_back(workload, reason, said)
        return await self._db.write(lambda tx: records.write_waiting(tx, workload, State.QUEUED, reason, said))

    async def _put_back(self, workload: Workload, reason: Reason, message: str, seconds: float = 0) -> Workload:
        return await self._db.write(lambda tx: records.write_put_back(tx, workload, reason, message, seconds))


def _doubted(unit: Unit) -> Unit:
    if unit.ended_at is not None:
        return unit
    reason = unit.reason if unit.reason is Reason.NODE_LOST else Reason.OUTCOME_UNKNOWN
    return unit.model_copy(update={"state": State.UNKNOWN, "reason": reason})
