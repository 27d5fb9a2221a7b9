"""Answers about storages."""

from __future__ import annotations

from penstock.domain.volumes import Storage
from penstock.wire.pages import Page


class StorageView(Storage):
    mount_point: str
    """`server:path`, or the node whose disk it is."""

    @classmethod
    def of(cls, storage: Storage) -> StorageView:
        return cls(**storage.model_dump(), mount_point=storage.mount)


class StoragePage(Page):
    items: tuple[StorageView, ...]
