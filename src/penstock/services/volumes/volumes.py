"""Create, list, resize and delete volumes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from penstock.domain.policy import EVERYTHING, Kind, Verb
from penstock.domain.quantities import show_bytes
from penstock.domain.users import Caller, Group
from penstock.domain.volumes import Phase, Storage, StorageClass, StorageKind, Volume
from penstock.domain.workloads import Workload
from penstock.engines.base import Engine, HasCluster, HasHosts, SeesVolumeUsers, VolumeReport, namespace_of
from penstock.engines.shared.disk import disk_of
from penstock.errors import InUse, Invalid, PenstockError, Problem, Unavailable
from penstock.services import audit, lookup
from penstock.services.idempotency import KeyedRequest
from penstock.services.infrastructure import Infrastructure
from penstock.services.people.accounts import account_of
from penstock.services.volumes.provision import Provisioner
from penstock.services.volumes.quota import VolumeQuota
from penstock.services.volumes.request import class_of, larger_volume, new_volume, no_directories
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire.requests import NewVolume
from penstock.wire.volumes import VolumeUse, VolumeView

UNSAID = "1Gi"
"""The size of a volume that must have one and was given none."""


class Volumes:
    def __init__(self, db: Database, engine: Engine, settings: Settings, infrastructure: Infrastructure) -> None:
        self._db = db
        self._engine = engine
        self._infrastructure = infrastructure
        self._settings = settings
        self._provisioner = Provisioner(db, engine)
        self._quota = VolumeQuota()

    async def recover(self) -> None:
        """Finish creations and deletions that a crash interrupted."""
        await self._provisioner.recover()

    async def close(self) -> None:
        await self._provisioner.close()

    async def create(self, caller: Caller, asked: NewVolume, key: str | None = None) -> VolumeView:
        return await self.add(caller, await self.plan(caller, asked), asked, key)

    async def plan(self, caller: Caller, asked: NewVolume, coming: Sequence[Storage] = ()) -> Volume:
        """Check a request and write nothing. `coming` are storages that are about to be registered."""
        caller.require(Verb.create, Kind.Volume)
        return await self.wanted(caller, asked, coming)

    async def wanted(self, caller: Caller, asked: NewVolume, coming: Sequence[Storage] = ()) -> Volume:
        """Plan a volume for whoever may have it anyway, as the owner of a workload its home."""
        classes = await self._engine.storage_classes()
        if asked.storage == EVERYTHING:
            asked, storage = self._anywhere(caller, asked)
        else:
            storage = self._storage(caller, asked.storage, coming)
        in_cluster = isinstance(self._engine, HasCluster)
        if in_cluster and storage and storage.shared and asked.sub_path not in (None, asked.name):
            raise no_directories(storage)
        if storage and not isinstance(self._engine, HasHosts):
            asked = asked.model_copy(update={"storage_class": class_of(storage, classes)})
        return new_volume(caller, asked, classes, storage)

    def _anywhere(self, caller: Caller, asked: NewVolume) -> tuple[NewVolume, Storage | None]:
        """Put a volume on the disk of the node that uses it first. On one machine, or in a cluster that has other
        places for volumes, that is known now."""
        if isinstance(self._engine, HasHosts):
            return asked, Storage(name=EVERYTHING, group=caller.group, kind=StorageKind.local)
        if here := self._infrastructure.here():
            return asked.model_copy(update={"storage": here.name}), here
        return asked.model_copy(update={"storage": None, "size": asked.size or UNSAID}), None

    def _storage(self, caller: Caller, name: str | None, coming: Sequence[Storage]) -> Storage | None:
        """Return a storage; NotFound where it is not there, or not the caller's to use."""
        if name is None:
            return None
        return next((each for each in coming if each.name == name), None) or self._infrastructure.storage(caller, name)

    async def add(self, caller: Caller, volume: Volume, asked: NewVolume, key: str | None = None) -> VolumeView:
        account = account_of(caller, self._settings)
        request = KeyedRequest(caller, key, Kind.Volume, asked.model_dump_json().encode())

        def add(tx: Store) -> Volume | None:
            before = request.made_before(tx)
            if before:
                known: Volume | None = tx.volumes.get(before)
                if known is None or known.phase is Phase.Deleting:
                    raise request.gone(before)
                return known
            disk_of(self._settings).refuse_new_work()
            if problems := self._quota.problems(tx, volume):
                raise Invalid("The volume cannot be created.", problems=problems)
            tx.volumes.add(volume, account)
            audit.note_of(tx, caller, Verb.create, volume)
            request.remember(tx, volume.id)
            return None

        self._provisioner.unmade.add(volume.id)
        try:
            known = await self._db.write(add)
        except BaseException:
            self._provisioner.unmade.discard(volume.id)
            raise
        if known is None:
            made, report = await self._make_or_forget(caller, volume, request)
        else:
            self._provisioner.unmade.discard(volume.id)
            pending = known.phase is Phase.Pending
            made, report = await (self._provisioner.make(known) if pending else self._ask(known))
        view = self._view(made, report)
        return view.model_copy(update={"notices": self._notices(made, report)})

    async def _make_or_forget(
        self, caller: Caller, volume: Volume, request: KeyedRequest
    ) -> tuple[Volume, VolumeReport | None]:
        """Make a volume that is in the store; if that fails, take it out of it."""
        try:
            return await self._provisioner.make(volume)
        except BaseException as error:
            why = error.message if isinstance(error, PenstockError) else None

            def forget(tx: Store) -> None:
                tx.volumes.remove(volume.id)
                request.forget(tx)
                audit.note_of(tx, caller, Verb.create, volume, why, result=audit.FAILED)

            await self._db.write(forget)
            raise

    async def _ask(self, volume: Volume) -> tuple[Volume, VolumeReport | None]:
        return volume, (await self._reports([volume])).get(volume.id)

    def _notices(self, volume: Volume, report: VolumeReport | None) -> tuple[str, ...]:
        if self._engine.enforces_sizes or not volume.size_bytes:
            return ()
        free = report.free_bytes if report else None
        said = ["This engine counts what a volume holds but does not enforce its size."]
        if free is not None and free < volume.size_bytes:
            said.insert(0, f"The disk has {show_bytes(free)} free, less than the {volume.size} asked for.")
        return tuple(said)

    async def page(
        self,
        caller: Caller,
        *,
        everyone: bool = False,
        name: str | None = None,
        phases: Sequence[Phase] | None = None,
        usage: bool = False,
        limit: int,
        cursor: str | None,
    ) -> tuple[list[VolumeView], str | None]:
        """List volumes. Only the engine knows which are Lost, so a page is filled from the store until it is full."""
        groups = None if everyone else caller.listed(Kind.Volume)
        views: list[VolumeView] = []
        while True:
            wanted = limit - len(views)
            found, cursor = await self._db.read(partial(_page, groups, name, wanted, cursor))
            views += [view for view in await self._views(found, usage) if not phases or view.status in phases]
            if cursor is None or len(views) == limit:
                return views, cursor

    async def get(self, caller: Caller, ref: str, *, usage: bool = False) -> VolumeView:
        def look(tx: Store) -> tuple[Volume, tuple[VolumeUse, ...]]:
            volume = lookup.volume(tx, caller, ref)
            return volume, _uses(caller, tx.workloads.using(volume.id))

        return await self._whole(*await self._db.read(look), usage)

    async def _whole(self, volume: Volume, used_by: Sequence[VolumeUse], usage: bool = False) -> VolumeView:
        view = (await self._views([volume], usage))[0]
        return view.model_copy(update={"used_by": (*used_by, *await self._others_using(volume))})

    async def _others_using(self, volume: Volume) -> list[VolumeUse]:
        try:
            return [VolumeUse(id="", name=name, status="running") for name in await self._users_outside(volume)]
        except Unavailable:
            return []

    async def _users_outside(self, volume: Volume) -> list[str]:
        return await self._engine.volume_users(volume) if isinstance(self._engine, SeesVolumeUsers) else []

    async def _reports(self, volumes: Sequence[Volume]) -> dict[str, VolumeReport]:
        unmade = self._provisioner.unmade
        settled = [v for v in volumes if v.phase is not Phase.Deleting and v.id not in unmade]
        try:
            return await self._engine.volume_reports(settled) if settled else {}
        except Unavailable as error:
            unsure = f"as it was last known: {error.message}"
            return {v.id: VolumeReport(phase=v.phase, message=v.message or unsure) for v in settled}

    async def _views(self, volumes: Sequence[Volume], usage: bool) -> list[VolumeView]:
        reports = await self._reports(volumes)
        views = [self._view(volume, reports.get(volume.id), usage) for volume in volumes]
        if usage:
            return list(await asyncio.gather(*map(self._with_usage, volumes, views)))
        return views

    def _view(self, volume: Volume, report: VolumeReport | None, usage: bool = False) -> VolumeView:
        """Show it with the engine's word: a volume whose data is gone is Lost, whatever the record says."""
        view = VolumeView.of(volume, namespace=namespace_of(self._engine, volume.user, volume.group))
        return view.model_copy(update=_seen(volume, report, usage) if report else {})

    async def _with_usage(self, volume: Volume, view: VolumeView) -> VolumeView:
        if view.status is not Phase.Bound:
            return view
        try:
            used = await self._engine.volume_usage(volume)
            report = (await self._engine.volume_reports([volume])).get(volume.id)  # it may have looked at the disk
            return view.model_copy(update={"used_bytes": used, "free_bytes": report.free_bytes if report else None})
        except Unavailable as error:
            return view.model_copy(update={"not_measured": error.message})

    async def beyond_limits(self, volumes: Sequence[Volume], groups: Mapping[str, Group]) -> list[list[Problem]]:
        """Return for each volume what forbids it, if all before it are made; `groups` as they are about to be."""

        def look(tx: Store) -> list[list[Problem]]:
            return [
                self._quota.problems(tx, volume, volumes[:number], groups.get(volume.group))
                for number, volume in enumerate(volumes)
            ]

        return await self._db.read(look)

    async def larger(self, volume: Volume, size: str) -> Volume:
        """Return the volume as `resize` would make it; whether that is too much is asked of `beyond_limits`."""
        return larger_volume(volume, size, await self._engine.storage_classes())

    async def resize(self, caller: Caller, ref: str, size: str) -> VolumeView:
        """Make a volume larger, first in the engine: if the record is not written any more, asking again does the same
        once more."""
        volume = await self._db.read(lambda tx: lookup.volume(tx, caller, ref, Verb.update))
        larger = larger_volume(volume, size, await self._engine.storage_classes())

        def update(tx: Store) -> tuple[Volume, tuple[VolumeUse, ...]]:
            known = lookup.volume(tx, caller, volume.id, Verb.update)
            resized = known.model_copy(update={"size": larger.size, "size_bytes": larger.size_bytes})
            if resized != known:
                tx.volumes.update(resized)
                audit.note_of(tx, caller, Verb.update, known, f"{known.size} to {larger.size}")
            return resized, _uses(caller, tx.workloads.using(known.id))

        if larger is volume:
            return await self._whole(*await self._db.write(update))

        if problems := await self._db.write(lambda tx: self._quota.grow(tx, larger)):
            raise Invalid(f"Volume {volume.name} cannot be resized.", problems=problems)
        try:
            if isinstance(self._engine, HasCluster):
                await self._engine.resize_volume(larger)
            resized = await self._db.write(update)
        finally:
            self._quota.grown(larger)
        return await self._whole(*resized)

    async def delete(self, caller: Caller, ref: str) -> Volume:
        """Delete a volume. It is marked first, so that nothing new can use it, then its data is destroyed, then its
        record."""
        volume = await self._db.read(lambda tx: lookup.volume(tx, caller, ref, Verb.delete))
        others = await self._users_outside(volume)

        def mark(tx: Store) -> Volume:
            found = lookup.volume(tx, caller, volume.id, Verb.delete)
            users = tx.workloads.using(found.id)
            if users:
                raise _in_use(found, _uses(caller, users))
            if others:
                named = ", ".join(others[:10])
                raise InUse(f"Volume {found.name} is in use by {named}.", hint="End what uses it, then try again.")
            marked = found.model_copy(update={"phase": Phase.Deleting})
            tx.volumes.update(marked)
            audit.note_of(tx, caller, Verb.delete, marked)
            return marked

        marked = await self._db.write(mark)
        try:
            await self._provisioner.destroy(marked)
        except Unavailable as error:
            return marked.model_copy(update={"message": f"it is deleted as soon as that works: {error.message}"})
        return marked.model_copy(update={"message": None})

    async def claims(self, caller: Caller) -> dict[str, str]:
        """Return the names in the cluster of the volumes of the caller's group; nothing where there is no cluster."""
        if not isinstance(self._engine, HasCluster) or not caller.rights.may(Verb.get, Kind.Volume, caller.group):
            return {}
        volumes = await self._db.read(lambda tx: tx.volumes.of_group(caller.group))
        return {volume.name: volume.object_name for volume in volumes}

    async def classes(self) -> list[StorageClass]:
        return await self._engine.storage_classes()


