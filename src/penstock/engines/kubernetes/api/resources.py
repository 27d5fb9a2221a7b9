"""Nodes, storage, events and the other kinds besides pods and Jobs, and amounts as Kubernetes writes them.

An amount (`100m`, `1536Mi`, `1e3`) that cannot be read counts as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache

import msgspec

from penstock.domain.quantities import BINARY, DECIMAL
from penstock.engines.kubernetes.api.objects import (
    Condition,
    KubernetesObject,
    ObjectPart,
    ObjectReference,
    ResourceKind,
    ResourceRequirements,
)


class Taint(ObjectPart, frozen=True):
    key: str
    effect: str = ""
    value: str = ""


class NodeSpec(ObjectPart, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(ObjectPart, frozen=True):
    kubelet_version: str = ""


class NodeAddress(ObjectPart, frozen=True):
    type: str
    address: str


class DaemonEndpoint(ObjectPart, frozen=True):
    port: int = msgspec.field(name="Port", default=0)


class NodeDaemonEndpoints(ObjectPart, frozen=True):
    kubelet_endpoint: DaemonEndpoint = DaemonEndpoint()


class NodeStatus(ObjectPart, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()
    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: NodeDaemonEndpoints = NodeDaemonEndpoints()


class KubernetesNode(KubernetesObject, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    kind = ResourceKind("Node", "nodes", namespaced=False)


class NodeMetrics(KubernetesObject, frozen=True):
    """What a node uses, where a metrics-server says it."""

    usage: dict[str, str] = {}

    kind = ResourceKind("NodeMetrics", "nodes", "metrics.k8s.io", "v1beta1", namespaced=False)


class ClaimSpec(ObjectPart, frozen=True):
    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    resources: ResourceRequirements = ResourceRequirements()


class ClaimStatus(ObjectPart, frozen=True):
    phase: str = ""
    capacity: dict[str, str] = {}


class PersistentVolumeClaim(KubernetesObject, frozen=True):
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    kind = ResourceKind("PersistentVolumeClaim", "persistentvolumeclaims")


class KubernetesStorageClass(KubernetesObject, frozen=True):
    provisioner: str = ""
    reclaim_policy: str = "Delete"
    volume_binding_mode: str = "Immediate"
    allow_volume_expansion: bool = False

    kind = ResourceKind("StorageClass", "storageclasses", "storage.k8s.io", namespaced=False)

    @property
    def default(self) -> bool:
        return self.annotations.get("storageclass.kubernetes.io/is-default-class") == "true"


class EventSeries(ObjectPart, frozen=True):
    count: int = 0
    last_observed_time: datetime | None = None


class KubernetesEvent(KubernetesObject, frozen=True):
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None

    kind = ResourceKind("Event", "events")

    @property
    def last_seen(self) -> datetime | None:
        """When it last happened; older and newer parts of Kubernetes write that in different places."""
        repeated = self.series.last_observed_time if self.series else None
        return repeated or self.last_timestamp or self.event_time or self.metadata.creation_timestamp

    @property
    def order(self) -> tuple[datetime, int]:
        """When it happened; some parts of Kubernetes write whole seconds, so within one the order of writing counts."""
        version = self.metadata.resource_version
        moment = self.last_seen or datetime.min.replace(tzinfo=UTC)
        return moment.replace(microsecond=0), int(version) if version.isdecimal() else 0

    @property
    def times(self) -> int:
        return max(1, self.count, self.series.count if self.series else 0)


class Namespace(KubernetesObject, frozen=True):
    kind = ResourceKind("Namespace", "namespaces", namespaced=False)


class ResourceQuota(KubernetesObject, frozen=True):
    kind = ResourceKind("ResourceQuota", "resourcequotas")


class Service(KubernetesObject, frozen=True):
    kind = ResourceKind("Service", "services")


class Secret(KubernetesObject, frozen=True):
    """Its data are read only of Secrets that Penstock made for a Job."""

    type: str = ""
    data: dict[str, str] = {}

    kind = ResourceKind("Secret", "secrets")


class ServiceAccount(KubernetesObject, frozen=True):
    kind = ResourceKind("ServiceAccount", "serviceaccounts")


class NetworkPolicy(KubernetesObject, frozen=True):
    kind = ResourceKind("NetworkPolicy", "networkpolicies", "networking.k8s.io")


class RoleBinding(KubernetesObject, frozen=True):
    kind = ResourceKind("RoleBinding", "rolebindings", "rbac.authorization.k8s.io")


class UserInfo(ObjectPart, frozen=True):
    username: str = ""


class ReviewStatus(ObjectPart, frozen=True):
    user_info: UserInfo = UserInfo()


class SelfReview(KubernetesObject, frozen=True):
    """The account the API server sees Penstock as."""

    status: ReviewStatus = ReviewStatus()

    kind = ResourceKind("SelfSubjectReview", "selfsubjectreviews", "authentication.k8s.io", namespaced=False)


class LeaseSpec(ObjectPart, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: datetime | None = None
    lease_transitions: int = 0


class Lease(KubernetesObject, frozen=True):
    spec: LeaseSpec = LeaseSpec()

    kind = ResourceKind("Lease", "leases", "coordination.k8s.io")


_SMALL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_FACTORS: dict[str, Decimal] = {unit: Decimal(factor) for unit, factor in (BINARY | DECIMAL).items()} | _SMALL


@lru_cache(4096)
def amount(text: str) -> Decimal:
    number = text.rstrip("KMGTPEikmun") if not text[-1:].isdigit() else text
    try:
        return Decimal(number) * _FACTORS[text[len(number) :]]
    except (InvalidOperation, KeyError):
        return Decimal(0)


def milli(text: str) -> int:
    return int(amount(text) * 1000)


def whole(text: str) -> int:
    """An amount in whole bytes or pieces."""
    return int(amount(text))


def add_amounts(total: dict[str, Decimal], more: Mapping[str, str]) -> None:
    for name, text in more.items():
        total[name] = total.get(name, Decimal(0)) + amount(text)
