"""Kubernetes objects: what all have in common, pods and Jobs. Fields that are not named are skipped while decoding.

20,000 pods are kept in memory at once, so the garbage collector does not follow them: they have no cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from urllib.parse import quote

import msgspec
from msgspec import field


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
    """A piece of an object."""


class OwnerReference(ObjectPart, frozen=True):
    kind: str
    name: str
    uid: str


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


class VolumeMount(ObjectPart, frozen=True):
    name: str
    mount_path: str


class Container(ObjectPart, frozen=True):
    name: str
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: tuple[VolumeMount, ...] = ()
    restart_policy: str | None = None
    """`Always` on an init container makes it a sidecar."""


class ClaimSource(ObjectPart, frozen=True):
    claim_name: str


class PodVolume(ObjectPart, frozen=True):
    name: str
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, object] | None = None
    """If not None, the volume is a claim of the pod's own, named `{pod}-{volume}`."""


class SchedulingGate(ObjectPart, frozen=True):
    name: str


class SelectorRequirement(ObjectPart, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


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


class PodTemplate(ObjectPart, frozen=True):
    """What a Job makes its pods from."""

    spec: PodSpec = PodSpec()


class ContainerStateWaiting(ObjectPart, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(ObjectPart, frozen=True):
    started_at: datetime | None = None


class ContainerStateTerminated(ObjectPart, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(ObjectPart, frozen=True):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(ObjectPart, frozen=True):
    name: str
    state: ContainerState = ContainerState()


OVER = ("Succeeded", "Failed")
"""The phases of a pod that has ended."""


class PodStatus(ObjectPart, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    nominated_node_name: str = ""


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
        return next((status for status in self.status.container_statuses if status.name == name), None)


class JobSpec(ObjectPart, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    backoff_limit_per_index: int | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(ObjectPart, frozen=True):
    active: int = 0
    terminating: int = 0
    succeeded: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    start_time: datetime | None = None
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
