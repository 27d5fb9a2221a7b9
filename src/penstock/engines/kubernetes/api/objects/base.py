"""The base of Kubernetes objects: fields that are not named here are skipped while decoding.

20,000 pods are kept in memory at once, so the types are small: frozen, not followed by the garbage collector, tuples
instead of lists, and words that repeat from object to object (phases, reasons, images, nodes) are one string for all.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from urllib.parse import quote

import msgspec
from msgspec.structs import force_setattr

FOREIGN_ANNOTATIONS = ("kubectl.kubernetes.io/", "deployment.kubernetes.io/", "volumes.kubernetes.io/controller-")
"""Annotations that begin so repeat the object or are notes among Kubernetes' own parts: not kept."""


@dataclass(frozen=True)
class ResourceKind:
    """Where a kind is found in the API."""

    name: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """All of them in every namespace, all in one, or one. A name that leads elsewhere is a ValueError."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        place = "" if namespace is None or not self.namespaced else f"/namespaces/{_segment(namespace)}"
        return f"{root}{place}/{self.plural}" + ("" if name is None else f"/{_segment(name)}")


def _segment(name: str) -> str:
    if not name.strip("."):
        raise ValueError(f"'{name}' is no name of an object")
    return quote(name, safe="")


class ObjectPart(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A piece of an object. `one_for_all` names the fields whose words repeat from object to object."""

    one_for_all: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.one_for_all:
            word = getattr(self, name)
            if word:
                force_setattr(self, name, sys.intern(word))


class OwnerReference(ObjectPart, frozen=True):
    kind: str
    name: str
    uid: str
    controller: bool = False

    one_for_all = ("kind", "name", "uid")


class ObjectMeta(ObjectPart, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    generation: int = 0

    one_for_all = ("namespace",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in self.labels.items():
            self.labels[name] = sys.intern(value)
        for name in [name for name in self.annotations if name.startswith(FOREIGN_ANNOTATIONS)]:
            del self.annotations[name]


class KubernetesObject(ObjectPart, frozen=True):
    """Anything with metadata; also what is decoded where only that it exists matters."""

    metadata: ObjectMeta = ObjectMeta()

    kind: ClassVar[ResourceKind]

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations


class Condition(ObjectPart, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None

    one_for_all = ("type", "status", "reason", "message")

    @property
    def true(self) -> bool:
        return self.status == "True"


def condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == type_), None)


class ResourceRequirements(ObjectPart, frozen=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class ObjectReference(ObjectPart, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""

    one_for_all = ("kind", "namespace")
