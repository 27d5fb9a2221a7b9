"""Turn a task's text into a workload in the store, with all errors at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.dialects.task.read import Task, read_task
from penstock.domain.engines import ENGINES
from penstock.domain.model import now
from penstock.domain.names import new_id, shorten
from penstock.domain.policy import Kind, Verb
from penstock.domain.quantities import show_duration
from penstock.domain.scheduling.demand import QueuedJob
from penstock.domain.scheduling.explain import WaitCause, no_room
from penstock.domain.states import Reason, State
from penstock.domain.users import Caller, Group, Proof
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Mount, Spec, Workload
from penstock.engines.base import Engine, HasCluster, namespace_of
from penstock.engines.shared.disk import disk_of
from penstock.errors import Invalid, NameTaken, NotFound, Problem, Unavailable
from penstock.services import audit, notifications
from penstock.services.documents.diff import alive, open_secrets
from penstock.services.idempotency import KeyedRequest
from penstock.services.people.accounts import account_of, root_account
from penstock.services.people.people import People
from penstock.services.reconcile.holds import waits_for
from penstock.services.reconcile.reconciler import Reconciler
from penstock.services.reconcile.records import RECORD_LIMIT, SPEC_LIMIT, record_of
from penstock.services.scheduler.queue import JobQueue
from penstock.services.volumes.volumes import Volumes
from penstock.services.workloads.references import UpcomingObjects, awaited_by, is_mountable, volumes_of
from penstock.services.workloads.uploads import Uploads
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire.requests import NewVolume, Submission
from penstock.wire.workloads import DryRun, SpecView, WorkloadView

_WRITTEN = {
    "node": ("selectors", "node"),
    "cpu_product": ("selectors", "cpu_product"),
    "labels": ("selectors", "labels"),
    "volumes": ("volumes",),
    "allows": ("resources",),
    "workloads": ("name",),
}
"""Where a task says what no node has; all else is one of its resources."""


@dataclass(frozen=True)
class Prepared:
    """A workload that can be stored; its message is what it would wait for."""

    workload: Workload
    homes: dict[str, Volume]
    """Volumes that are made with it, by mount path."""
    job: QueuedJob | None = None
    """The workload as the queue sees it; None: it waits for others first, or the engine schedules."""


@dataclass(eq=False)
class Submit:
    _db: Database
    _engine: Engine
    _settings: Settings
    _reconciler: Reconciler
    _queue: JobQueue
    _uploads: Uploads
    _volumes: Volumes
    _people: People

    async def text(self, caller: Caller, asked: Submission, key: str | None = None) -> WorkloadView | DryRun:
        task = read_task(asked.text, asked.source, name=asked.name, envs=asked.envs)
        return await self.task(caller, task, asked, key)

    async def task(
        self, caller: Caller, task: Task, asked: Submission, key: str | None = None
    ) -> WorkloadView | DryRun:
        prepared = await self.prepare(caller, task, asked)
        if asked.dry_run:
            return await self.outlook(prepared)
        body = asked.model_dump_json(exclude={"files"}).encode()
        return await self.add(caller, prepared, KeyedRequest(caller, key, Kind.Workload, body))

    async def prepare(
        self, caller: Caller, task: Task, asked: Submission, coming: UpcomingObjects | None = None
    ) -> Prepared:
        caller.require(Verb.create, Kind.Workload)
        coming = coming or UpcomingObjects()
        problems = [*open_secrets(task), *await self._refusals(caller, task)]
        mounted = await volumes_of(self._db, self._engine, caller, task, coming, partial(self._home, caller, coming))
        workload = self._new(caller, task.spec)
        job = await self._job(workload, mounted.volumes, coming)
        problems += [*self._too_high(caller, task), *self._never_fits(task, job, coming), *mounted.problems]
        problems += await self._beyond_limits(task, mounted.homes, coming)
        others: dict[str, Workload] = {}
        if task.spec.after or asked.after:
            others, more = await self._db.read(lambda tx: awaited_by(tx, caller, task, asked.after, coming))
            problems += more
        if problems:
            raise Invalid(f"{asked.source} cannot run here.", problems=problems)
        if asked.dry_run:
            self.refuse_without_room()
        else:
            self._refuse_missing_files(caller, task.spec, asked.files)
        venv, venv_notices = usable_venv(asked.venv, caller, self._settings)
        notices = (
            *task.notices,
            *map(task.in_its_words, await self._engine.notices(task.spec)),
            *venv_notices,
            *_limited(workload),
        )
        unmet = [other for other in others.values() if other.state is not State.EXITED]
        waits = WaitCause(Reason.WAITS_FOR_OTHERS, waits_for(unmet)) if unmet else self._outlook(job, coming)
        said = {
            "spec": _with(task.spec, asked.after),
            "volume_ids": mounted.ids,
            "files": {"workdir": asked.files["workdir"]} if sends_workdir(task.spec) and asked.files else {},
            "venv": venv,
            "notices": notices,
            "after_ids": tuple(others),
        }
        if waits:
            said |= {"state": waits.state, "reason": waits.reason, "message": waits.message, "ahead": waits.ahead}
        workload = workload.model_copy(update=said)
        self._refuse_too_long(workload, asked.source)
        return Prepared(workload, mounted.homes, None if unmet else job)

    async def _beyond_limits(self, task: Task, homes: Mapping[str, Volume], coming: UpcomingObjects) -> list[Problem]:
        """Return which volumes that are made with it are too large for its group, after all that the same text makes
        before them."""
        new = {(home.group, home.name): path for path, home in homes.items()}
        new = {key: path for key, path in new.items() if key not in coming.planned_homes}
        others = [*coming.volumes.values(), *coming.larger, *coming.planned_homes.values()]
        if not new:
            return []
        found = await self._volumes.beyond_limits([*others, *(homes[path] for path in new.values())], coming.groups)
        return [
            task.problem(problem["message"], "volumes", path, hint=problem.get("hint"))
            for path, problems in zip(new.values(), found[len(others) :], strict=True)
            for problem in problems
        ]

    def refuse_without_room(self) -> None:
        disk_of(self._settings).refuse_new_work()

    def _new(self, caller: Caller, spec: Spec) -> Workload:
        """Make the workload, as it is whatever it mounts and waits for."""
        group = self._people.group(caller.group)
        workload_id, moment = new_id(), now()
        return Workload(
            id=workload_id,
            name=spec.name or f"task-{workload_id}",
            group=caller.group,
            namespace=namespace_of(self._engine, caller.user, caller.group),
            user=caller.user,
            account=account_of(caller, self._settings),
            spec=spec,
            max_duration=spec.max_duration or (group.max_duration if group else None),
            requeue=self._settings.default_requeue if spec.requeue is None else 0,
            created_at=moment,
            updated_at=moment,
        )

    async def _job(self, workload: Workload, volumes: Sequence[Volume], coming: UpcomingObjects) -> QueuedJob | None:
        """Return the workload as the queue sees it. The engine does not know the storages that come with it."""
        nodes = {storage.name: storage.node for storage in coming.storages}
        known = [volume for volume in volumes if volume.storage not in nodes]
        homes = tuple((volume.name, node) for volume in volumes if (node := nodes.get(volume.storage or "")))
        return await self._queue.candidate(workload, known, homes)

    async def _home(self, caller: Caller, coming: UpcomingObjects, mount: Mount) -> Volume:
        """Plan the volume that a mount asks for. Who may run something may have it."""
        return await self._volumes.wanted(caller, _asked(mount), coming.storages)

    async def add(
        self, caller: Caller, prepared: Prepared, request: KeyedRequest, *, alone: bool = False
    ) -> WorkloadView:
        """Store it; it is durable when this returns. `alone`: not beside another of its name that is alive."""
        workload = await self._with_homes(caller, prepared)

        def add(tx: Store) -> tuple[Workload, bool]:
            before = request.made_before(tx)
            if before:
                return _still_there(tx, before, request), False
            self.refuse_without_room()
            if alone and (others := alive(tx, workload.group, workload.name)):
                raise NameTaken(f"{others[0].name} already exists ({others[0].id}).", id=others[0].id)
            for volume_id in workload.volume_ids.values():
                if not is_mountable(tx, volume_id):
                    raise NotFound(f"Volume {volume_id} not found")
            tx.workloads.add(workload)
            audit.note_of(tx, caller, Verb.create, workload)
            request.remember(tx, workload.id)
            return workload, True

        made, new = await self._db.write(add)
        if new:
            self._reconciler.submitted(made)
        return WorkloadView.whole(made, (), (), self._queue.limits)

    async def _with_homes(self, caller: Caller, prepared: Prepared) -> Workload:
        """Make the volumes that are not there yet; what someone made meanwhile is the same one."""
        ids: dict[str, str] = {}
        for mount in prepared.workload.spec.mounts:
            if home := prepared.homes.get(mount.path):
                try:
                    ids[mount.path] = (await self._volumes.add(caller, home, _asked(mount))).id
                except NameTaken as taken:
                    ids[mount.path] = str(taken.details["id"])
        if not ids:
            return prepared.workload
        return prepared.workload.model_copy(update={"volume_ids": prepared.workload.volume_ids | ids})

    async def outlook(self, prepared: Prepared) -> DryRun:
        workload = prepared.workload
        waits = workload.message or await self._foreseen(workload.spec)
        fits = None if self._engine.schedules and not waits else waits is None
        limit = self._uploads.limit if sends_workdir(workload.spec) else None
        return DryRun(
            fits_now=fits,
            message=self.would(waits, workload.ahead),
            ahead=workload.ahead,
            notices=workload.notices,
            spec=SpecView.of(workload.spec),
            upload_limit_bytes=limit,
        )

    async def _foreseen(self, spec: Spec) -> str | None:
        """Return what it would wait for on an engine that places work itself; None where that does not answer."""
        try:
            return await self._engine.outlook(spec) if isinstance(self._engine, HasCluster) else None
        except Unavailable:
            return None

    def would(self, waits: str | None, ahead: int | None = None) -> str:
        if waits:
            others = f" behind {ahead} other{'s' if ahead > 1 else ''}" if ahead else ""
            return f"It would wait{others}: {waits}."
        return "The cluster decides when it starts." if self._engine.schedules else "It would start now."

    def _outlook(self, job: QueuedJob | None, coming: UpcomingObjects) -> WaitCause | None:
        waits = self._queue.outlook(job) if job else None
        if waits and waits.reason is Reason.NO_NODE_FITS and coming.hosts:
            return no_room(f"waits for {', '.join(host.name for host in coming.hosts)} to be registered")
        return waits

    async def _refusals(self, caller: Caller, task: Task) -> list[Problem]:
        """Return what the engine will never do. One that does not answer now says so when it starts the workload."""
        try:
            refusals = await self._engine.refusals(task.spec, (caller.user, caller.group))
        except Unavailable:
            refusals = []
        return [
            task.problem(each.message, *each.keys, hint=each.hint)
            for each in [*refusals, *notifications.refusals(task.spec, self._settings)]
        ]

    def _too_high(self, caller: Caller, task: Task) -> list[Problem]:
        """Refuse a priority above the group's: else anyone could go before all other groups. Where no user is written
        down, nobody could allow it."""
        if caller.written is None or caller.admin or self._engine.schedules:
            return []
        group = self._people.group(caller.group) or Group(name=caller.group)
        if task.spec.priority <= group.max_priority:
            return []
        said = f"is {task.spec.priority}; group {group.name} may have {group.max_priority} at most"
        hint = f"an admin can raise max_priority of group {group.name}"
        return [task.problem(said, "priority", hint=hint)]

    def _never_fits(self, task: Task, job: QueuedJob | None, coming: UpcomingObjects) -> list[Problem]:
        found = self._queue.never(job, coming.hosts) if job else {}
        hint = "penstock nodes shows what there is"
        return [
            task.problem(reason, *_WRITTEN.get(key, ("resources", key)), hint=hint) for key, reason in found.items()
        ]

    def _refuse_missing_files(self, caller: Caller, spec: Spec, files: dict[str, str]) -> None:
        if not sends_workdir(spec):
            return
        if "workdir" not in files:
            raise self._uploads.needed({"workdir": spec.workdir})
        self._uploads.path(caller.user, files["workdir"])

    def _refuse_too_long(self, workload: Workload, source: str) -> None:
        """Refuse a task that is longer than the record that a cluster keeps beside its run."""
        if not isinstance(self._engine, HasCluster):
            return
        too_long = len(workload.spec.model_dump_json().encode()) > SPEC_LIMIT
        if too_long or len(record_of(workload).encode()) > RECORD_LIMIT:
            said = f"is longer than {SPEC_LIMIT // 1024} KiB, all that a cluster keeps of a task"
            problem = Problem(said, where=source, hint="put long scripts and values in a file in a volume")
            raise Invalid(f"{source} cannot run here.", problems=[problem])


def _still_there(tx: Store, workload_id: str, request: KeyedRequest) -> Workload:
    """Return the workload that was made before, in the caller's group, where they may make workloads: both were
    checked."""
    known = tx.workloads.get(workload_id)
    if known is None or known.state is State.DELETED:
        raise request.gone(workload_id)
    return known


def sends_workdir(spec: Spec) -> bool:
    return spec.workdir is not None and not spec.workdir.startswith("/")


def _with(spec: Spec, after: list[str]) -> Spec:
    return spec.model_copy(update={"after": tuple(dict.fromkeys((*spec.after, *after)))}) if after else spec


def _limited(workload: Workload) -> tuple[str, ...]:
    """Tell of a time limit that the group gives and the task did not ask for."""
    if workload.max_duration == workload.spec.max_duration or workload.max_duration is None:
        return ()
    lasts = show_duration(workload.max_duration)
    return (f"It may run for {lasts}: group {workload.group} says so for what names no max_duration.",)


def _asked(mount: Mount) -> NewVolume:
    fields = {"name": mount.volume, "storage": mount.storage, "sub_path": mount.volume}
    return NewVolume.model_validate(fields)


HIDDEN = ("/proc", "/sys", "/dev", "/run")


def usable_venv(given: str | None, caller: Caller, settings: Settings) -> tuple[str | None, tuple[str, ...]]:
    """Return the path to bind, or None and the sentence that says why not."""
    if not given:
        return None, ()
    path = Path(given)
    why = _why_not(path, caller, settings)
    if why is None:
        return os.path.normpath(path), ()
    return None, (f"The virtual environment {shorten(given)} is not there in the job: {why}.",)


def _why_not(path: Path, caller: Caller, settings: Settings) -> str | None:
    if not ENGINES[settings.engine].here:
        return "it is on another machine than the job, which has what its image has"
    if caller.proof is not Proof.socket or (settings.mode == "user" and caller.uid != os.geteuid()):
        # Nothing may be said here that tells whether it is there.
        return (
            "only who asks over the server's socket on this machine, as the account that the job runs as, can bring one"
        )
    if not path.is_absolute() or "\0" in str(path) or ".." in path.parts or str(path).startswith(HIDDEN):
        return "its path cannot be used"
    if settings.mode == "system" and caller.uid not in (None, 0) and caller.uid == root_account(settings).uid:
        return "the account that runs root's work may not bring one"
    if caller.uid != os.geteuid():
        return None  # the engine looks, with the rights of the account
    try:
        if not (path / "pyvenv.cfg").is_file():
            return "there is no pyvenv.cfg in it"
    except OSError:
        return "it cannot be read"
    return None
