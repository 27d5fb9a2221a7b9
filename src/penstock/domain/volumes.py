"""Volumes: places for data, used by name, and the storages they are on."""

from __future__ import annotations

from enum import StrEnum

from penstock.domain.model import Model, Time
from penstock.domain.names import shorten
from penstock.domain.policy import EVERYTHING
from penstock.errors import Invalid, Problem


class AccessMode(StrEnum):
    ReadWriteOnce = "ReadWriteOnce"
    ReadWriteMany = "ReadWriteMany"
    ReadOnlyMany = "ReadOnlyMany"


class Source(StrEnum):
    """Where a volume's data comes from: so far always a claim, or what an engine has in its place."""

    claim = "claim"


class Phase(StrEnum):
    """Kubernetes' words, true on every engine. Deleting is ours: marked, but its data is not all gone yet."""

    Pending = "Pending"
    Bound = "Bound"
    Lost = "Lost"
    Deleting = "Deleting"


class StorageClass(Model):
    name: str
    description: str
    default: bool = False
    free_bytes: int | None = None
    resizable: bool = False


class StorageKind(StrEnum):
    nfs = "nfs"
    local = "local"


class Storage(Model):
    """The source of PWM's volumes: an NFS export, or a node's own disk."""

    name: str
    group: str
    kind: StorageKind
    server: str = ""
    path: str = ""
    """The path of the export."""
    node: str = ""
    """The node of a local storage."""

    @property
    def shared(self) -> bool:
        """Is it the same on every node?"""
        return self.kind is StorageKind.nfs

    @property
    def mount(self) -> str:
        return f"{self.server}:{self.path}" if self.kind is StorageKind.nfs else self.node


class Volume(Model):
    id: str
    name: str
    group: str
    user: str
    source: Source = Source.claim
    size: str
    """As the user wrote it."""
    size_bytes: int
    storage_class: str
    access_modes: tuple[AccessMode, ...]
    phase: Phase = Phase.Pending
    message: str | None = None
    made: bool = False
    """The engine has had it: if it is gone, it is lost and never made anew."""
    storage: str | None = None
    """The Storage it is on; None: wherever its storage class puts it. `pwm.all` becomes the disk of the node that uses
    it first."""
    sub_path: str | None = None
    readonly: bool = False
    """Nobody may write, whatever its modes say: a dataset."""
    claim: str | None = None
    """The name of a claim of the cluster that Penstock did not make; it has no record."""
    created_at: Time

    @property
    def object_name(self) -> str:
        """Its name where it really is: the claim, the directory."""
        return self.claim or f"{self.name}-{self.id}"

    @property
    def awaits_node(self) -> bool:
        """Will it be made on the disk of the node that uses it first?"""
        return self.storage == EVERYTHING

    @property
    def read_only(self) -> bool:
        """Is there no access mode that lets anybody write?"""
        return self.readonly or set(self.access_modes) == {AccessMode.ReadOnlyMany}

    @property
    def many_nodes(self) -> bool:
        """May several nodes of one workload mount it? As in k8s-cli only with ReadWriteMany, or if all only read."""
        return AccessMode.ReadWriteMany in self.access_modes or self.read_only


def path_inside(volume: Volume, below: str | None = None) -> str:
    """`group/path`, and nothing that could lead out of the group's directory; `below` is a directory in it."""
    path = volume.sub_path if volume.sub_path is not None else volume.name
    if volume.group in ("", ".", "..") or "/" in volume.group or "," in volume.group:
        raise _not_inside(volume.group, volume.group)
    return "/".join([volume.group, *parts_of(path, volume.group), *(parts_of(below, volume.group) if below else ())])


def parts_of(path: str, group: str) -> list[str]:
    parts = path.split("/")
    if not path.isprintable() or "," in path or any(part in ("", ".", "..") for part in parts):
        raise _not_inside(path, group)
    return parts


def _not_inside(path: str, group: str) -> Invalid:
    said = f"'{shorten(path)}' is not a path inside the directory of {group}"
    problem = Problem(said, field="subPath", hint="for example data/set")
    return Invalid(f"The volume cannot be used: {said}.", problems=[problem])
