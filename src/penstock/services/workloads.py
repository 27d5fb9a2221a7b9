"""Workloads: submit, list, look at, wait for, stop, delete."""

from __future__ import annotations

import time

from penstock.dialects.task import Task, read_task
from penstock.domain.model import now
from penstock.domain.names import new_id
from penstock.domain.policy import Kind
from penstock.domain.users import Caller
from penstock.domain.volumes import Phase, Volume
from penstock.domain.workloads import WAITING, Reason, Spec, State, Unit, Wants, Workload
from penstock.engines.base import Engine
from penstock.errors import Ambiguous, Conflict, FilesNeeded, Invalid, NotFound, PenstockError, Problem
from penstock.services import lookup, once, scheduler
from penstock.services.accounts import account_of
from penstock.services.bell import Bell
from penstock.services.reconcile import Reconciler
from penstock.services.uploads import Uploads
from penstock.services.venvs import usable_venv
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire import DryRun, Submission, Summary, WorkloadView

LARGEST_PAGE = 500
PAGES_KEPT = 100


class Workloads:
    def __init__(
        self, db: Database, engine: Engine, settings: Settings, reconciler: Reconciler, uploads: Uploads, bell: Bell
    ) -> None:
        self._db = db
        self._engine = engine
        self._settings = settings
        self._reconciler = reconciler
        self._uploads = uploads
        self._bell = bell
        self._pages: dict[object, tuple[int, tuple[list[str], str | None]]] = {}

    # submit

    async def submit(self, caller: Caller, asked: Submission, key: str | None = None) -> WorkloadView | DryRun:
        task = read_task(asked.text, asked.source, name=asked.name, envs=asked.envs)
        return await self.submit_task(caller, task, asked, key)

    async def submit_task(
        self, caller: Caller, task: Task, asked: Submission, key: str | None = None
    ) -> WorkloadView | DryRun:
        spec = task.spec
        ask = self._reconciler.ask_of(spec)
        volumes, problems = await self._volumes_of(caller, task)
        problems = [*self._never_fits(task, ask), *problems]
        if problems:
            raise Invalid(f"{asked.source} cannot run here.", problems=problems)
        venv, venv_notices = usable_venv(asked.venv, caller, self._settings)
        notices = (*task.notices, *self._engine_notices(spec), *venv_notices)
        waits = self._reconciler.outlook(ask)
        if asked.dry_run:
            said = f"It would wait: {waits}." if waits else "It would start now."
            return DryRun(fits_now=waits is None, message=said, notices=notices, spec=spec)
        self._refuse_missing_files(caller, spec, asked.files)
        workload_id = new_id()
        moment = now()
        workload = Workload(
            id=workload_id,
            name=spec.name or f"task-{workload_id}",
            group=caller.group,
            user=caller.user,
            account=account_of(caller, self._settings),
            spec=spec,
            volume_ids={path: volume.id for path, volume in volumes.items()},
            files={"workdir": asked.files["workdir"]} if _sends_workdir(spec) else {},
            venv=venv,
            notices=notices,
            state=State.QUEUED if waits else State.INSERTED,
            reason=Reason.NO_AVAILABLE_RESOURCES if waits else Reason.SUBMITTED,
            message=waits,
            created_at=moment,
            updated_at=moment,
        )
        return await self._add(caller, workload, asked, key)

    async def _add(self, caller: Caller, workload: Workload, asked: Submission, key: str | None) -> WorkloadView:
        body = once.digest(asked.model_dump_json(exclude={"files"}).encode()) if key else ""

        def add(tx: Store) -> tuple[Workload, bool]:
            before = once.made_before(tx, caller.user, key, body, Kind.Workload)
            if before and (known := tx.workloads.get(before)):
                return known, False
            for volume_id in workload.volume_ids.values():
                volume = tx.volumes.get(volume_id)
                if volume is None or volume.phase is Phase.Deleting:
                    raise NotFound(f"Volume {volume_id} not found")
            tx.workloads.add(workload)
            once.remember(tx, caller.user, key, body, Kind.Workload, workload.id)
            return workload, True

        made, new = await self._db.write(add)
        if new:
            self._reconciler.submitted(made)
        return WorkloadView.whole(made, (), (), self._limits())

    def _never_fits(self, task: Task, ask: scheduler.Ask) -> list[Problem]:
        hint = "penstock nodes shows what there is"
        return [
            Problem(reason, where=task.where("resources", key), field=f"resources.{key}", hint=hint)
            for key, reason in scheduler.never(ask, self._reconciler.node).items()
        ]

    def _refuse_missing_files(self, caller: Caller, spec: Spec, files: dict[str, str]) -> None:
        if not _sends_workdir(spec):
            return
        if "workdir" not in files:
            raise FilesNeeded(
                "The workdir is a local directory and must be sent along.",
                hint="Submit it with the command line, which does so.",
                files={"workdir": spec.workdir},
                limit_bytes=self._uploads.limit,
            )
        self._uploads.path(caller.user, files["workdir"])

    async def _volumes_of(self, caller: Caller, task: Task) -> tuple[dict[str, Volume], list[Problem]]:
        """Mount path → volume, and every mistake at once."""
        spec = task.spec
        if not spec.mounts:
            return {}, []

        def find(tx: Store) -> dict[str, Volume | PenstockError]:
            found: dict[str, Volume | PenstockError] = {}
            for mount in spec.mounts:
                try:
                    found[mount.path] = lookup.volume(tx, caller, mount.volume)
                except (NotFound, Ambiguous) as error:
                    found[mount.path] = error
            return found

        found = await self._db.read(find)
        volumes = {path: volume for path, volume in found.items() if isinstance(volume, Volume)}
        reports = await self._engine.volume_reports(list(volumes.values()))
        lost = {id_: report.message for id_, report in reports.items() if report.phase is Phase.Lost}
        return volumes, [
            problem
            for path, volume in found.items()
            if (problem := _mount_problem(path, volume, task, lost)) is not None
        ]

    def _engine_notices(self, spec: Spec) -> list[str]:
        said = []
        if spec.resources.image and self._settings.engine == "local":
            said.append(f"image_id: {spec.resources.image} is not used by this engine; the machine's own programs run")
        if spec.mounts and self._settings.sandbox == "none":
            said.append(
                'volumes: with sandbox = "none" nothing is mounted; '
                "PENSTOCK_VOLUME_<NAME> says where each volume is, in capitals and with _ for -"
            )
        return said

    def _limits(self) -> str:
        return "enforced" if self._reconciler.node.limits_enforced else "advisory"

    # look

    async def page(
        self,
        caller: Caller,
        *,
        everyone: bool,
        name: str | None,
        states: list[State] | None,
        statuses: list[str] | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[list[str], str | None]:
        """Summaries as the JSON they are stored as. A page is the same until something is written."""
        group = None if everyone else caller.group
        asked = (group, name, tuple(states or ()), tuple(statuses or ()), limit, cursor)
        version = self._db.version
        known = self._pages.get(asked)
        if known and known[0] == version:
            return known[1]
        found = await self._db.read(
            lambda tx: tx.workloads.page(group, name=name, states=states, statuses=statuses, limit=limit, cursor=cursor)
        )
        if len(self._pages) >= PAGES_KEPT:
            self._pages.clear()
        self._pages[asked] = (version, found)
        return found

    async def whole_page(
        self,
        caller: Caller,
        *,
        everyone: bool,
        name: str | None,
        statuses: list[str] | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[list[tuple[Summary, tuple[Unit, ...]]], str | None]:
        """Summaries with their units: what document 001's list shows."""
        group = None if everyone else caller.group

        def look(tx: Store) -> tuple[list[tuple[Summary, tuple[Unit, ...]]], str | None]:
            items, after = tx.workloads.page(group, name=name, statuses=statuses, limit=limit, cursor=cursor)
            summaries = [Summary.model_validate_json(item) for item in items]
            return [(summary, tx.workloads.units(summary.id)) for summary in summaries], after

        return await self._db.read(look)

    async def get(self, caller: Caller, ref: str) -> WorkloadView:
        def look(tx: Store) -> WorkloadView:
            workload = lookup.workload(tx, caller, ref)
            history, units = tx.workloads.history(workload.id), tx.workloads.units(workload.id)
            return WorkloadView.whole(workload, history, units, self._limits())

        return await self._db.read(look)

    async def wait(self, caller: Caller, ref: str, timeout: float) -> WorkloadView:
        """The workload once it has ended, or as it is when the time is up. Woken by its own changes only."""
        until = time.monotonic() + timeout
        view = await self.get(caller, ref)
        with self._bell.listen(view.id) as rung:
            while True:
                rung.clear()
                view = await self.get(caller, view.id)
                left = until - time.monotonic()
                if view.ended_at is not None or left <= 0 or self._bell.stopping:
                    return view
                await rung.wait(left)

    # end

    async def stop(self, caller: Caller, ref: str) -> Summary:
        def change(tx: Store) -> Workload:
            return _stop(tx, lookup.workload(tx, caller, ref), caller)

        return self._stopped(await self._db.write(change))

    async def stop_all(self, caller: Caller, *, everyone: bool) -> list[Summary]:
        def change(tx: Store) -> list[Workload]:
            mine = [w for w in tx.workloads.active() if everyone or w.group == caller.group]
            return [_stop(tx, workload, caller) for workload in mine if workload.wants is Wants.RUN]

        return [self._stopped(workload) for workload in await self._db.write(change)]

    def _stopped(self, workload: Workload) -> Summary:
        self._bell.ring(workload.id)
        self._reconciler.touch(workload.id)
        return Summary.of(workload)

    async def delete(self, caller: Caller, ref: str) -> Workload:
        def change(tx: Store) -> Workload:
            workload = lookup.workload(tx, caller, ref)
            if not workload.ended:
                raise Conflict(
                    f"{workload.name} ({workload.id}) is {workload.status}.", hint=f"penstock jobs stop {workload.id}"
                )
            moved: Workload = tx.workloads.move(workload, State.DELETED, Reason.DELETED_BY_USER, wants=Wants.DELETE)
            return moved

        workload = await self._db.write(change)
        self._reconciler.touch(workload.id)
        return workload

    async def counts(self) -> dict[str, int]:
        return await self._db.read(lambda tx: tx.workloads.counts())


def _sends_workdir(spec: Spec) -> bool:
    return spec.workdir is not None and not spec.workdir.startswith("/")


def _mount_problem(
    path: str, volume: Volume | PenstockError, task: Task, lost: dict[str, str | None]
) -> Problem | None:
    where, field = task.where("volumes", path), f"volumes.{path}"
    if isinstance(volume, PenstockError):
        return Problem(volume.message, where=where, field=field, hint="penstock volumes list shows yours")
    if volume.id in lost:
        return Problem(f"volume {volume.name} is Lost: {lost[volume.id]}", where=where, field=field)
    if task.spec.nodes > 1 and not volume.many_nodes:
        return Problem(
            f"volume {volume.name} is {', '.join(volume.access_modes)}; {task.spec.nodes} nodes need ReadWriteMany",
            where=where,
            field=field,
            hint="penstock volumes create NAME SIZE --access-modes ReadWriteMany",
        )
    return None


def _stop(tx: Store, workload: Workload, caller: Caller) -> Workload:
    """One that waits is stopped at once; one that is placed is asked to. An ended one stays as it is."""
    if workload.ended or workload.wants is Wants.STOP:
        return workload
    said = f"by {caller.user}"
    if workload.state in WAITING:
        stopped: Workload = tx.workloads.move(workload, State.STOPPED, Reason.STOPPED_BY_USER, said, wants=Wants.STOP)
        return stopped
    asked: Workload = tx.workloads.move(
        workload, State.REQUESTED_CANCEL, Reason.STOPPED_BY_USER, said, wants=Wants.STOP
    )
    return asked
