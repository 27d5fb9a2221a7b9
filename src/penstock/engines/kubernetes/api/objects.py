"""Kubernetes objects: what all have in common, pods and Jobs. Fields that are not named are skipped while decoding.

20,000 pods are kept in memory at once, so the types are small: frozen, not followed by the garbage collector, tuples
instead of lists, and words that repeat from object to object (phases, reasons, images, nodes) are one string for all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from urllib.parse import quote

import msgspec
from msgspec import field
from msgspec.structs import force_setattr

FOREIGN_ANNOTATIONS = ("kubectl.kubernetes.io/", "deployment.kubernetes.io/", "volumes.kubernetes.io/controller-")
"""Prefixes of annotations that are not kept: they repeat the object, or are notes among Kubernetes' own parts."""


@dataclass(frozen=True)
class ResourceKind:
    """A kind of object, and where the API has it."""

    name: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The path of all objects, of those of a namespace, or of one. A name that leads elsewhere is a ValueError."""
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

    one_for_all = ("namespace",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in self.labels.items():
            self.labels[name] = sys.intern(value)
        for name in [name for name in self.annotations if name.startswith(FOREIGN_ANNOTATIONS)]:
            del self.annotations[name]


class KubernetesObject(ObjectPart, frozen=True):
    """Any object with metadata; the class itself is for kinds of which only the metadata matter."""

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

    one_for_all = ("kind", "namespace")


class VolumeMount(ObjectPart, frozen=True):
    name: str
    mount_path: str
    read_only: bool = False
    sub_path: str = ""

    one_for_all = ("name", "mount_path")


class Container(ObjectPart, frozen=True):
    name: str
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: tuple[VolumeMount, ...] = ()
    restart_policy: str | None = None
    """`Always` on an init container makes it a sidecar."""

    one_for_all = ("name", "image")


class ClaimSource(ObjectPart, frozen=True):
    claim_name: str
    read_only: bool = False

    one_for_all = ("claim_name",)


class PodVolume(ObjectPart, frozen=True):
    name: str
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, object] | None = None
    """If not None, the volume is a claim of the pod's own, named `{pod}-{volume}`."""

    one_for_all = ("name",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ephemeral:
            self.ephemeral.clear()


class SchedulingGate(ObjectPart, frozen=True):
    name: str

    one_for_all = ("name",)


class SelectorRequirement(ObjectPart, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()

    one_for_all = ("key", "operator")


class NodeSelectorTerm(ObjectPart, frozen=True):
    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(ObjectPart, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(ObjectPart, frozen=True):
    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(ObjectPart, frozen=True):
    node_affinity: NodeAffinity | None = None


class PodSpec(ObjectPart, frozen=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    restart_policy: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    overhead: dict[str, str] | None = None
    active_deadline_seconds: int | None = None

    one_for_all = ("node_name", "restart_policy")


class PodTemplate(ObjectPart, frozen=True):
    """What a Job makes its pods from."""

    spec: PodSpec = PodSpec()


class ContainerStateWaiting(ObjectPart, frozen=True):
    reason: str = ""
    message: str = ""

    one_for_all = ("reason",)


class ContainerStateRunning(ObjectPart, frozen=True):
    started_at: datetime | None = None


class ContainerStateTerminated(ObjectPart, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None

    one_for_all = ("reason",)


class ContainerState(ObjectPart, frozen=True):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


NO_STATE = ContainerState()


class ContainerStatus(ObjectPart, frozen=True):
    name: str
    state: ContainerState = NO_STATE
    last_state: ContainerState = NO_STATE
    restart_count: int = 0
    ready: bool = False

    one_for_all = ("name",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last_state == NO_STATE:
            force_setattr(self, "last_state", NO_STATE)


OVER = ("Succeeded", "Failed")
"""The phases of a pod that has ended."""


class PodStatus(ObjectPart, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    start_time: datetime | None = None
    nominated_node_name: str = ""

    one_for_all = ("phase", "reason")


class Pod(KubernetesObject, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    kind = ResourceKind("Pod", "pods")

    def claims(self) -> Iterator[str]:
        """The names of the claims it mounts, in its own namespace."""
        for volume in self.spec.volumes:
            if volume.persistent_volume_claim:
                yield volume.persistent_volume_claim.claim_name
            elif volume.ephemeral is not None:
                yield f"{self.name}-{volume.name}"

    def container(self, name: str) -> ContainerStatus | None:
        statuses = (*self.status.container_statuses, *self.status.init_container_statuses)
        return next((status for status in statuses if status.name == name), None)


class JobSpec(ObjectPart, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    template: PodTemplate = PodTemplate()

    one_for_all = ("completion_mode",)


class JobStatus(ObjectPart, frozen=True):
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Job(KubernetesObject, frozen=True):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    kind = ResourceKind("Job", "jobs", "batch")

    @property
    def completions(self) -> int:
        """How many of its pods must succeed: its nodes, or the indexes of an array."""
        return self.spec.completions or 1

    def pod(self) -> Pod:
        """One of its pods as the Job asks for it."""
        return Pod(spec=self.spec.template.spec)
