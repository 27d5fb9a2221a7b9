"""Choose and prepare the namespace of an object: one for all, or one for each user or group."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cache import find_first
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import AlreadyExists, KubernetesError, KubernetesForbidden
from penstock.engines.kubernetes.api.objects import Job
from penstock.engines.kubernetes.api.resources import (
    Namespace,
    NetworkPolicy,
    ResourceQuota,
    RoleBinding,
    SelfReview,
    ServiceAccount,
)
from penstock.errors import Conflict, PenstockError, StartRefused, Unavailable
from penstock.settings import Settings

ACCOUNT_SECONDS = 30.0
BINDING_LOOKS, BINDING_PAUSE = 100, 0.1
"""How often to ask whether a new right is there, and the seconds between: nothing tells."""
OUTSIDE = {"0.0.0.0/0": ["169.254.0.0/16"], "::/0": ["fe80::/10", "fd00:ec2::254/128"]}
"""All addresses, without those at which clouds give out the credentials of their nodes."""
LONGEST_BASE = 50
RULES = "penstock"
"""The name of the quota, the network policy and the role binding of a namespace."""
RBAC = RoleBinding.kind.group
SERVICE_ACCOUNT = "system:serviceaccount:"


class Namespaces:
    def __init__(self, api: KubernetesApi, settings: Settings) -> None:
        self._api = api
        self._settings = settings
        self.base = settings.kubernetes_namespace or api.namespace
        """The one namespace, or the prefix of all; who holds the Lease in the namespace of that name works in them."""
        if self.scope is None and len(self.base) > LONGEST_BASE:
            raise StartRefused(
                f"kubernetes_namespace {self.base} is too long: names of users are added to it.",
                hint=f"at most {LONGEST_BASE} characters",
            )
        self._ready: dict[str, asyncio.Task[None]] = {}

    @property
    def scope(self) -> str | None:
        """The one namespace of all objects; None if each owner has one."""
        return self.base if self._settings.kubernetes_namespaces == "one" else None

    def of(self, user: str, group: str) -> str:
        match self._settings.kubernetes_namespaces:
            case "one":
                return self.base
            case "user":
                return names.namespace_of(self.base, user)
            case "group":
                return names.namespace_of(self.base, group)

    def are_ours(self, name: str) -> bool:
        """Is it a namespace of Penstock's, by its name? What it holds is still checked."""
        return name == self.base if self.scope else name.startswith(f"{self.base}-")

    async def ready(self, user: str, group: str) -> str:
        """Return the owner's namespace once pods can be made in it; after the first time nothing is asked of the
        cluster."""
        name = self.of(user, group)
        if self.scope:
            return name
        task = self._ready.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._ready[name] = asyncio.create_task(self._make(name, user, group))
        await asyncio.shield(task)
        return name

    def missing(self, name: str, error: KubernetesError) -> PenstockError:
        """Convert the error of a namespace that is gone, after all; the next try makes it anew where it may. With a
        namespace, the right to make anything in it is gone, too."""
        if isinstance(error, KubernetesForbidden) and not self._settings.kubernetes_namespace_role:
            return error.shown()
        self._ready.pop(name, None)
        hint = f"kubectl create namespace {name}" if self.scope else None
        return Unavailable(f"The namespace {name} is not there, or is being deleted.", hint=hint)

    async def close(self) -> None:
        tasks = [task for task in self._ready.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _make(self, name: str, user: str, group: str) -> None:
        try:
            await self._api.create(Namespace, self._namespace(name, user, group))
        except AlreadyExists:
            found = await self._api.get(Namespace, name)
            if found.labels.get(names.MANAGED) != names.PENSTOCK:
                raise Conflict(
                    f"The namespace {name} is there and was not made by Penstock.",
                    hint=f"an admin can hand it over: kubectl label namespace {name} {names.MANAGED}={names.PENSTOCK}",
                ) from None
        if self._settings.kubernetes_namespace_role:
            await self._bind(name, self._settings.kubernetes_namespace_role)
        for kind, rule in self._rules():
            await self._api.apply(kind, rule, name)
        await self._account(name)

    async def _bind(self, name: str, role: str) -> None:
        """Give Penstock's account its rights there; a new binding is known to the API server after a moment."""
        try:
            await self._api.create(
                RoleBinding, build_binding(role, await self._api.create(SelfReview, {"metadata": {}})), name
            )
        except AlreadyExists:
            return
        for _ in range(BINDING_LOOKS):
            if await self._api.may("create", Job, name):
                return
            await asyncio.sleep(BINDING_PAUSE)
        raise Unavailable(f"The ClusterRole {role} gives no right to make Jobs in the namespace {name}.")

    async def _account(self, name: str) -> None:
        """Wait for the namespace's default account, without which pods are refused."""
        try:
            async with asyncio.timeout(ACCOUNT_SECONDS):
                await find_first(self._api, ServiceAccount, name, lambda _: True, fields="metadata.name=default")
        except TimeoutError:
            raise Unavailable(f"The namespace {name} has no default account yet.") from None

    def _namespace(self, name: str, user: str, group: str) -> dict[str, Any]:
        owner = user if self._settings.kubernetes_namespaces == "user" else group
        level = self._settings.kubernetes_pod_security
        labels = {
            names.MANAGED: names.PENSTOCK,
            "pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/warn": level,
        }
        return {"metadata": {"name": name, "labels": labels, "annotations": {names.OWNER: owner}}}

    def _rules(self) -> list[tuple[type[Any], dict[str, Any]]]:
        meta = {"metadata": {"name": RULES, "labels": {names.MANAGED: names.PENSTOCK}}}
        rules: list[tuple[type[Any], dict[str, Any]]] = []
        if self._settings.kubernetes_quota:
            rules.append((ResourceQuota, {**meta, "spec": {"hard": self._settings.kubernetes_quota}}))
        if self._settings.kubernetes_network != "open":
            spec = _network(closed=self._settings.kubernetes_network == "closed")
            rules.append((NetworkPolicy, {**meta, "spec": spec}))
        return rules


def build_binding(role: str, review: SelfReview) -> dict[str, Any]:
    """Build a RoleBinding for the account the API server sees Penstock as."""
    name = review.status.user_info.username
    subject: dict[str, str] = {"kind": "User", "apiGroup": RBAC, "name": name}
    if name.startswith(SERVICE_ACCOUNT):
        namespace, _, account = name.removeprefix(SERVICE_ACCOUNT).partition(":")
        subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    meta = {"name": RULES, "labels": {names.MANAGED: names.PENSTOCK}}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    return {"metadata": meta, "roleRef": reference, "subjects": [subject]}


def _network(*, closed: bool) -> dict[str, Any]:
    """Build the network policy: nothing is allowed but what is named here. DNS is named by its port, since where it
    runs differs from cluster to cluster."""
    here: list[dict[str, Any]] = [{"podSelector": {}}]
    dns = {
        "to": [{"namespaceSelector": {}}],
        "ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")],
    }
    outside = [{"ipBlock": {"cidr": whole, "except": list(without)}} for whole, without in OUTSIDE.items()]
    return {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": here}],
        "egress": [{"to": here}, dns, *([] if closed else [{"to": outside}])],
    }
