"""Objects of which little more than their existence matters."""

from __future__ import annotations

from datetime import datetime

from penstock.engines.kubernetes.api.objects.base import KubernetesObject, ObjectPart, ResourceKind


class NamespaceStatus(ObjectPart, frozen=True):
    phase: str = ""


class Namespace(KubernetesObject, frozen=True):
    status: NamespaceStatus = NamespaceStatus()

    kind = ResourceKind("Namespace", "namespaces", namespaced=False)


class QuotaStatus(ObjectPart, frozen=True):
    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuota(KubernetesObject, frozen=True):
    status: QuotaStatus = QuotaStatus()

    kind = ResourceKind("ResourceQuota", "resourcequotas")


class Service(KubernetesObject, frozen=True):
    kind = ResourceKind("Service", "services")


class ConfigMap(KubernetesObject, frozen=True):
    kind = ResourceKind("ConfigMap", "configmaps")


class Secret(KubernetesObject, frozen=True):
    """What is in it is read only of those that Penstock made for a Job."""

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
    """Who the API server takes us for."""

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
