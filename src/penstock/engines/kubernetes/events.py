"""List Kubernetes' events about a run or a volume: about its Job, its pods and its claims."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.domain.model import now
from penstock.engines import base
from penstock.engines.base import Run
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.objects import Job
from penstock.engines.kubernetes.api.resources import KubernetesEvent, PersistentVolumeClaim
from penstock.engines.kubernetes.state.jobs import is_array, part_of_job
from penstock.engines.kubernetes.waiting.reasons import volume_name

_POD = re.compile(r"-(\d+)-[a-z0-9]{5}\Z")


def list_run_events(cluster: Cluster, run: Run) -> list[base.Event]:
    """Return the events of a run, also about pods that are gone: an event names its pod, and the pod's name its Job."""
    jobs = {(job.namespace, job.name): job for job in cluster.jobs_of(run)}
    claims = _claims(cluster, run)
    found = []
    for event in cluster.events.all():
        about = _about(event, jobs, claims)
        if about:
            found.append((event, about))
    return _in_order(found)


def list_volume_events(cluster: Cluster, claim: PersistentVolumeClaim) -> list[base.Event]:
    about = f"volume {volume_name(claim)}"
    return _in_order([(event, about) for event in cluster.events.about(claim.uid)])


def _claims(cluster: Cluster, run: Run) -> dict[str, PersistentVolumeClaim]:
    names = {(pod.namespace, claim) for pod in cluster.pods_of(run) for claim in pod.claims()}
    found = (cluster.claims.get(name, namespace) for namespace, name in names)
    return {claim.uid: claim for claim in found if claim}


def _about(
    event: KubernetesEvent, jobs: dict[tuple[str, str], Job], claims: dict[str, PersistentVolumeClaim]
) -> str | None:
    involved = event.involved_object
    if involved.kind == "Job":
        job = jobs.get((involved.namespace, involved.name))
        return "job" if job and job.uid == involved.uid else None
    if involved.kind == "PersistentVolumeClaim":
        claim = claims.get(involved.uid)
        return f"volume {volume_name(claim)}" if claim else None
    found = _POD.search(involved.name)
    job = jobs.get((involved.namespace, involved.name[: found.start()])) if found else None
    if found is None or job is None:
        return None
    part = part_of_job(job, int(found[1]))
    if is_array(job):
        return f"index {part}"
    return f"node {part}" if job.completions > 1 else "job"


def _in_order(found: Iterable[tuple[KubernetesEvent, str]]) -> list[base.Event]:
    return [
        base.Event(
            at=event.last_seen or now(),
            kind=event.type or "Normal",
            reason=event.reason,
            about=about,
            message=event.message.strip(),
            count=event.times,
        )
        for event, about in sorted(found, key=lambda pair: pair[0].order)
    ]
