"""Show a run's objects as the cluster has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.domain.secrets import masked, passwords_removed
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesNotFound, shown
from penstock.engines.kubernetes.api.objects import Job, KubernetesObject, Pod
from penstock.engines.kubernetes.api.resources import PersistentVolumeClaim, Service

REPEATED = (names.RECORD, "kubectl.kubernetes.io/last-applied-configuration")
"""Annotations that repeat the whole object."""

Fields = dict[str, Any]


async def inspect_run(api: KubernetesApi, cluster: Cluster, run: Run) -> Fields:
    """Return the objects of a run, of those the cache knows: labels alone can be written by others."""
    jobs, pods = cluster.jobs_of(run), cluster.pods_of(run)
    claims = {(pod.namespace, claim) for pod in pods for claim in pod.claims()}
    with shown():
        found = {
            "jobs": await _all(api, Job, jobs, run),
            "pods": await _all(api, Pod, pods, run),
            "services": await _all(api, Service, cluster.services_of(run), run),
            "claims": [raw for place in sorted(claims) if (raw := await _one(api, *place))],
        }
    return dict(passwords_removed({kind: [_clean(raw) for raw in each] for kind, each in found.items()}))


async def _all(
    api: KubernetesApi, kind: type[KubernetesObject], known: Iterable[KubernetesObject], run: Run
) -> list[Fields]:
    uids = {each.uid: each.namespace for each in known}
    found = [
        raw for place in sorted(set(uids.values())) for raw in await api.raw_list(kind, place, names.selector(run))
    ]
    return [raw for raw in found if raw["metadata"].get("uid") in uids]


async def _one(api: KubernetesApi, namespace: str, name: str) -> Fields | None:
    try:
        return await api.raw(PersistentVolumeClaim, name, namespace)
    except KubernetesNotFound:
        return None


def _clean(raw: Any) -> Any:
    """Leave out what repeats the rest, and mask secrets wherever variables are set."""
    if isinstance(raw, list):
        return [_clean(each) for each in raw]
    if not isinstance(raw, dict):
        return raw
    if "name" in raw and isinstance(raw.get("value"), str):
        return raw | {"value": masked(str(raw["name"]), raw["value"])}
    return {key: _clean(value) for key, value in raw.items() if key != "managedFields" and key not in REPEATED}
