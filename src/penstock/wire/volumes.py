"""Answers about volumes and storages."""

from __future__ import annotations

from typing import Any

from penstock.domain.model import Model, Time
from penstock.domain.volumes import AccessMode, Phase, Source, Storage, StorageClass, Volume
from penstock.wire.pages import Page


class VolumeUse(Model):
    id: str
    """Empty for what is not Penstock's, and for what is not the caller's to see."""
    name: str
    status: str


class VolumeView(Model):
    id: str
    name: str
    group: str
    namespace: str
    user: str
    source: Source
    size: str
    size_bytes: int
    storage_class: str
    access_modes: tuple[AccessMode, ...]
    storage: str | None = None
    sub_path: str | None = None
    readonly: bool = False
    status: Phase
    message: str | None = None
    object_name: str
    created_at: Time
    used_bytes: int | None = None
    not_measured: str | None = None
    """Why there is no `used_bytes` although it was asked for."""
    free_bytes: int | None = None
    """What the disk it is on has free, asked for like `used_bytes`; None where that is not known."""
    used_by: tuple[VolumeUse, ...] | None = None
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, volume: Volume, **more: Any) -> VolumeView:
        kept = volume.model_dump(exclude={"phase", "message", "claim", "made"})
        kept |= {"namespace": volume.group, "object_name": volume.object_name, "message": volume.message}
        return cls(**(kept | more), status=volume.phase)


class VolumePage(Page):
    items: tuple[VolumeView, ...]


class StorageClassPage(Page):
    items: tuple[StorageClass, ...]


class StorageView(Storage):
    mount_point: str
    """`server:path`, or the node whose disk it is."""

    @classmethod
    def of(cls, storage: Storage) -> StorageView:
        return cls(**storage.model_dump(), mount_point=storage.mount)


class StoragePage(Page):
    items: tuple[StorageView, ...]