def _seen(volume: Volume, report: VolumeReport, usage: bool) -> dict[str, Any]:
    seen = {"status": report.phase, "message": report.message or volume.message}
    return seen | {"free_bytes": report.free_bytes} if usage else seen


def _uses(caller: Caller, workloads: Sequence[Workload]) -> tuple[VolumeUse, ...]:
    """Name the workloads that use a volume; those of groups that are not the caller's are counted."""
    theirs = [each for each in workloads if caller.rights.may(Verb.get, Kind.Workload, each.group)]
    uses = [VolumeUse(id=each.id, name=each.name, status=each.status) for each in theirs]
    if others := len(workloads) - len(theirs):
        said = f"{others} workload{'s' if others > 1 else ''} of other groups"
        uses.append(VolumeUse(id="", name=said, status="active"))
    return tuple(uses)


def _in_use(volume: Volume, uses: Sequence[VolumeUse]) -> InUse:
    named = ", ".join(f"{use.name} ({use.id}, {use.status})" if use.id else use.name for use in uses[:10])
    stop = " ".join(use.id for use in uses[:10] if use.id)
    hint = f"penstock jobs stop {stop}" if stop else "An admin sees them, and can stop them."
    return InUse(f"Volume {volume.name} is in use by {named}.", hint=hint)


def _page(
    groups: Sequence[str] | None, name: str | None, limit: int, cursor: str | None, tx: Store
) -> tuple[list[Volume], str | None]:
    return tx.volumes.page(groups, name=name, limit=limit, cursor=cursor)
