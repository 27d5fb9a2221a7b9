"""Objects of which it mostly matters that they are there."""

from __future__ import annotations

from penstock.engines.kubernetes.objects.base import Kind, Object, Part


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
    """That it exists; what is in it is never read."""

    kind = Kind("Secret", "secrets")


class ServiceAccount(Object, frozen=True):
    kind = Kind("ServiceAccount", "serviceaccounts")


class NetworkPolicy(Object, frozen=True):
    kind = Kind("NetworkPolicy", "networkpolicies", "networking.k8s.io")
