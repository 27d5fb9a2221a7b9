"""Describe directories of NFS storages as Docker mounts them, and say why a mount failed."""

from __future__ import annotations

import posixpath
import re

from penstock.domain.names import shorten
from penstock.domain.volumes import Storage
from penstock.engines.docker.api.client import Fields
from penstock.errors import Invalid, Problem

_SERVER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]*[A-Za-z0-9])?\Z|\[[0-9A-Fa-f:.]+\]\Z")


WALK = r"""
cd -P "$1" || exit; top=$1; here=$1; make=$2; shift 2
for part; do
  here=$here/$part
  if [ ! -e "$part" ] && [ ! -L "$part" ]; then
    [ "$make" ] || { echo "there is no directory ${here#"$top"/}, and a read-only mount makes none" >&2; exit 1; }
    mkdir "$part" || exit
  fi
  cd -P "$part" || exit
  [ "$(pwd -P)" = "$here" ] || { echo "$part leads elsewhere" >&2; exit 1; }
done
""".strip()
"""Goes down a path and makes what is missing; a link on the way, which could lead out of the group's directory, is
refused. Its arguments: where to begin, whether to make directories, and the names on the way."""

HOLD = r"""
check() {
  held=$2; cd -P "$1" || exit; here=$1; IFS=/; set -f
  for part in $3; do
    here=$here/$part
    cd -P "$part" || exit
    [ "$(pwd -P)" = "$here" ] || { echo "$part leads elsewhere" >&2; exit 1; }
  done
  [ "$(ls -di .)" = "$(cd "$held" && ls -di .)" ] || { echo "$3 was exchanged while it was mounted" >&2; exit 1; }
}
top=$1; shift
while [ $# -gt 0 ]; do check "$top" "$1" "$2"; shift 2; done
echo held; exec sleep 600
""".strip()
"""Compares each directory that Docker has mounted with what lies at its path on the export, where no link is followed;
then keeps them mounted. Its arguments: where the export is, and in turn where a directory is mounted and its path."""


def nfs_options(storage: Storage, inside: str, *, read_only: bool) -> Fields:
    """Return a directory as Docker's own volume driver wants it; it is mounted when the first container needs it."""
    if not _SERVER.match(storage.server) or not storage.path.startswith("/") or "," in storage.path:
        said = f"'{shorten(storage.mount)}' is not an NFS export"
        raise Invalid(f"The storage {storage.name} cannot be used.", problems=[Problem(said, hint="server:/path")])
    device = posixpath.join(storage.path, inside) if inside else storage.path
    options = f"addr={storage.server.strip('[]')},{'ro' if read_only else 'rw'},nfsvers=4,soft,timeo=100"
    return {"Driver": "local", "DriverOpts": {"type": "nfs", "o": options, "device": f":{device}"}}


_MOUNT = re.compile(r"failed to mount local volume: (?:mount .*, data: [^:]*: )?(.+)$", re.DOTALL)
_MEANINGS = {
    "no such device": "this node's kernel has no NFS client",
    "connection refused": "no NFS server answers there",
    "no such file or directory": "there is no such directory on it",
    "permission denied": "the NFS server does not let this node in",
    "operation not permitted": "the NFS server does not let this node in",
    "connection timed out": "the NFS server does not answer",
}


def mount_words(message: str) -> str:
    """Say why a mount failed, without Docker's paths."""
    found = _MOUNT.search(message)
    said = (found[1] if found else message).strip().rstrip(".")
    return f"{_MEANINGS[said]} ({said})" if said in _MEANINGS else said


def is_about_mounts(message: str) -> bool:
    return "failed to mount local volume" in message
