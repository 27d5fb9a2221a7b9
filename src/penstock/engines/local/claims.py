"""Volumes as directories: `<class directory>/<name>-<id>`, owned by the account whose work uses them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from penstock.domain.users import Account
from penstock.domain.volumes import Phase, StorageClass, Volume
from penstock.engines.base import VolumeReport
from penstock.engines.local.layout import Layout, disk_errors
from penstock.engines.local.supervisor.durable import sync_directory
from penstock.engines.local.supervisor.erase import erase
from penstock.engines.local.supervisor.measuring import measure
from penstock.errors import Invalid
from penstock.settings import Settings

DEFAULT_CLASS = "standard"


class Claims:
    def __init__(self, settings: Settings, layout: Layout) -> None:
        self._roots = {DEFAULT_CLASS: layout.volumes} | {
            name: Path(directory) for name, directory in settings.storage_classes.items()
        }

    def classes(self) -> list[StorageClass]:
        return [
            StorageClass(
                name=name,
                description=f"directories in {root} on this machine; sizes are counted, not enforced",
                default=name == DEFAULT_CLASS,
                free_bytes=_free(root),
                resizable=True,
            )
            for name, root in self._roots.items()
        ]

    def path(self, volume: Volume) -> Path:
        return self._root(volume) / volume.object_name

    def _root(self, volume: Volume) -> Path:
        root = self._roots.get(volume.storage_class)
        if root is None:
            known = ", ".join(self._roots)
            raise Invalid(f"There is no storage class '{volume.storage_class}'.", hint=f"the classes are {known}")
        return root

    def create(self, volume: Volume, account: Account) -> None:
        path = self.path(volume)
        with disk_errors(path):
            path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.geteuid() == 0:
                    os.fchown(fd, account.uid, account.gid)
            finally:
                os.close(fd)
            sync_directory(str(path.parent))

    def delete(self, volume: Volume) -> None:
        """Out of the way first, in one step, so that a half-deleted volume is never mounted; then all of it."""
        path, grave = self.path(volume), self._root(volume) / f".deleted-{volume.id}"
        with disk_errors(path):
            if not path.parent.is_dir():
                return
            erase(str(grave))
            with suppress(FileNotFoundError):
                path.rename(grave)
            sync_directory(str(path.parent))
            erase(str(grave))

    def report(self, volume: Volume) -> VolumeReport:
        root = self._roots.get(volume.storage_class)
        if root is None:
            sentence = f"The storage class '{volume.storage_class}' is no longer in the settings."
            return VolumeReport(phase=Phase.Lost, message=sentence)
        path = root / volume.object_name
        if path.is_dir() and not path.is_symlink():
            return VolumeReport(phase=Phase.Bound)
        return VolumeReport(phase=Phase.Lost, message=f"Its directory {path} is gone.")

    def usage(self, volume: Volume) -> int:
        """Bytes on the disk; a file with several names counts once, other file systems do not."""
        top = self.path(volume)
        with disk_errors(top):
            return measure(top)


def _free(root: Path) -> int | None:
    try:
        about = os.statvfs(root)
    except OSError:
        return None
    return about.f_bavail * about.f_frsize
