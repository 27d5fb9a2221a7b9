"""Choose the mounts of a node: volumes, scratch, and masks over what no job may see.

No job may see the server's data, the other volumes and the server's sockets. Usually nothing that it is shown contains
them. Where something does (a data directory in /opt, an interpreter beside it), an empty directory is put over them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.domain.quantities import show_bytes
from penstock.domain.users import Account
from penstock.domain.workloads import Medium, Scratch, Spec
from penstock.engines.base import BoundMount, Launch
from penstock.engines.local.layout import disk_errors
from penstock.engines.local.spec.identity import Identity
from penstock.engines.local.spec.sandbox import (
    SHARED_MEMORY,
    BindMount,
    MaskMount,
    MemoryMount,
    can_size_memory,
    canonical,
    in_system,
    within,
)
from penstock.engines.local.supervisor.directories import Entry, open_below
from penstock.engines.local.volumes import LocalClaims
from penstock.errors import Conflict, Invalid, Unavailable
from penstock.settings import Settings


def volume_mounts(launch: Launch, claims: LocalClaims) -> list[BindMount]:
    """Return the mounts of volumes, and make the places for what is mounted inside them: volumes and scratch."""
    found = [_bind(mount, claims) for mount in launch.mounts]
    for path in (*(mount.path for mount in launch.mounts), *(scratch.path for scratch in launch.spec.scratch)):
        _make_place(path, launch, claims)
    return found


def _bind(mount: BoundMount, claims: LocalClaims) -> BindMount:
    source = claims.path(mount.volume)
    try:
        os.close(claims.open(mount.volume))
    except Unavailable as error:
        raise Unavailable(f"The volume '{mount.volume.name}' is lost: its directory {source} is gone.") from error
    option = "--ro-bind" if _is_read_only(mount) else "--bind"
    return BindMount(str(source), mount.path, option, below=str(claims.root(mount.volume)))


def _is_read_only(mount: BoundMount) -> bool:
    return mount.read_only or mount.volume.read_only


def _make_place(shown: str, launch: Launch, claims: LocalClaims) -> None:
    """Make a directory for a mount in the volume around it, if there is one. In scratch bubblewrap can make it.

    What is mounted read-only stays as it is: there the directory must exist.
    """
    path = canonical(shown)
    around: list[tuple[str, BoundMount | None]] = [(canonical(mount.path), mount) for mount in launch.mounts]
    around += [(canonical(scratch.path), None) for scratch in launch.spec.scratch]
    around = [(dest, mount) for dest, mount in around if path.startswith(dest.rstrip("/") + "/")]
    dest, mount = max(around, key=lambda pair: len(pair[0]), default=("", None))
    if mount is None:
        return
    account, relative = None if _is_read_only(mount) else launch.account, path[len(dest) :].strip("/")
    fd = claims.open(mount.volume)
    try:
        with disk_errors(claims.path(mount.volume)):
            for name in relative.split("/"):
                try:
                    inner = _open_place(fd, name, account, shown)
                except FileNotFoundError as error:
                    if account:
                        raise
                    raise Conflict(
                        f"Nothing can be mounted at '{shown}': the volume '{mount.volume.name}' around it is mounted "
                        f"read-only and has no directory {relative}.",
                        hint="Make that directory where the volume is mounted to write, or choose another path.",
                    ) from error
                os.close(fd)
                fd = inner
    finally:
        os.close(fd)


def refuse_inside(volumes: Sequence[BindMount], others: Sequence[BindMount]) -> None:
    """Refuse other mounts than volumes and scratch inside a volume: there is no place for them there."""
    for bind in others:
        for volume in volumes:
            if canonical(bind.dest).startswith(canonical(volume.dest).rstrip("/") + "/"):
                raise Invalid(
                    f"The volume mounted at '{volume.dest}' would cover '{bind.dest}', which the job needs.",
                    hint="mount the volume at another path, such as /data",
                )


def _open_place(parent: int, name: str, account: Account | None, shown: str) -> int:
    """Open a directory. With an account it is made where it is not there, and given to the account by descriptor, since
    its owner may put something else under that name at any moment."""
    try:
        fd, made = open_below(parent, name, 0o755 if account else None)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            said = f"The mount path '{shown}' goes through a file or link in the volume around it."
            raise Conflict(said) from error
        raise
    if account and made and os.geteuid() == 0 and os.fstat(fd).st_uid == 0:
        os.fchown(fd, account.uid, account.gid)
    return fd


OWN_DIRECTORIES = {"/tmp": "tmp", "/var/tmp": "vartmp"}  # noqa: S108  (paths inside a job)
"""Directories that every node has on the disk, wherever nothing else is mounted."""


def memory_of_machine() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_size(scratch: Scratch, spec: Spec) -> int:
    """Return the size of scratch in memory as Kubernetes has it: the memory limit, or less if a smaller size is
    named."""
    limit = spec.resources.memory_bytes
    asked = [size for size in (scratch.size_bytes, limit) if size is not None]
    return min(asked) if asked else memory_of_machine() // 2


def disk_entries(spec: Spec) -> list[Entry]:
    shared = [(name, 0o1777, None) for _, name in _own(spec)]
    return [*shared, *((name, _mode(scratch.path), None) for name, scratch in scratch_on_disk(spec))]


def scratch_mounts(spec: Spec, folder: Path) -> list[BindMount]:
    return [
        *(BindMount(str(folder / name), scratch.path) for name, scratch in scratch_on_disk(spec)),
        *(
            MemoryMount(dest=scratch.path, size=memory_size(scratch, spec), mode=_mode(scratch.path))
            for scratch in spec.scratch
            if scratch.medium is Medium.memory
        ),
    ]


def own_mounts(spec: Spec, folder: Path, bwrap: str) -> list[BindMount]:
    """Return the mounts every node has, unless something else is mounted there: /tmp, /var/tmp and /dev/shm."""
    found = [BindMount(str(folder / name), path) for path, name in _own(spec)]
    if SHARED_MEMORY not in _taken(spec):
        found.append(MemoryMount(dest=SHARED_MEMORY, size=_shared_memory(spec, bwrap)))
    return found


def _shared_memory(spec: Spec, bwrap: str) -> int | None:
    """Half the memory limit. Without one it is half the machine's memory, which is the kernel's own default."""
    limit = spec.resources.memory_bytes
    return limit // 2 if limit and can_size_memory(bwrap) else None


def _own(spec: Spec) -> Iterator[tuple[str, str]]:
    return ((path, name) for path, name in OWN_DIRECTORIES.items() if path not in _taken(spec))


def _taken(spec: Spec) -> set[str]:
    return {*(scratch.path for scratch in spec.scratch), *(mount.path for mount in spec.mounts)}


def scratch_on_disk(spec: Spec) -> list[tuple[str, Scratch]]:
    """Return the scratch that is on the disk, each with the name of its directory."""
    return [(f"scratch-{n}", scratch) for n, scratch in enumerate(spec.scratch) if scratch.medium is Medium.disk]


def _mode(path: str) -> int:
    return 0o1777 if path in (*OWN_DIRECTORIES, SHARED_MEMORY) else 0o777


def scratch_variable(path: str) -> str:
    """Return the variable that names the directory where nothing can be mounted."""
    return "PENSTOCK_SCRATCH_" + re.sub(r"[^A-Z0-9]+", "_", path.upper().strip("/"))


def disk_limits(spec: Spec, home: str, workdir: str) -> dict[str, Any] | None:
    """Return the limits the supervisor checks from time to time; None if no size was asked for."""
    sized = {name: scratch for name, scratch in scratch_on_disk(spec) if scratch.size_bytes is not None}
    whole = spec.resources.disk_bytes
    if whole is None and not sized:
        return None
    shown = {"home": home, "workdir": workdir} | {name: path for path, name in _own(spec)}
    shown |= {name: scratch.path for name, scratch in scratch_on_disk(spec)}
    wanted = [name for name in shown if whole is not None or name in sized]
    return {
        "limit": whole,
        "limit_text": show_bytes(whole or 0),
        "folders": [_folder(name, shown[name], sized.get(name)) for name in wanted],
    }


def _folder(name: str, shown: str, sized: Scratch | None) -> dict[str, Any]:
    limit = sized.size_bytes if sized else None
    return {"name": name, "shown": shown, "limit": limit, "limit_text": show_bytes(limit or 0)}


CONTROL_GROUPS = "/sys/fs/cgroup"


def server_directories(settings: Settings) -> list[str]:
    """Return the directories whose contents are the server's alone."""
    return [os.path.realpath(path) for path in (str(settings.data_dir), *settings.storage_classes.values())]


