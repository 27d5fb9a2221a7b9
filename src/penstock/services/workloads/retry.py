"""Start another attempt of a workload that has ended, because somebody asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.domain.attempts import NextAttempt, latest
from penstock.domain.policy import Kind, Rights, Verb
from penstock.domain.states import Reason, State
from penstock.domain.users import Caller
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine
from penstock.engines.shared.disk import disk_of
from penstock.errors import Conflict, Invalid, Problem
from penstock.services import audit, lookup
from penstock.services.idempotency import KeyedRequest
from penstock.services.people.people import People
from penstock.services.reconcile import records
from penstock.services.reconcile.reconciler import Reconciler
from penstock.services.scheduler.queue import JobQueue
from penstock.services.wakeup import Wakeup
from penstock.services.workloads.references import claim_of, is_literal, is_mountable, may_write, mounted_volumes
from penstock.services.workloads.uploads import Uploads
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire.requests import Retry
from penstock.wire.workloads import WorkloadView


@dataclass(eq=False)
class Retries:
    _db: Database
    _engine: Engine
    _settings: Settings
    _reconciler: Reconciler
    _queue: JobQueue
    _uploads: Uploads
    _wakeup: Wakeup
    _people: People

    async def retry(self, caller: Caller, ref: str, asked: Retry, key: str | None = None) -> WorkloadView:
        """Begin another attempt; `retries` and `requeue` count from this one."""
        body = f"retry {ref} {asked.model_dump_json()}".encode()
        request = KeyedRequest(caller, key, Kind.Workload, body)
        workload = await self._db.read(lambda tx: lookup.workload(tx, caller, ref, Verb.create))
        await self._refuse_foreign(caller, workload)

        def change(tx: Store) -> tuple[Workload, bool]:
            before = request.made_before(tx)
            if before:
                return lookup.workload(tx, caller, before, Verb.create), False
            disk_of(self._settings).refuse_new_work()
            found = lookup.workload(tx, caller, workload.id, Verb.create)
            _refuse_active(found)
            _refuse_without_volumes(tx, found)
            indexes = _indexes(tx, found, asked.indexes)
            after = NextAttempt(
                Reason.RETRY, f"attempt {found.attempt + 1}: asked for by {caller.user}", indexes=indexes
            )
            request.remember(tx, found.id)
            audit.note_of(tx, caller, Verb.create, found, after.message)
            return records.begin_attempt(tx, found, after), True

        again, new = await self._db.write(change)
        if new:
            self._reconciler.submitted(again)
            self._wakeup.wake(again.id)
        history, units = await self._db.read(lambda tx: (tx.workloads.history(again.id), tx.workloads.units(again.id)))
        return WorkloadView.whole(again, history, units, self._queue.limits)

    async def _refuse_foreign(self, caller: Caller, workload: Workload) -> None:
        """Refuse what is gone outside the records, the files sent along and claims of the cluster, and volumes that the
        owner or the caller may not mount now: it runs as its owner's, and because the caller asks."""
        if sent := workload.files.get("workdir"):
            self._uploads.path(workload.user, sent)
        volumes = await mounted_volumes(self._db, self._engine, workload)
        for path, volume in volumes.items():
            if volume is None and claim_of(workload.volume_ids[path]):
                raise _without_volume(workload, path)
        asked = {"you": caller.rights}
        if caller.user != workload.user and (owners := self._people.rights(workload.user)):
            asked[workload.user] = owners
        problems = [each for who, rights in asked.items() for each in not_theirs(workload, volumes, who, rights)]
        if problems:
            raise Invalid(f"{workload.name} ({workload.id}) cannot run again.", problems=problems)


def _refuse_active(workload: Workload) -> None:
    if not workload.ended:
        raise Conflict(
            f"{workload.name} ({workload.id}) has not ended: it is {workload.status}.",
            hint=f"penstock jobs stop {workload.id}",
        )


def _refuse_without_volumes(tx: Store, workload: Workload) -> None:
    for path, volume_id in workload.volume_ids.items():
        if not is_mountable(tx, volume_id):
            raise _without_volume(workload, path)


def not_theirs(workload: Workload, volumes: Mapping[str, Volume | None], who: str, rights: Rights) -> list[Problem]:
    """Return which of its volumes they may not mount as it does, judged as when it was first asked for."""
    problems = []
    for mount in workload.spec.mounts:
        volume = volumes[mount.path]
        if volume is None or may_write(rights, volume.group):
            continue
        seen = rights.may(Verb.get, Kind.Volume, volume.group)
        if seen and (mount.read_only or volume.read_only):
            continue
        if is_literal(volume):
            said = f"the claim {volume.name} of the cluster was not given to a group in which {who} may mount it"
            problems.append(Problem(said, field=f"volumes.{mount.path}"))
            continue
        said = f"volume {volume.name} belongs to group {volume.group}, where {who} may not"
        said += " write to volumes" if seen else " see volumes"
        needed = "'upload'" if seen else "'get'"
        hint = f"an admin gives {needed} on Volume in group {volume.group}; or submit it anew without"
        problems.append(Problem(said, field=f"volumes.{mount.path}", hint=hint))
    return problems


def _without_volume(workload: Workload, path: str) -> Conflict:
    named = next(mount.volume for mount in workload.spec.mounts if mount.path == path)
    return Conflict(
        f"{workload.name} ({workload.id}) cannot run again: volume {named}, which it mounts at {path}, is gone.",
        hint="Submit it anew with another volume.",
    )


def _indexes(tx: Store, workload: Workload, asked: Sequence[int] | None) -> tuple[int, ...]:
    """Return the indexes that the attempt runs; none are all."""
    array = workload.spec.array
    if array is None:
        if asked:
            problem = Problem(f"{workload.name} is no array", field="indexes")
            raise Invalid("The attempt cannot be started.", problems=[problem])
        if workload.state is State.EXITED:
            raise _nothing(workload)
        return ()
    done = {unit.index for unit in latest(tx.workloads.units(workload.id)) if unit.state is State.EXITED}
    left = [index for index in range(array.count) if index not in done]
    if not left:
        raise _nothing(workload)
    wrong = [index for index in asked or () if not 0 <= index < array.count or index in done]
    if wrong:
        said = f"index {wrong[0]} has completed" if wrong[0] in done else f"there is no index {wrong[0]}"
        shown = ", ".join(map(str, left[:20])) + (" …" if len(left) > 20 else "")
        problem = Problem(said, field="indexes", hint=f"those that did not complete: {shown}")
        raise Invalid("The attempt cannot be started.", problems=[problem])
    chosen = sorted(set(asked)) if asked else left
    return () if len(chosen) == array.count else tuple(chosen)


def _nothing(workload: Workload) -> Conflict:
    return Conflict(
        f"{workload.name} ({workload.id}) completed: there is nothing to try again.",
        hint="Submit it anew to repeat it.",
    )
