"""Put a job's secret values into a Secret of its Job, and check the Secrets a manifest refers to.

The Secret is made right after the Job, with the Job as its owner from the beginning: whatever is cut off between the
two, no Secret is left without a Job, and a start that is repeated makes the one that is missing. Until it is there,
Kubernetes does not start the container.

Whoever names a Secret can read it. Where each user or group has a namespace, those in it are theirs. In a namespace
that all share, a Secret is used only by the groups that somebody with rights in the cluster wrote on it.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Sequence

from penstock.domain.names import shorten
from penstock.domain.workloads import Spec, Workload
from penstock.engines.base import Found, Launch, Refusal, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import AlreadyExists, KubernetesForbidden, KubernetesNotFound
from penstock.engines.kubernetes.api.objects import Job
from penstock.engines.kubernetes.api.resources import Secret
from penstock.engines.kubernetes.namespaces import Namespaces
from penstock.engines.kubernetes.spec import job as jobs
from penstock.engines.kubernetes.spec import pod
from penstock.engines.shared.environment import user_variables
from penstock.engines.shared.records import with_values
from penstock.errors import Conflict

log = logging.getLogger(__name__)

MOST_OWNERS = 1000
"""A Secret has at most so many Jobs as owners; of an array that repeats more indexes it goes with the first of them."""


async def create_secret(api: KubernetesApi, launch: Launch, owners: Sequence[Job], namespace: str) -> None:
    """Create the Secret with the values of a launch; a second time changes nothing."""
    values = {name: value for name, value in user_variables(launch).items() if name in launch.spec.secrets}
    if not values or not owners:
        return
    run = Run(launch.workload_id, launch.attempt)
    name = names.job_name(launch.name, run)
    labels = pod.build_labels(launch, pod.PodIdentity(name))
    metadata = {"name": name, "labels": labels} | jobs.build_owner_patch(*owners[:MOST_OWNERS])["metadata"]
    body = {"metadata": metadata, "type": "Opaque", "immutable": True, "stringData": values}
    try:
        await api.create(Secret, body, namespace)
    except AlreadyExists:
        if not _belongs(await api.get(Secret, name, namespace), owners):
            raise Conflict(
                f"There is a Secret {namespace}/{name} in the cluster that Penstock did not make.",
                hint=f"kubectl delete secret -n {namespace} {name}",
            ) from None


async def restore_values(api: KubernetesApi, cluster: Cluster, found: Found) -> Found:
    """Add to workloads found in the cluster the secret values that are still there."""
    workloads = [await _with_values(api, cluster, each) if each.spec.secrets else each for each in found.workloads]
    return found.model_copy(update={"workloads": tuple(workloads)})


async def _with_values(api: KubernetesApi, cluster: Cluster, workload: Workload) -> Workload:
    run = Run(workload.id, workload.attempt)
    owners = cluster.jobs_of(run)
    there = await _values(api, names.job_name(workload.name, run), owners)
    return with_values(workload, there)


async def _values(api: KubernetesApi, name: str, owners: Sequence[Job]) -> dict[str, str]:
    """Read the values of a Secret that belongs to one of these Jobs: its name alone proves nothing."""
    if not owners:
        return {}
    try:
        found = await api.get(Secret, name, owners[0].namespace)
        if not _belongs(found, owners):
            return {}
        return {key: base64.b64decode(value).decode(errors="surrogateescape") for key, value in found.data.items()}
    except (KubernetesNotFound, KubernetesForbidden, binascii.Error) as error:
        log.warning("the Secret %s cannot be read: %s", name, error)
        return {}


def _belongs(found: Secret, owners: Sequence[Job]) -> bool:
    uids = {job.uid for job in owners}
    return any(owner.kind == Job.kind.name and owner.uid in uids for owner in found.metadata.owner_references)


OF_THE_CLUSTER = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1")
"""Types of Secrets that are never a job's."""
OF_REGISTRIES = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")


class NamedSecrets:
    def __init__(self, api: KubernetesApi, namespaces: Namespaces, for_pulling: tuple[str, ...]) -> None:
        self._api = api
        self._namespaces = namespaces
        self._for_pulling = for_pulling
        """The admin's own, for pulling every pod's image; no job may read them."""

    async def refusals(self, spec: Spec, owner: tuple[str, str]) -> list[Refusal]:
        """Refuse Secrets that are missing or another's; both have the same answer."""
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
        except KubernetesNotFound:
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