def hidden_paths(settings: Settings, who: Identity) -> list[str]:
    found = [*server_directories(settings), os.path.realpath(settings.system_socket.parent)]
    # Where we may not even look, a job that is no more than we are cannot either.
    return [_within_reach(path, who) for path in found if os.path.isdir(path)]  # noqa: PTH112


def control_groups(own: Sequence[str], version: int) -> list[BindMount]:
    """Show the job's own groups where programs look for the machine's, and no others: their names are the ids of
    jobs."""
    if not os.path.isdir(CONTROL_GROUPS):  # noqa: PTH112
        return []
    if version == 1:
        places = [(path, str(Path(path).parents[1])) for path in own]
        return [
            MaskMount(dest=CONTROL_GROUPS),
            *(bind for path, mount in places for bind in _of_controller(path, mount)),
        ]
    return [BindMount(own[0], CONTROL_GROUPS, "--ro-bind") if own else MaskMount(dest=CONTROL_GROUPS)]


def _of_controller(path: str, mount: str) -> Iterator[BindMount]:
    """Yield every name of a controller: `cpu,cpuacct` is also known as `cpu` and as `cpuacct`."""
    name = Path(mount).name
    for shown in sorted({name, *name.split(",")}):
        yield BindMount(path, f"{CONTROL_GROUPS}/{shown}", "--ro-bind")


