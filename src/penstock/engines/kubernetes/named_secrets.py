"""Secrets of the cluster that a manifest names: which of them a job may use.

Whoever names a Secret can read it. Where each user or group has a namespace, those in it are theirs. In a namespace
that all share, a Secret is used only by the groups that somebody with rights in the cluster wrote on it.
"""

from __future__ import annotations

from penstock.domain.names import shorten
from penstock.domain.workloads import Spec
from penstock.engines.base import Refusal
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api import Api
from penstock.engines.kubernetes.failures import NotFound
from penstock.engines.kubernetes.namespaces import Namespaces
from penstock.engines.kubernetes.objects import Job, Secret

OF_THE_CLUSTER = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1")
"""Types of Secrets that are never a job's."""
OF_REGISTRIES = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")


class NamedSecrets:
    def __init__(self, api: Api, namespaces: Namespaces, for_pulling: tuple[str, ...]) -> None:
        self._api = api
        self._namespaces = namespaces
        self._for_pulling = for_pulling
        """The admin's own: every pod is pulled with them, and no job reads them."""

    async def refusals(self, spec: Spec, owner: tuple[str, str]) -> list[Refusal]:
        """What is not there and what is another's have the same answer."""
        found: list[Refusal] = []
        known: dict[str, Secret | None] = {}
        for name in dict.fromkeys((*(each.secret for each in spec.from_secrets), *spec.pull_secrets)):
            known[name] = await self._usable(name, owner)
        for each in spec.from_secrets:
            secret = known[each.secret]
            if secret is None:
                found.append(self._not_theirs("from_secrets", each.secret, owner))
            elif each.key is not None and each.key not in secret.data:
                said = f"the Secret '{shorten(each.secret)}' has no key '{shorten(each.key)}'"
                found.append(Refusal(keys=("from_secrets",), message=said))
        for name in spec.pull_secrets:
            secret = known[name]
            if secret is None:
                found.append(self._not_theirs("pull_secrets", name, owner))
            elif secret.type not in OF_REGISTRIES:
                said = f"the Secret '{shorten(name)}' has no credentials of a registry"
                found.append(
                    Refusal(keys=("pull_secrets",), message=said, hint="kubectl create secret docker-registry")
                )
        return found

    async def _usable(self, name: str, owner: tuple[str, str]) -> Secret | None:
        try:
            secret = await self._api.get(Secret, name, self._namespaces.of(*owner))
        except NotFound:
            return None
        made_here = secret.labels.get(names.MANAGED) == names.PENSTOCK or names.TASK_ID in secret.labels
        of_a_job = any(each.kind == Job.kind.name for each in secret.metadata.owner_references)
        if made_here or of_a_job or secret.type in OF_THE_CLUSTER:
            return None
        own = self._namespaces.scope is None and name not in self._for_pulling
        return secret if own or names.is_for(owner[1], secret) else None

    def _not_theirs(self, key: str, name: str, owner: tuple[str, str]) -> Refusal:
        namespace, group = self._namespaces.of(*owner), owner[1]
        said = f"there is no Secret '{shorten(name)}' in {namespace} that jobs of group {group} may use"
        hint = None
        if self._namespaces.scope:
            hint = (
                f"who has rights in the cluster can allow it: kubectl annotate secret -n {namespace} {shorten(name)} "
            )
            hint += f"{names.GROUPS}={group}"
        return Refusal(keys=(key,), message=said, hint=hint)
