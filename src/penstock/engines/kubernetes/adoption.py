"""Find records beside Jobs and claims after the server's database was lost.

Labels and annotations can be written by others, too: a record counts only on the very object it is about, of the owner
that object says. What is marked as ours and is no such thing is named, so that an admin hears of it.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pydantic import ValidationError

from penstock.domain.model import now
from penstock.domain.names import ID, USER, name_problem
from penstock.domain.users import Account
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.engines.base import Found, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesForbidden, KubernetesNotFound
from penstock.engines.kubernetes.api.objects import Job
from penstock.engines.kubernetes.api.resources import PersistentVolumeClaim, Secret
from penstock.engines.kubernetes.namespaces import Namespaces
from penstock.engines.kubernetes.spec import is_owned
from penstock.engines.shared.records import read_volume, with_values

log = logging.getLogger(__name__)
T = TypeVar("T", Job, PersistentVolumeClaim)

FIRST = datetime(2020, 1, 1, tzinfo=UTC)
A_DAY = timedelta(days=1)
MOST = 1_000_000
"""More attempts than any true record has."""
NOT_READ = "its record cannot be read"
NOT_ITS_OWN = "it has the record of something else"


class _Unreadable(Exception):
    """An object that is marked as Penstock's has a record that is not believed, and why."""


def find_records(cluster: Cluster, namespaces: Namespaces) -> Found:
    unreadable: list[str] = []
    started: dict[str, Workload] = {}
    volumes: dict[str, tuple[Volume, Account]] = {}
    for job in _alive(cluster.jobs.all()):
        try:
            if (run := names.run_of(job)) and (workload := _workload(job, run, namespaces)):
                _keep(workload, started)
        except _Unreadable as why:
            unreadable.append(f"the Job {job.namespace}/{job.name}: {why}")
    for claim in _alive(cluster.claims.all()):
        try:
            if read := _volume(claim, namespaces):
                volumes[read[0].id] = read
        except _Unreadable as why:
            unreadable.append(f"the claim {claim.namespace}/{claim.name}: {why}")
    return Found(
        workloads=tuple(started[id_] for id_ in sorted(started)),
        volumes=tuple(volumes[id_] for id_ in sorted(volumes)),
        unreadable=tuple(sorted(unreadable)),
    )


async def restore_values(api: KubernetesApi, cluster: Cluster, found: Found) -> Found:
    """Add to workloads found in the cluster the secret values that are still there."""
    workloads = [
        with_values(each, await _values(api, cluster, each)) if each.spec.secrets else each for each in found.workloads
    ]
    return found.model_copy(update={"workloads": tuple(workloads)})


async def _values(api: KubernetesApi, cluster: Cluster, workload: Workload) -> dict[str, str]:
    run = Run(workload.id, workload.attempt)
    name, owners = names.job_name(workload.name, run), cluster.jobs_of(run)
    if not owners:
        return {}
    try:
        found = await api.get(Secret, name, owners[0].namespace)
        if not is_owned(found, owners):
            return {}
        return {key: base64.b64decode(value).decode(errors="surrogateescape") for key, value in found.data.items()}
    except (KubernetesNotFound, KubernetesForbidden) as error:
        log.warning("the Secret %s cannot be read: %s", name, error)
        return {}


def _alive(objects: Iterable[T]) -> list[T]:
    return [each for each in objects if not each.metadata.deletion_timestamp]


def _keep(workload: Workload, newest: dict[str, Workload]) -> None:
    if workload.id not in newest or newest[workload.id].attempt < workload.attempt:
        newest[workload.id] = workload


def _workload(job: Job, run: Run, namespaces: Namespaces) -> Workload | None:
    """Read a Job's record; of the Jobs of an array's repeated indexes only one has it."""
    record = job.annotations.get(names.RECORD)
    if record is None:
        return None
    try:
        workload = Workload.model_validate_json(record)
    except ValidationError:
        raise _Unreadable(NOT_READ) from None
    if (workload.id, workload.attempt) != (run.workload_id, run.attempt):
        raise _Unreadable(NOT_ITS_OWN)
    if not 0 < workload.attempt <= MOST or workload.spec.parts > names.MOST_PARTS:
        raise _Unreadable(NOT_READ)
    if names.ARRAY_INDEX not in job.labels and job.spec.completions != workload.spec.parts:
        raise _Unreadable(NOT_ITS_OWN)
    _check(workload, job, namespaces)
    return workload


def _volume(claim: PersistentVolumeClaim, namespaces: Namespaces) -> tuple[Volume, Account] | None:
    record = claim.annotations.get(names.RECORD)
    if claim.labels.get(names.MANAGED) != names.PENSTOCK or record is None:
        return None
    read = read_volume(record)
    if read is None:
        raise _Unreadable(NOT_READ)
    volume, _ = read
    if volume.id != claim.labels.get(names.VOLUME_ID) or volume.object_name != claim.name:
        raise _Unreadable(NOT_ITS_OWN)
    _check(volume, claim, namespaces)
    return read


def _check(recorded: Workload | Volume, found: Job | PersistentVolumeClaim, namespaces: Namespaces) -> None:
    """Check a record: a later version of Penstock may have written it, or anyone who may write into the namespace."""
    moment = recorded.created_at
    if not ID.match(recorded.id) or name_problem(recorded.name) or not USER.match(recorded.user):
        raise _Unreadable(NOT_READ)
    if not FIRST <= moment <= now() + A_DAY:
        raise _Unreadable("it says that it was made in another age")
    if f"{recorded.group}/{recorded.user}" != found.annotations.get(names.OWNER):
        raise _Unreadable(NOT_ITS_OWN)
    if namespaces.of(recorded.user, recorded.group) != found.namespace:
        raise _Unreadable(f"what belongs to {recorded.group}/{recorded.user} is not in this namespace")
