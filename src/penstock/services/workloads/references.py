"""Resolve the names in a task: the volumes it mounts, the workloads it waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.dialects.task.read import Task
from penstock.domain.names import shorten
from penstock.domain.nodes import Host
from penstock.domain.policy import EVERYTHING, Kind, Rights, Verb
from penstock.domain.users import Caller, Group
from penstock.domain.volumes import Phase, Storage, Volume
from penstock.domain.workloads import Mount, Spec, Workload
from penstock.engines.base import Engine, HasCluster
from penstock.errors import Ambiguous, Invalid, NotFound, PenstockError, Problem, Unavailable
from penstock.services import lookup
from penstock.store.database import Database
from penstock.store.session import Store

Found = Volume | PenstockError
NOT_MADE = "Volume {} is not there, and a read-only mount does not make it"


@dataclass(frozen=True)
class UpcomingObjects:
    volumes: dict[tuple[str, str], Volume] = field(default_factory=dict)
    workloads: dict[tuple[str, str], Workload] = field(default_factory=dict)
    storages: tuple[Storage, ...] = ()
    hosts: tuple[Host, ...] = ()
    homes: frozenset[tuple[str, str]] = frozenset()
    """Group and name of each volume that some workload of it makes by mounting it to write."""
    larger: list[Volume] = field(default_factory=list)
    """Volumes that are there, with the sizes they are to have."""
    groups: Mapping[str, Group] = field(default_factory=dict)
    planned_homes: dict[tuple[str, str], Volume] = field(default_factory=dict)

    def add_homes(self, homes: Iterable[Volume]) -> None:
        for home in homes:
            self.planned_homes.setdefault((home.group, home.name), home)


@dataclass(frozen=True)
class ResolvedMounts:
    ids: dict[str, str] = field(default_factory=dict)
    """Mount path → id of the volume."""
    problems: list[Problem] = field(default_factory=list)
    homes: dict[str, Volume] = field(default_factory=dict)
    """Volumes that are made now, on their first use, by mount path."""
    volumes: tuple[Volume, ...] = ()
    """All volumes that were found."""


async def volumes_of(
    db: Database,
    engine: Engine,
    caller: Caller,
    task: Task,
    coming: UpcomingObjects,
    home: Callable[[Mount], Awaitable[Volume]],
) -> ResolvedMounts:
    """Resolve all mounts of a task, with every mistake. `home` plans a volume that is to be made on a storage."""
    if not task.spec.mounts:
        return ResolvedMounts()
    found: dict[str, Found] = await db.read(lambda tx: _known(tx, caller, task, coming))
    kept = [each for each in found.values() if isinstance(each, Volume) and (each.made or each.phase is Phase.Bound)]
    ids = {path: volume.id for path, volume in found.items() if isinstance(volume, Volume)}
    homes: dict[str, Volume] = {}
    made_by_mounting = coming.homes | homes_of(task.spec, caller.group)
    for mount in task.spec.mounts:
        if not isinstance(found[mount.path], NotFound):
            continue
        if mount.group is None and mount.storage in (None, EVERYTHING):
            claim = await literal(db, engine, caller, mount.volume)
            found[mount.path] = claim or NotFound(f"Volume {shorten(mount.volume)} not found")
            ids[mount.path] = literal_id(mount.volume)
        missing = isinstance(found[mount.path], NotFound)
        if missing and _may_be_made(mount, caller.group) and (caller.group, mount.volume) not in made_by_mounting:
            found[mount.path] = _not_made(mount)
        elif missing and _may_be_made(mount, caller.group):
            made = found[mount.path] = await _home(mount, home)
            if isinstance(made, Volume):
                homes[mount.path], ids[mount.path] = made, made.id
    lost = await _lost(engine, kept)
    problems = [problem for path, volume in found.items() if (problem := _problem(path, volume, task, lost))]
    problems += [*_elsewhere(task, found), *_not_theirs_to_write(caller, task, found)]
    return ResolvedMounts(ids, problems, homes, tuple(each for each in found.values() if isinstance(each, Volume)))


def homes_of(spec: Spec, group: str) -> frozenset[tuple[str, str]]:
    """Return group and name of each volume that this workload makes if it is not there."""
    mounts = (mount for mount in spec.mounts if _may_be_made(mount, group) and not mount.read_only)
    return frozenset((group, mount.volume) for mount in mounts)


def _may_be_made(mount: Mount, group: str) -> bool:
    return mount.storage is not None and mount.group in (None, group)


def _not_made(mount: Mount) -> NotFound:
    """Refuse to make a volume for a read-only mount: an empty volume in the place of one whose name was mistyped would
    be read as if it held the data."""
    hint = f"penstock volumes create {mount.volume} 10Gi makes it; or mount it to write"
    if mount.storage != EVERYTHING:
        hint = f"apply a Volume document of this name with the storage {mount.storage}; or mount it to write"
    return NotFound(NOT_MADE.format(shorten(mount.volume)), hint=hint)


async def _home(mount: Mount, home: Callable[[Mount], Awaitable[Volume]]) -> Found:
    try:
        return await home(mount)
    except NotFound as error:
        return error
    except Invalid as error:
        return NotFound("; ".join(str(problem) for problem in error.problems))


async def _lost(engine: Engine, volumes: Sequence[Volume]) -> dict[str, str | None]:
    """Return the ids of volumes whose data is gone, as far as the engine can tell now, and what it says."""
    try:
        reports = await engine.volume_reports(volumes) if volumes else {}
    except Unavailable:
        return {}
    return {id_: report.message for id_, report in reports.items() if report.phase is Phase.Lost}


def _known(tx: Store, caller: Caller, task: Task, coming: UpcomingObjects) -> dict[str, Found]:
    found: dict[str, Found] = {}
    for mount in task.spec.mounts:
        try:
            found[mount.path] = _mounted(tx, caller, mount, coming)
        except (NotFound, Ambiguous) as error:
            found[mount.path] = error
    return found


def _mounted(tx: Store, caller: Caller, mount: Mount, coming: UpcomingObjects) -> Volume:
    """Find a mounted volume in the group the mount names; else in the one the workload is made in, then in the caller's
    others. What comes with the workload counts as if it were there."""
    own = replace(caller, chosen=mount.group or caller.group)
    try:
        return lookup.volume(tx, own, mount.volume)
    except NotFound:
        if new := coming.volumes.get((own.group, mount.volume)):
            return new
        if mount.group is not None:
            raise
    try:
        return lookup.volume(tx, caller, mount.volume, to_mount=True)
    except NotFound:
        others = [coming.volumes.get((group, mount.volume)) for group in caller.where(Verb.get, Kind.Volume)]
        if new := next(filter(None, others), None):
            return new
        raise


async def literal(db: Database, engine: Engine, caller: Caller, name: str, verb: Verb = Verb.get) -> Volume | None:
    """Find a claim of the cluster by its own name, for whom it was given to; one that is nobody's is for admins.
    Another user's volume is not found, whatever the cluster says of it."""
    parts = lookup.LITERAL.match(name)
    ours: Volume | None = await db.read(lambda tx: tx.volumes.get(parts[2])) if parts else None
    if ours is not None and ours.object_name == name:
        return None
    if not isinstance(engine, HasCluster):
        return None
    found = await engine.existing_claim(name, caller.user, caller.group)
    return found if found and caller.rights.may(verb, Kind.Volume, found.group) else None


