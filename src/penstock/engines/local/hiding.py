"""What no job may see, wherever it lies: the server's data, the other volumes and the server's sockets.

Usually nothing that a job is shown contains them. Where something does (a data directory in /opt, an interpreter
beside it), an empty directory is put over them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from penstock.engines.local.identity import Identity
from penstock.engines.local.sandbox import Bind, Mask, canonical, in_system, within
from penstock.settings import Settings

CONTROL_GROUPS = "/sys/fs/cgroup"


def private(settings: Settings) -> list[str]:
    """The directories whose contents are the server's alone."""
    return [os.path.realpath(path) for path in (str(settings.data_dir), *settings.storage_classes.values())]


def hidden(settings: Settings, who: Identity) -> list[str]:
    found = [*private(settings), os.path.realpath(settings.system_socket.parent)]
    # Where we may not even look, a job that is no more than we are cannot either.
    return [_within_reach(path, who) for path in found if os.path.isdir(path)]  # noqa: PTH112


def control_groups(own: Sequence[str], version: int) -> list[Bind]:
    """The job's own groups where programs look for the machine's, and no others: their names are the ids of jobs. `own`
    are those it was given; where it was given none it is in the server's."""
    if not os.path.isdir(CONTROL_GROUPS):  # noqa: PTH112
        return []
    if version == 1:
        places = [(path, str(Path(path).parents[1])) for path in own]
        return [Mask(dest=CONTROL_GROUPS), *(bind for path, mount in places for bind in _of_controller(path, mount))]
    path = own[0] if own else _servers_group()
    return [Bind(path, CONTROL_GROUPS, "--ro-bind") if path else Mask(dest=CONTROL_GROUPS)]


def _of_controller(path: str, mount: str) -> Iterator[Bind]:
    """`cpu,cpuacct` is also known as `cpu` and as `cpuacct`."""
    name = Path(mount).name
    for shown in sorted({name, *name.split(",")}):
        yield Bind(path, f"{CONTROL_GROUPS}/{shown}", "--ro-bind")


def _servers_group() -> str | None:
    """If it has limits: what is at the very top has none."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    way = next((line[3:] for line in lines if line.startswith("0::")), "/")
    path = os.path.normpath(f"{CONTROL_GROUPS}/{way}")
    return path if os.path.exists(f"{path}/memory.max") else None  # noqa: PTH110


def masks(paths: Iterable[str], binds: Sequence[Bind]) -> list[Mask]:
    """An empty directory wherever the job would otherwise see one of the paths."""
    real = [Bind(_real_source(bind), canonical(bind.dest)) for bind in binds]
    seen = {dest for path in paths for dest in _appearances(path, real)}
    return [Mask(dest=dest) for dest in sorted(seen)]


def _real_source(bind: Bind) -> str:
    """Below a directory that others may change no link is followed when it is mounted, and so none here."""
    if not bind.below:
        return bind.source and os.path.realpath(bind.source)
    return os.path.join(os.path.realpath(bind.below), os.path.relpath(bind.source, bind.below))  # noqa: PTH118


def _appearances(path: str, binds: Sequence[Bind]) -> Iterator[str]:
    if in_system(path) and not _covered(path, "/", binds):
        yield path
    for bind in binds:
        if bind.source and within(path, bind.source):
            dest = bind.dest + path[len(bind.source) :]
            if not _covered(dest, bind.dest, binds):
                yield dest


def _covered(path: str, shown_by: str, binds: Sequence[Bind]) -> bool:
    """Is something else mounted over it, further in than what shows it?"""
    return any(within(path, bind.dest) and len(bind.dest) > len(shown_by) for bind in binds)


def _within_reach(path: str, who: Identity) -> str:
    """bubblewrap can put nothing inside a directory its account cannot enter; that one itself is hidden then."""
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
