"""SQLite's locks and shared memory do not work over a network, and damage shows only later: refuse at once."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import StartRefused

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "coda", "fuse", "gfs2", "glusterfs", "gpfs"}
    | {"lustre", "ocfs2", "beegfs", "orangefs", "pvfs2", "virtiofs", "davfs", "wekafs"}
)
"""As /proc names them. FUSE too, whatever is behind it (`fuse.sshfs`), except what is known to be a local disk."""

LOCAL_FUSE = frozenset({"fuseblk", "fuse.fuse-overlayfs"})

_MOUNTS = Path("/proc/self/mounts")


def refuse_network(directory: Path) -> None:
    """Raises StartRefused where the directory is on a network file system. Other systems than Linux are trusted."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return
    kind = kind_of(directory.resolve(), mounts)
    if kind in LOCAL_FUSE or kind.partition(".")[0] not in NETWORK:
        return
    raise StartRefused(
        f"{directory} is on a network file system ({kind}), where SQLite loses data.",
        hint="Set data_dir to a local disk, or database_url to a PostgreSQL server.",
    )


def kind_of(path: Path, mounts: str) -> str:
    """The file system's kind as the table of mounts gives it: of the deepest mount, and of the last one there."""
    found, depth = "", -1
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        parts = Path(_unescape(point)).parts
        if path.parts[: len(parts)] == parts and len(parts) >= depth:
            found, depth = kind, len(parts)
    return found


def _unescape(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point