def _problem(path: str, volume: Found, task: Task, lost: Mapping[str, str | None]) -> Problem | None:
    if isinstance(volume, PenstockError):
        hint = volume.hint or "penstock volumes list shows yours"
        return task.problem(volume.message, "volumes", path, hint=hint)
    if volume.id in lost:
        return task.problem(f"volume {volume.name} is Lost: {lost[volume.id]}", "volumes", path)
    if task.spec.nodes > 1 and not volume.many_nodes:
        modes = ", ".join(volume.access_modes)
        said = f"volume {volume.name} is {modes}; {task.spec.nodes} nodes need ReadWriteMany"
        hint = "penstock volumes create NAME SIZE --access-modes ReadWriteMany"
        return task.problem(said, "volumes", path, hint=hint)
    return None


def _elsewhere(task: Task, found: Mapping[str, Found]) -> list[Problem]:
    """Return a problem for each mount whose volume is on another storage than the mount says: that is another
    volume."""
    problems = []
    for mount in task.spec.mounts:
        volume = found[mount.path]
        if not isinstance(volume, Volume) or mount.storage in (None, EVERYTHING, volume.storage):
            continue
        said = f"volume {volume.name} is there, on {volume.storage or volume.storage_class} and not on {mount.storage}"
        problems.append(task.problem(said, "volumes", mount.path, hint="name that storage, or another volume"))
    return problems


