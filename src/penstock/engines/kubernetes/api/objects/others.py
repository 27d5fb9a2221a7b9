"""Objects of which little more than their existence matters."""

from __future__ import annotations

from datetime import datetime

from penstock.engines.kubernetes.api.objects.base import Kind, Object, Part


class NamespaceStatus(Part, frozen=True):
    phase: str = ""


class Namespace(Object, frozen=True):
    status: NamespaceStatus = NamespaceStatus()

    kind = Kind("Namespace", "namespaces", namespaced=False)


class QuotaStatus(Part, frozen=True):
    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuota(Object, frozen=True):
    status: QuotaStatus = QuotaStatus()

    kind = Kind("ResourceQuota", "resourcequotas")


class Service(Object, frozen=True):
    kind = Kind("Service", "services")


class ConfigMap(Object, frozen=True):
    kind = Kind("ConfigMap", "configmaps")


class Secret(Object, frozen=True):
    """What is in it is read only of those that Penstock made for a Job."""

    type: str = ""
    data: dict[str, str] = {}

    kind = Kind("Secret", "secrets")


class ServiceAccount(Object, frozen=True):
    kind = Kind("ServiceAccount", "serviceaccounts")


class NetworkPolicy(Object, frozen=True):
    kind = Kind("NetworkPolicy", "networkpolicies", "networking.k8s.io")


class RoleBinding(Object, frozen=True):
    kind = Kind("RoleBinding", "rolebindings", "rbac.authorization.k8s.io")


class UserInfo(Part, frozen=True):
    username: str = ""


class ReviewStatus(Part, frozen=True):
    user_info: UserInfo = UserInfo()


class SelfReview(Object, frozen=True):
    """Who the API server takes us for."""

    status: ReviewStatus = ReviewStatus()

    kind = Kind("SelfSubjectReview", "selfsubjectreviews", "authentication.k8s.io", namespaced=False)


class LeaseSpec(Part, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: datetime | None = None
    lease_transitions: int = 0


class Lease(Object, frozen=True):
    spec: LeaseSpec = LeaseSpec()

    kind = Kind("Lease", "leases", "coordination.k8s.io")
