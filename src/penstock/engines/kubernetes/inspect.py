"""Show a run's objects as the cluster has them (`inspect`), and what its containers use (`top`).

What the processes of a container do, a cluster tells nobody. So the container is asked itself: a few lines of shell in
it print what the kernel shows there.
"""

from __future__ import annotations

import asyncio
import secrets
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
from penstock.engines.kubernetes.api.streams import ExecFailed
from penstock.engines.kubernetes.exec import running_pod
from penstock.engines.kubernetes.usage import LOOK, read_usage
from penstock.engines.shared.minder import BASH
from penstock.errors import Conflict, Unavailable
from penstock.wire.measures import Measure

SECONDS = 30.0
MOST_BYTES = 8 << 20
REPEATED = (names.RECORD, "kubectl.kubernetes.io/last-applied-configuration")
"""Annotations that repeat the whole object."""

Fields = dict[str, Any]


# -- inspect -------------------------------------------------------------------------------------------------------


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


# -- top -----------------------------------------------------------------------------------------------------------


async def measure_part(api: KubernetesApi, cluster: Cluster, run: Run, part: int) -> Measure:
    pod = running_pod(cluster, run, part)
    if pod is None:
        raise Conflict("The job is not running, so it uses nothing.")
    try:
        async with asyncio.timeout(SECONDS):
            return await _look_inside(api, pod)
    except TimeoutError:
        raise Unavailable(f"The container did not answer within {SECONDS:.0f} seconds.") from None


async def _look_inside(api: KubernetesApi, pod: Pod) -> Measure:
    """Ask the container of a run what it uses."""
    mark = secrets.token_hex(16)
    shell = BASH if names.HAS_BASH in pod.annotations else "sh"
    return read_usage(await _said(api, pod, [shell, "-c", LOOK, shell, mark]), mark)


async def _said(api: KubernetesApi, pod: Pod, command: list[str]) -> bytes:
    said = bytearray()
    with shown():
        try:
            async with await api.exec(pod.name, pod.namespace, command, container=names.CONTAINER) as session:
                async for channel, data in session:
                    if channel == 1 and len(said) < MOST_BYTES:
                        said += data
        except KubernetesNotFound:
            raise Conflict("The job has just ended.") from None
        except ExecFailed as failed:
            if failed.exit_code != 127:
                raise
            hint = "where the cluster has a metrics-server: kubectl top pod"
            raise Conflict("Its usage cannot be measured: the image has no shell.", hint=hint) from None
    return bytes(said)
