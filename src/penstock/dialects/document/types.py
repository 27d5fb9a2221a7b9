"""The types that documents of each kind are read into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.dialects.task.checks import Place, nearest
from penstock.dialects.task.read import Task
from penstock.domain.model import Model
from penstock.domain.nodes import Host
from penstock.domain.users import Group, User
from penstock.domain.volumes import AccessMode, Storage, Volume


class WorkloadDocument(NamedTuple):
    task: Task
    name: str
    group: str | None
    """As it was said; None is the group of whoever applies it."""


class AskedVolume(Model):
    """A volume to be made, as it was asked for; what is None is left to where it is made."""

    name: str
    storage: str | None = None
    sub_path: str | None = None
    readonly: bool = False
    size: str | None = None
    storage_class: str | None = None
    access_modes: tuple[AccessMode, ...] = ()

    @classmethod
    def of(cls, volume: Volume) -> AskedVolume:
        """What one would ask for to have the same again; on a storage, modes and class follow from that."""
        on_storage = volume.storage is not None
        return cls(
            name=volume.name,
            storage=volume.storage,
            sub_path=volume.sub_path if volume.sub_path != volume.name else None,
            readonly=volume.readonly,
            size=volume.size or None,
            storage_class=None if on_storage else volume.storage_class or None,
            access_modes=() if on_storage else volume.access_modes,
        )


Noun = AskedVolume | Storage | Host | Group | User
IN_A_GROUP = (Storage, Host)
"""Those that know their group; a volume's stands beside it, and users and groups are in none."""


class NounDocument(NamedTuple):
    kind: str
    name: str
    group: str | None
    """As it was said; None is the group of whoever applies it, or the kind has none."""
    noun: Noun
    """Its own group is empty if none was said: `within` fills it."""
    places: Mapping[tuple[str, ...], Place] = {}

    def within(self, group: str) -> Noun:
        """The noun, in this group if it was said to be in none."""
        if isinstance(self.noun, IN_A_GROUP) and not self.noun.group:
            return self.noun.model_copy(update={"group": group})
        return self.noun

    def place(self, *keys: str) -> Place:
        """Where it says this, or what is nearest above it: for what is wrong beyond the text."""
        return nearest(self.places, keys) or (None, self.kind)