def _not_theirs_to_write(caller: Caller, task: Task, found: Mapping[str, Found]) -> list[Problem]:
    """Return a problem for each mount that the caller may not write to. Who sees a volume may mount it to read; to
    write, one changes that group's volumes or runs jobs in it."""
    problems = []
    for mount in task.spec.mounts:
        volume = found[mount.path]
        if mount.read_only or not isinstance(volume, Volume) or volume.read_only:
            continue
        if may_write(caller.rights, volume.group):
            continue
        said = f"volume {volume.name} belongs to group {volume.group}, where you may not write to volumes"
        hint = f"mount it read-only; to write you need 'upload' on Volume in group {volume.group}"
        problems.append(task.problem(said, "volumes", mount.path, hint=hint))
    return problems


def may_write(rights: Rights, group: str) -> bool:
    changes, runs = (Verb.update, Kind.Volume), (Verb.create, Kind.Workload)
    return any(rights.may(*right, group) for right in (changes, runs))


def awaited_by(
    tx: Store, caller: Caller, task: Task, given: Sequence[str], coming: UpcomingObjects
) -> tuple[dict[str, Workload], list[Problem]]:
    """Return the workloads that a task and the command line (`given`) name in `after`, by id, and every mistake."""
    found: dict[str, Workload] = {}
    problems = []
    for ref in (*task.spec.after, *given):
        try:
            other = coming.workloads.get((caller.group, ref)) or _awaited(tx, caller, ref)
            found[other.id] = other
        except (NotFound, Ambiguous) as error:
            hint = error.hint or "penstock jobs list shows yours"
            given_here = Problem(error.message, field="--after", hint=hint)
            mine = ref in task.spec.after
            problems.append(task.problem(error.message, "after", hint=hint) if mine else given_here)
    return found, problems


def _awaited(tx: Store, caller: Caller, ref: str) -> Workload:
    """Find a workload by id; or by name the one that is alive, else the newest that ended. What the caller may not see
    is not there."""
    seen = caller.rights.may(Verb.get, Kind.Workload, caller.group)
    found = tx.workloads.find(ref, caller.group) if seen else []
    if len([each for each in found if not each.ended]) > 1:
        return lookup.workload(tx, caller, ref)  # which says so
    if not found:
        raise NotFound(f"Task {shorten(ref)} not found")
    return found[0]


PREFIX = "claim/"


def literal_id(claim: str) -> str:
    return f"{PREFIX}{claim}"


def claim_of(volume_id: str) -> str | None:
    """Return the claim's own name, or None for a volume that has a record."""
    return volume_id.removeprefix(PREFIX) if volume_id.startswith(PREFIX) else None


async def mounted_volumes(db: Database, engine: Engine, workload: Workload) -> dict[str, Volume | None]:
    """Return the volumes that a workload mounts, by mount path; None is gone."""
    ids = workload.volume_ids
    found = await db.read(lambda tx: {path: tx.volumes.get(id_) for path, id_ in ids.items()}) if ids else {}
    for path, id_ in ids.items():
        if (claim := claim_of(id_)) and isinstance(engine, HasCluster):
            found[path] = await engine.existing_claim(claim, workload.user, workload.group)
    return found


def is_mountable(tx: Store, volume_id: str) -> bool:
    """Is the volume there and not being deleted? A claim of the cluster has no record to say so."""
    if claim_of(volume_id):
        return True
    volume = tx.volumes.get(volume_id)
    return volume is not None and volume.phase is not Phase.Deleting


def is_literal(volume: Volume) -> bool:
    """Is it a claim without a record? A volume that was found again under a name that is taken has a claim of another
    name, too."""
    return volume.claim == volume.id