def masks(paths: Iterable[str], binds: Sequence[BindMount]) -> list[MaskMount]:
    """Mount an empty directory wherever the job would otherwise see one of the paths."""
    real = [BindMount(_real_source(bind), canonical(bind.dest)) for bind in binds]
    seen = {dest for path in paths for dest in _appearances(path, real)}
    return [MaskMount(dest=dest) for dest in sorted(seen)]


def _real_source(bind: BindMount) -> str:
    """Follow no link below a directory that others may change, as none is followed when it is mounted."""
    if not bind.below:
        return bind.source and os.path.realpath(bind.source)
    return os.path.join(os.path.realpath(bind.below), os.path.relpath(bind.source, bind.below))  # noqa: PTH118


def _appearances(path: str, binds: Sequence[BindMount]) -> Iterator[str]:
    if in_system(path) and not _covered(path, "/", binds):
        yield path
    for bind in binds:
        if bind.source and within(path, bind.source):
            dest = bind.dest + path[len(bind.source) :]
            if not _covered(dest, bind.dest, binds):
                yield dest


def _covered(path: str, shown_by: str, binds: Sequence[BindMount]) -> bool:
    """Is something else mounted over it, further in than what shows it?"""
    return any(within(path, bind.dest) and len(bind.dest) > len(shown_by) for bind in binds)


def _within_reach(path: str, who: Identity) -> str:
    """Return the path, or the directory around it that bubblewrap's account cannot enter: nothing can be put inside
    that."""
    if who.drop is None:
        return path
    parents = reversed(Path(path).parents)
    return next((str(parent) for parent in parents if not _may_enter(parent, who)), path)


def _may_enter(directory: Path, who: Identity) -> bool:
    about = directory.stat()
    groups = who.drop["groups"] if who.drop else []
    if about.st_uid == who.account.uid:
        return bool(about.st_mode & 0o100)
    if about.st_gid == who.account.gid or (isinstance(groups, list) and about.st_gid in groups):
        return bool(about.st_mode & 0o010)
    return bool(about.st_mode & 0o001)
