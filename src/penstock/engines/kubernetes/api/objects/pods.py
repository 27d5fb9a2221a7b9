"""Pods: what runs, where, with what, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec import field
from msgspec.structs import force_setattr

from penstock.engines.kubernetes.api.objects.base import (
    Condition,
    KubernetesObject,
    ObjectPart,
    ResourceKind,
    ResourceRequirements,
)


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
    """Not None: a claim of its own, named `{pod}-{volume}`."""

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
    """Of a Job: what its pods are made from."""

    spec: PodSpec = PodSpec()


class ContainerStateWaiting(ObjectPart, frozen=True):
    reason: str = ""
    message: str = ""

    one_for_all = ("reason",)


class ContainerStateRunning(ObjectPart, frozen=True):
    started_at: datetime | None = None


class ContainerStateTerminated(ObjectPart, frozen=True):
    exit_code: int = 0
    signal: int = 0
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


class PodStatus(ObjectPart, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    pod_ip: str = field(name="podIP", default="")
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
