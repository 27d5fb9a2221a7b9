"""Scratch: a directory of the node's own, or a file system in memory, at any path of the job, gone with the node."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.domain.quantities import show_bytes
from penstock.domain.workloads import Medium, Scratch, Spec
from penstock.engines.local.sandbox import SHARED_MEMORY, Bind, Memory, can_size_memory
from penstock.engines.local.supervisor.private import Entry

OWN_DIRECTORIES = {"/tmp": "tmp", "/var/tmp": "vartmp"}  # noqa: S108  (paths inside a job)
"""What every node has on the disk, wherever nothing else is mounted."""


def memory_of_machine() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_size(scratch: Scratch, spec: Spec) -> int:
    """As Kubernetes has it: no larger than the memory limit, and that large if no size is named."""
    limit = spec.resources.memory_bytes
    asked = [size for size in (scratch.size_bytes, limit) if size is not None]
    return min(asked) if asked else memory_of_machine() // 2


def entries(spec: Spec) -> list[Entry]:
    """The directories of a node that are kept on the disk."""
    shared = [(name, 0o1777, None) for _, name in _own(spec)]
    return [*shared, *((name, _mode(scratch.path), None) for name, scratch in on_disk(spec))]


def binds(spec: Spec, folder: Path) -> list[Bind]:
    return [
        *(Bind(str(folder / name), scratch.path) for name, scratch in on_disk(spec)),
        *(
            Memory(dest=scratch.path, size=memory_size(scratch, spec), mode=_mode(scratch.path))
            for scratch in spec.scratch
            if scratch.medium is Medium.memory
        ),
    ]


def own_binds(spec: Spec, folder: Path, bwrap: str) -> list[Bind]:
    """What every node has, unless something else is mounted there: /tmp, /var/tmp and /dev/shm."""
    found = [Bind(str(folder / name), path) for path, name in _own(spec)]
    if SHARED_MEMORY not in _taken(spec):
        found.append(Memory(dest=SHARED_MEMORY, size=_shared_memory(spec, bwrap)))
    return found


def _shared_memory(spec: Spec, bwrap: str) -> int | None:
    """Half the memory limit. Without one it is half the machine's memory, as the kernel has it by itself."""
    limit = spec.resources.memory_bytes
    return limit // 2 if limit and can_size_memory(bwrap) else None


def _own(spec: Spec) -> Iterator[tuple[str, str]]:
    return ((path, name) for path, name in OWN_DIRECTORIES.items() if path not in _taken(spec))


def _taken(spec: Spec) -> set[str]:
    return {*(scratch.path for scratch in spec.scratch), *(mount.path for mount in spec.mounts)}


def on_disk(spec: Spec) -> list[tuple[str, Scratch]]:
    """Each with the name of its directory."""
    return [(f"scratch-{n}", scratch) for n, scratch in enumerate(spec.scratch) if scratch.medium is Medium.disk]


def _mode(path: str) -> int:
    return 0o1777 if path in (*OWN_DIRECTORIES, SHARED_MEMORY) else 0o777


def variable(path: str) -> str:
    """Where nothing can be mounted, a variable says where the directory is."""
    return "PENSTOCK_SCRATCH_" + re.sub(r"[^A-Z0-9]+", "_", path.upper().strip("/"))


def limits(spec: Spec, home: str, workdir: str) -> dict[str, Any] | None:
    """What the supervisor looks at from time to time; None if no size was asked for."""
    sized = {name: scratch for name, scratch in on_disk(spec) if scratch.size_bytes is not None}
    whole = spec.resources.disk_bytes
    if whole is None and not sized:
        return None
    shown = {"home": home, "workdir": workdir} | {name: path for path, name in _own(spec)}
    shown |= {name: scratch.path for name, scratch in on_disk(spec)}
    wanted = [name for name in shown if whole is not None or name in sized]
    return {
        "limit": whole,
        "limit_text": show_bytes(whole or 0),
        "folders": [_folder(name, shown[name], sized.get(name)) for name in wanted],
    }


def _folder(name: str, shown: str, sized: Scratch | None) -> dict[str, Any]:
    limit = sized.size_bytes if sized else None
    return {"name": name, "shown": shown, "limit": limit, "limit_text": show_bytes(limit or 0)}
