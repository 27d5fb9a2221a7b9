"""Values of `secrets`: they are in a Secret that belongs to the Job, and nowhere else in the cluster.

The Secret is made right after the Job, with the Job as its owner from the beginning: whatever is cut off between the
two, no Secret is left without a Job, and a start that is repeated makes the one that is missing. Until it is there,
Kubernetes does not start the container.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Sequence

from penstock.domain.workloads import Workload
from penstock.engines.base import Found, Launch, Run
from penstock.engines.kubernetes import jobs, names, pods
from penstock.engines.kubernetes.api import Api
from penstock.engines.kubernetes.cluster import Cluster
from penstock.engines.kubernetes.failures import AlreadyExists, Forbidden, NotFound
from penstock.engines.kubernetes.objects import Job, Secret
from penstock.engines.kubernetes.records import with_values
from penstock.engines.surroundings import given
from penstock.errors import Conflict

log = logging.getLogger(__name__)

MOST_OWNERS = 1000
"""Of an array that repeats more indexes than that, the Secret goes with the first thousand Jobs."""


async def make(api: Api, launch: Launch, owners: Sequence[Job], namespace: str) -> None:
    """Once: a second time changes nothing."""
    values = {name: value for name, value in given(launch).items() if name in launch.spec.secrets}
    if not values or not owners:
        return
    run = Run(launch.workload_id, launch.attempt)
    name = names.job_name(launch.name, run)
    labels = pods.labels(launch, pods.Place(name))
    metadata = {"name": name, "labels": labels} | jobs.owned_by(*owners[:MOST_OWNERS])["metadata"]
    body = {"metadata": metadata, "type": "Opaque", "immutable": True, "stringData": values}
    try:
        await api.create(Secret, body, namespace)
    except AlreadyExists:
        if not _belongs(await api.get(Secret, name, namespace), owners):
            raise Conflict(
                f"There is a Secret {namespace}/{name} in the cluster that Penstock did not make.",
                hint=f"kubectl delete secret -n {namespace} {name}",
            ) from None


async def restored(api: Api, cluster: Cluster, found: Found) -> Found:
    """What was found in the cluster, with the values that are still there."""
    workloads = [await _with_values(api, cluster, each) if each.spec.secrets else each for each in found.workloads]
    return found.model_copy(update={"workloads": tuple(workloads)})


async def _with_values(api: Api, cluster: Cluster, workload: Workload) -> Workload:
    run = Run(workload.id, workload.attempt)
    owners = cluster.jobs_of(run)
    there = await _values(api, names.job_name(workload.name, run), owners)
    return with_values(workload, there)


async def _values(api: Api, name: str, owners: Sequence[Job]) -> dict[str, str]:
    """Only of a Secret that belongs to one of these Jobs: its name alone says nothing."""
    if not owners:
        return {}
    try:
        found = await api.get(Secret, name, owners[0].namespace)
        if not _belongs(found, owners):
            return {}
        return {key: base64.b64decode(value).decode(errors="surrogateescape") for key, value in found.data.items()}
    except (NotFound, Forbidden, binascii.Error) as error:
        log.warning("the Secret %s cannot be read: %s", name, error)
        return {}


def _belongs(found: Secret, owners: Sequence[Job]) -> bool:
    uids = {job.uid for job in owners}
    return any(owner.kind == Job.kind.name and owner.uid in uids for owner in found.metadata.owner_references)
