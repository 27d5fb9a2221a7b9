"""A launch's volumes as binds. A mount inside a volume never goes through a link that a job left there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from penstock.domain.users import Account
from penstock.domain.volumes import Volume
from penstock.engines.base import BoundMount, Launch
from penstock.engines.local.claims import Claims
from penstock.engines.local.layout import disk_errors
from penstock.engines.local.sandbox import Bind, canonical
from penstock.errors import Conflict, Invalid, Unavailable

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def volume_binds(launch: Launch, claims: Claims) -> list[Bind]:
    """And the places for what is mounted inside them: volumes and scratch."""
    found = [_bind(mount, claims) for mount in launch.mounts]
    for path in (*(mount.path for mount in launch.mounts), *(scratch.path for scratch in launch.spec.scratch)):
        _make_place(path, launch, claims)
    return found


def _bind(mount: BoundMount, claims: Claims) -> Bind:
    source = claims.path(mount.volume)
    try:
        os.close(claims.open(mount.volume))
    except Unavailable as error:
        raise Unavailable(f"The volume '{mount.volume.name}' is lost: its directory {source} is gone.") from error
    option = "--ro-bind" if _is_read_only(mount) else "--bind"
    return Bind(str(source), mount.path, option, below=str(claims.root(mount.volume)))


def _is_read_only(mount: BoundMount) -> bool:
    return mount.read_only or mount.volume.read_only


def _make_place(shown: str, launch: Launch, claims: Claims) -> None:
    """A directory in the volume around it, if there is one. In scratch, which is empty, bubblewrap can make it."""
    path = canonical(shown)
    around: list[tuple[str, BoundMount | None]] = [(canonical(mount.path), mount) for mount in launch.mounts]
    around += [(canonical(scratch.path), None) for scratch in launch.spec.scratch]
    around = [(dest, mount) for dest, mount in around if path.startswith(dest.rstrip("/") + "/")]
    dest, mount = max(around, key=lambda pair: len(pair[0]), default=("", None))
    if mount and _is_read_only(mount):
        _find_inside(claims, mount.volume, path[len(dest) :].strip("/"), shown)
    elif mount:
        _make_inside(claims, mount.volume, path[len(dest) :].strip("/"), launch.account, shown)


def refuse_inside(volumes: Sequence[Bind], others: Sequence[Bind]) -> None:
    """Nothing but volumes and scratch is mounted inside a volume: there is no place for it there."""
    for bind in others:
        for volume in volumes:
            if canonical(bind.dest).startswith(canonical(volume.dest).rstrip("/") + "/"):
                raise Invalid(
                    f"The volume mounted at '{volume.dest}' would cover '{bind.dest}', which the job needs.",
                    hint="mount the volume at another path, such as /data",
                )


def _make_inside(claims: Claims, volume: Volume, relative: str, account: Account, shown: str) -> None:
    _walk(claims, volume, relative, lambda parent, name: _step(parent, name, account, shown))


def _find_inside(claims: Claims, volume: Volume, relative: str, shown: str) -> None:
    """What is read-only stays as it is: the directory must be there."""

    def step(parent: int, name: str) -> int:
        try:
            return _open_directory(parent, name, shown)
        except FileNotFoundError as error:
            raise Conflict(
                f"Nothing can be mounted at '{shown}': the volume '{volume.name}' around it is mounted read-only and "
                f"has no directory {relative}.",
                hint="Make that directory where the volume is mounted to write, or choose another path.",
            ) from error

    _walk(claims, volume, relative, step)


def _walk(claims: Claims, volume: Volume, relative: str, step: Callable[[int, str], int]) -> None:
    fd = claims.open(volume)
    try:
        with disk_errors(claims.path(volume)):
            for part in relative.split("/"):
                inner = step(fd, part)
                os.close(fd)
                fd = inner
    finally:
        os.close(fd)


def _step(parent: int, name: str, account: Account, shown: str) -> int:
    """The directory, made if it is not there and then given to the account: by descriptor, since its owner may put
    something else under that name at any moment."""
    made = True
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        made = False
    fd = _open_directory(parent, name, shown)
    if made and os.geteuid() == 0 and os.fstat(fd).st_uid == 0:
        os.fchown(fd, account.uid, account.gid)
    return fd


def _open_directory(parent: int, name: str, shown: str) -> int:
    try:
        return os.open(name, _OPEN, dir_fd=parent)
    except NotADirectoryError as error:
        raise Conflict(f"The mount path '{shown}' goes through a file or link in the volume around it.") from error
    except OSError as error:
        if error.errno == 40:  # ELOOP: a link
            raise Conflict(f"The mount path '{shown}' goes through a link in the volume around it.") from error
        raise
