"""A launch's volumes as binds. A mount inside another volume never goes through a link that a job left there."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.domain.users import Account
from penstock.engines.base import BoundMount, Launch
from penstock.engines.local.claims import Claims
from penstock.engines.local.layout import disk_errors
from penstock.engines.local.sandbox import Bind
from penstock.errors import Conflict, Unavailable

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def volume_binds(launch: Launch, claims: Claims) -> list[Bind]:
    return [_bind(mount, launch, claims) for mount in launch.mounts]


def _bind(mount: BoundMount, launch: Launch, claims: Claims) -> Bind:
    source = claims.path(mount.volume)
    if not source.is_dir() or source.is_symlink():
        raise Unavailable(f"The volume '{mount.volume.name}' is lost: its directory {source} is gone.")
    outer = [other for other in launch.mounts if mount.path.startswith(other.path.rstrip("/") + "/")]
    if outer:
        nearest = max(outer, key=lambda other: len(other.path))
        _make_inside(claims.path(nearest.volume), mount.path[len(nearest.path) :], launch.account, mount.path)
    read_only = mount.read_only or mount.volume.read_only
    return Bind(str(source), mount.path, "--ro-bind" if read_only else "--bind")


def _make_inside(volume: Path, relative: str, account: Account, shown: str) -> None:
    fd = os.open(volume, _OPEN)
    try:
        with disk_errors(volume):
            for part in relative.strip("/").split("/"):
                inner = _step(fd, part, account, shown)
                os.close(fd)
                fd = inner
    finally:
        os.close(fd)


def _step(parent: int, name: str, account: Account, shown: str) -> int:
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
        if os.geteuid() == 0:
            os.chown(name, account.uid, account.gid, dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        pass
    try:
        return os.open(name, _OPEN, dir_fd=parent)
    except NotADirectoryError as error:
        raise Conflict(f"The mount path '{shown}' goes through a file or link in the volume around it.") from error
    except OSError as error:
        if error.errno == 40:  # ELOOP: a link
            raise Conflict(f"The mount path '{shown}' goes through a link in the volume around it.") from error
        raise
