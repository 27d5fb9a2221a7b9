"""Volumes: create, list, look at, delete."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from penstock.domain.model import now
from penstock.domain.names import name_problem, new_id, shorten
from penstock.domain.policy import Kind
from penstock.domain.quantities import NotAQuantity, parse_bytes, show_bytes
from penstock.domain.users import Caller
from penstock.domain.volumes import AccessMode, Phase, StorageClass, Volume
from penstock.engines.base import Engine
from penstock.errors import InUse, Invalid, PenstockError, Problem
from penstock.services import lookup, once
from penstock.services.accounts import account_of
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.wire import NewVolume, VolumeUse, VolumeView

log = logging.getLogger(__name__)


class Volumes:
    def __init__(self, db: Database, engine: Engine, settings: Settings) -> None:
        self._db = db
        self._engine = engine
        self._settings = settings

    async def recover(self) -> None:
        """Finishes creations and deletions that a crash interrupted."""
        for volume in await self._db.read(lambda tx: tx.volumes.unfinished()):
            try:
                await (self._destroy(volume) if volume.phase is Phase.Deleting else self._bind(volume))
            except (PenstockError, OSError) as error:
                log.warning("volume %s: %s", volume.id, error)

    async def create(self, caller: Caller, asked: NewVolume, key: str | None = None) -> VolumeView:
        classes = await self._engine.storage_classes()
        volume = _new(caller, asked, classes)
        account = account_of(caller, self._settings)
        body = once.digest(asked.model_dump_json().encode())

        def add(tx: Store) -> Volume | None:
            before = once.made_before(tx, caller.user, key, body, Kind.Volume)
            if before:
                known: Volume | None = tx.volumes.get(before)
                if known:
                    return known
            tx.volumes.add(volume, account)
            once.remember(tx, caller.user, key, body, Kind.Volume, volume.id)
            return None

        made = await self._db.write(add) or volume
        if made.phase is Phase.Pending:
            made = await self._bind(made)
        return VolumeView.of(made, notices=_notices(made, classes))

    async def _bind(self, volume: Volume) -> Volume:
        account = await self._db.read(lambda tx: tx.volumes.account(volume.id))
        if account is None:
            return volume
        try:
            await self._engine.create_volume(volume, account)
        except Exception:
            await self._db.write(lambda tx: tx.volumes.remove(volume.id))
            raise
        bound = volume.model_copy(update={"phase": Phase.Bound})
        await self._db.write(lambda tx: tx.volumes.update(bound))
        return bound

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
        """Whether a volume is Lost only the engine knows: a page is filled from the store until it is full."""
        group = None if everyone else caller.group
        views: list[VolumeView] = []
        while True:
            wanted = limit - len(views)
            found, cursor = await self._db.read(partial(_page, group, name, wanted, cursor))
            views += [view for view in await self._views(found, usage) if not phases or view.status in phases]
            if cursor is None or len(views) == limit:
                return views, cursor

    async def get(self, caller: Caller, ref: str, *, usage: bool = False) -> VolumeView:
        def look(tx: Store) -> tuple[Volume, tuple[VolumeUse, ...]]:
            volume = lookup.volume(tx, caller, ref)
            users = tx.workloads.using(volume.id)
            return volume, tuple(VolumeUse(id=w.id, name=w.name, status=w.status) for w in users)

        volume, used_by = await self._db.read(look)
        view = (await self._views([volume], usage))[0]
        return view.model_copy(update={"used_by": used_by})

    async def _views(self, volumes: Sequence[Volume], usage: bool) -> list[VolumeView]:
        """With the engine's word on each: a volume whose data is gone is Lost, whatever the record says."""
        settled = [volume for volume in volumes if volume.phase is Phase.Bound]
        reports = await self._engine.volume_reports(settled) if settled else {}
        views = []
        for volume in volumes:
            report = reports.get(volume.id)
            seen = {"status": report.phase, "message": report.message} if report else {}
            views.append(VolumeView.of(volume).model_copy(update=seen))
        if usage:
            return list(await asyncio.gather(*map(self._with_usage, volumes, views)))
        return views

    async def _with_usage(self, volume: Volume, view: VolumeView) -> VolumeView:
        if view.status is not Phase.Bound:
            return view
        return view.model_copy(update={"used_bytes": await self._engine.volume_usage(volume)})

    async def delete(self, caller: Caller, ref: str) -> Volume:
        """Marks it first, so that nothing new can use it, then destroys the data, then forgets it."""

        def mark(tx: Store) -> Volume:
            volume = lookup.volume(tx, caller, ref)
            users = tx.workloads.using(volume.id)
            if users:
                named = ", ".join(f"{w.name} ({w.id}, {w.status})" for w in users[:10])
                stop = " ".join(w.id for w in users[:10])
                raise InUse(f"Volume {volume.name} is in use by {named}.", hint=f"penstock jobs stop {stop}")
            marked = volume.model_copy(update={"phase": Phase.Deleting})
            tx.volumes.update(marked)
            return marked

        volume = await self._db.write(mark)
        await self._destroy(volume)
        return volume

    async def _destroy(self, volume: Volume) -> None:
        await self._engine.delete_volume(volume)
        await self._db.write(lambda tx: tx.volumes.remove(volume.id))

    async def classes(self) -> list[StorageClass]:
        return await self._engine.storage_classes()


def _page(
    group: str | None, name: str | None, limit: int, cursor: str | None, tx: Store
) -> tuple[list[Volume], str | None]:
    return tx.volumes.page(group, name=name, limit=limit, cursor=cursor)


def _new(caller: Caller, asked: NewVolume, classes: Sequence[StorageClass]) -> Volume:
    """All that is wrong with the wish, at once; or the volume."""
    problems = [problem for problem in [name_problem(asked.name)] if problem]
    size_bytes = 0
    try:
        size_bytes = parse_bytes(asked.size)
    except NotAQuantity as error:
        problems.append(Problem(str(error), field="size", hint=error.hint))
    default = next(each.name for each in classes if each.default)
    wanted = asked.storage_class or default
    if wanted not in {each.name for each in classes}:
        there = ", ".join(each.name for each in classes)
        problems.append(
            Problem(f"'{shorten(wanted)}' is not a storage class", field="storage_class", hint=f"there are: {there}")
        )
    modes = _modes(asked.access_modes, problems)
    if problems:
        raise Invalid("The volume cannot be created.", problems=problems)
    return Volume(
        id=new_id(),
        name=asked.name,
        group=caller.group,
        user=caller.user,
        size=asked.size,
        size_bytes=size_bytes,
        storage_class=wanted,
        access_modes=modes,
        created_at=now(),
    )


def _modes(asked: Sequence[str] | None, problems: list[Problem]) -> tuple[AccessMode, ...]:
    words = ["ReadWriteOnce"] if asked is None else [word.strip() for word in asked if word.strip()]
    unknown = [word for word in words if word not in AccessMode.__members__]
    if unknown or not words:
        said = f"'{shorten(unknown[0])}' is not an access mode" if unknown else "no access mode is named"
        problems.append(Problem(said, field="access_modes", hint=f"use {', '.join(AccessMode)}"))
        return ()
    return tuple(dict.fromkeys(AccessMode(word) for word in words))


def _notices(volume: Volume, classes: Sequence[StorageClass]) -> tuple[str, ...]:
    said = ["This engine counts what a volume holds but does not enforce its size."]
    free = next((each.free_bytes for each in classes if each.name == volume.storage_class), None)
    if free is not None and free < volume.size_bytes:
        said.insert(0, f"The disk has {show_bytes(free)} free, less than the {volume.size} asked for.")
    return tuple(said)
