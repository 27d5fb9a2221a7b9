"""Volumes: places for data, used by name."""

from __future__ import annotations

from enum import StrEnum

from penstock.domain.model import Model, Time
from penstock.domain.policy import EVERYTHING


class AccessMode(StrEnum):
    ReadWriteOnce = "ReadWriteOnce"
    ReadWriteMany = "ReadWriteMany"
    ReadOnlyMany = "ReadOnlyMany"


class Source(StrEnum):
    """Where a volume's data comes from. Shares, scratch and buckets join when their engines can serve them."""

    claim = "claim"


class Phase(StrEnum):
    """Kubernetes' words, true on every engine. Deleting is ours: marked, the data not yet all gone."""

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
    """Where the volumes of PWM come from: an NFS export, or a node's own disk."""

    name: str
    group: str
    kind: StorageKind
    server: str = ""
    path: str = ""
    """The export."""
    node: str = ""
    """Of a local one."""

    @property
    def shared(self) -> bool:
        """Is the same on every node?"""
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
    """As it was asked for."""
    size_bytes: int
    storage_class: str
    access_modes: tuple[AccessMode, ...]
    phase: Phase = Phase.Pending
    message: str | None = None
    made: bool = False
    """The engine had it: if it is not there any more, it is lost, and never made anew."""
    storage: str | None = None
    """The Storage it is on, and the directory there under its group's; None: where its storage class has it. `pwm.all`
    becomes the disk of the node that uses it first."""
    sub_path: str | None = None
    readonly: bool = False
    """Nobody may write, whatever its modes say: a dataset."""
    claim: str | None = None
    """A claim of the cluster that Penstock did not make, mounted by its own name; it has no record."""
    created_at: Time

    @property
    def object_name(self) -> str:
        """What it is called where it really is: the claim, the directory."""
        return self.claim or f"{self.name}-{self.id}"

    @property
    def awaits_node(self) -> bool:
        """It is made on the disk of the node that uses it first, and none has."""
        return self.storage == EVERYTHING

    @property
    def read_only(self) -> bool:
        """Nobody may write unless one of its modes says so."""
        return self.readonly or set(self.access_modes) == {AccessMode.ReadOnlyMany}

    @property
    def many_nodes(self) -> bool:
        """May several nodes of one workload mount it? k8s-cli: only with ReadWriteMany (or all read-only)."""
        return AccessMode.ReadWriteMany in self.access_modes or self.read_only
