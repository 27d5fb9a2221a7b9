"""Volumes as directories `<class directory>/<name>-<id>`, owned by the account whose work uses them.

A volume on a storage whose name a class has is where PWM has it: `<class directory>/<group>/<subPath>`.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from penstock.domain.users import Account
from penstock.domain.volumes import Phase, StorageClass, Volume, path_inside
from penstock.engines.base import VolumeReport
from penstock.engines.local.layout import Layout, disk_errors
from penstock.engines.local.supervisor.directories import erase, measure_directory, open_below
from penstock.engines.shared.files import sync_directory
from penstock.errors import Conflict, Invalid, PenstockError, Unavailable
from penstock.settings import Settings

DEFAULT_CLASS = "standard"


class LocalClaims:
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
        return self.root(volume).joinpath(*self._parts(volume))

    def _parts(self, volume: Volume) -> list[str]:
        return path_inside(volume).split("/") if self._is_on_storage(volume) else [volume.object_name]

    def _is_on_storage(self, volume: Volume) -> bool:
        """Is it where its storage has it? Volumes from before there was such a place stay where they were made."""
        named = volume.storage is not None and volume.storage == volume.storage_class
        return named and not (self.root(volume) / volume.object_name).is_dir()

    def root(self, volume: Volume) -> Path:
        """Return the directory of its class, which belongs to the admin; below it a job may exchange anything."""
        root = self._roots.get(volume.storage_class)
        if root is None:
            known = ", ".join(self._roots)
            raise Invalid(f"There is no storage class '{volume.storage_class}'.", hint=f"the classes are {known}")
        return root

    def open(self, volume: Volume) -> int:
        """Open its directory. No link on the way is followed: it could lead out of the directory of its group."""
        root = self.root(volume)
        with disk_errors(root):
            fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for part in self._parts(volume):
                fd, _ = _below(fd, part, volume)
        return fd

    def create(self, volume: Volume, account: Account) -> None:
        """Make its directory. One that exists on a storage is taken as it is, unless a crash left it before it had its
        owner."""
        root, (*way, last) = self.root(volume), self._parts(volume)
        with disk_errors(root):
            root.mkdir(mode=0o711, parents=True, exist_ok=True)
            fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for part in way:
                fd, _ = _below(fd, part, volume, make=0o711)
            fd, new = _below(fd, last, volume, make=0o755 if volume.readonly else 0o700)
            try:
                half_made = os.fstat(fd).st_uid == 0 and not os.listdir(fd)  # noqa: PTH208  (by descriptor)
                if os.geteuid() == 0 and (new or half_made or not way):
                    os.fchown(fd, account.uid, account.gid)
            finally:
                os.close(fd)

    def delete(self, volume: Volume) -> None:
        """Move the directory away in one step, so that a half-deleted volume is never mounted; then erase it. What is
        on a storage stays: it may have been there before, and others may have it, too."""
        path, grave = self.root(volume) / volume.object_name, self.root(volume) / f".deleted-{volume.id}"
        with disk_errors(path):
            if not path.parent.is_dir():
                return
            erase(str(grave))
            with suppress(FileNotFoundError):
                path.rename(grave)
            sync_directory(str(path.parent))
            erase(str(grave))

    def report(self, volume: Volume) -> VolumeReport:
        if volume.storage_class not in self._roots:
            sentence = f"The storage class '{volume.storage_class}' is no longer in the settings."
            return VolumeReport(phase=Phase.Lost, message=sentence)
        try:
            os.close(self.open(volume))
        except PenstockError as error:
            return VolumeReport(phase=Phase.Lost, message=error.message)
        return VolumeReport(phase=Phase.Bound, free_bytes=_free(self.root(volume)))

    def usage(self, volume: Volume) -> int:
        """Return the bytes on the disk; a file with several names counts once, other file systems do not."""
        with disk_errors(self.path(volume)):
            return measure_directory(self.open(volume))


def _below(parent: int, name: str, volume: Volume, make: int | None = None) -> tuple[int, bool]:
    """Open a directory, made with a mode if it was not there; return whether it is new. The one around it is closed."""
    try:
        fd, new = open_below(parent, name, make)
        if new and make is not None:  # whatever the umask is
            os.fsync(parent)
            os.fchmod(fd, make)
        return fd, new
    except FileNotFoundError as error:
        raise Unavailable(f"The directory {_path_of(parent) / name} is gone.") from error
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        said = f"The path of volume {volume.name} leads through a link or file: {_path_of(parent) / name}."
        raise Conflict(said) from error
    finally:
        os.close(parent)


def _path_of(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()


def _free(root: Path) -> int | None:
    try:
        about = os.statvfs(root)
    except OSError:
        return None
    return about.f_bavail * about.f_frsize
