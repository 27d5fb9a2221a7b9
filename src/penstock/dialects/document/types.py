"""The types that documents of each kind are read into, and `metadata`, which all of them have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.dialects.reader import (
    FieldRules,
    Place,
    ReadContext,
    Reader,
    Refusal,
    matching,
    nearest,
    placed,
    read_fields,
)
from penstock.dialects.task.mounts import group, is_reference
from penstock.dialects.task.read import Task
from penstock.dialects.task.runs import job_name
from penstock.dialects.yaml import Node
from penstock.domain.model import Model
from penstock.domain.names import USER
from penstock.domain.nodes import Host
from penstock.domain.policy import EVERYTHING, SHARED_GROUP
from penstock.domain.users import Group, User
from penstock.domain.volumes import AccessMode, Storage, Volume


class WorkloadDocument(NamedTuple):
    task: Task
    name: str
    group: str | None
    """As written; None is the group of whoever applies it."""


class AskedVolume(Model):
    """A volume to be created, as requested; the engine or storage decides what is None."""

    name: str
    storage: str | None = None
    sub_path: str | None = None
    readonly: bool = False
    size: str | None = None
    storage_class: str | None = None
    access_modes: tuple[AccessMode, ...] = ()

    @classmethod
    def of(cls, volume: Volume) -> AskedVolume:
        """Return the request that would make the same volume again; on a storage, modes and class follow from that."""
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
"""The nouns that know their group; a volume's is kept beside it, and users and groups have none."""


class NounDocument(NamedTuple):
    kind: str
    name: str
    group: str | None
    """As written; None is the group of whoever applies it, or the kind has none."""
    noun: Noun
    """Its own group is empty if none was given: `within` sets it."""
    places: Mapping[tuple[str, ...], Place] = {}

    def within(self, group: str) -> Noun:
        if isinstance(self.noun, IN_A_GROUP) and not self.noun.group:
            return self.noun.model_copy(update={"group": group})
        return self.noun

    def place(self, *keys: str) -> Place:
        """Return the place of a key or the nearest above it, for problems found beyond the text."""
        return nearest(self.places, keys) or (None, self.kind)


class DocumentMetadata(NamedTuple):
    name: str | None = None
    group: str | None = None


def metadata(kind: str) -> Reader:
    def read(context: ReadContext, node: Node, path: str) -> DocumentMetadata:
        said = read_fields(context, node, path, SHAPES[kind])
        return DocumentMetadata(said.get("name"), said.get("group"))

    return read


_person = matching(USER.match, "is not a name: letters, digits, '.', '_', '@' and '-', 64 characters at most")
_machine = matching(
    is_reference, "is not a name: lower-case letters, digits, '-' and '.', 253 characters at most", "for example gpu01"
)


def _own_group(context: ReadContext, node: Node, path: str) -> str | None:
    name = _person(context, node, path)
    if name == EVERYTHING:
        context.problem(f"'{EVERYTHING}' stands for all groups", node, path, "choose another name")
    return name


def _group(context: ReadContext, node: Node, path: str) -> str | None:
    context.says(node, path, "group")
    name = group(context, node, path)
    if name == EVERYTHING:
        context.problem(
            f"'{EVERYTHING}' is all groups, and this belongs to one", node, path, f"{SHARED_GROUP} is shared"
        )
    return name


MARKS: dict[str, Refusal] = {
    "labels": ("what is marked is said under spec", "config.labels for a Workload, labels for a Node"),
    "namespace": ("things belong to groups", "write 'group'"),
}
NO_GROUP: dict[str, Refusal] = {
    "Group": ("a group is in no other one", "remove it"),
    "User": ("a user's groups are in spec.groups", "write it there"),
}
NAMES: dict[str, Reader] = {
    "Workload": job_name,
    "Volume": job_name,
    "Storage": _machine,
    "Node": _machine,
    "Group": _own_group,
    "User": _person,
}
EXAMPLES = {
    "Workload": "train",
    "Volume": "ml-data",
    "Storage": "nfs01",
    "Node": "gpu01",
    "Group": "vision",
    "User": "alice",
}
SHAPES = {
    kind: FieldRules(
        {"name": placed(name, "name")} if kind in NO_GROUP else {"name": placed(name, "name"), "group": _group},
        MARKS | {"group": NO_GROUP[kind]} if kind in NO_GROUP else MARKS,
        required={"name": f"for example 'name: {EXAMPLES[kind]}'"},
    )
    for kind, name in NAMES.items()
}
