"""What a server whose store was lost finds in the cluster: the records that stand beside Jobs and claims."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from penstock.domain.users import Account
from penstock.domain.volumes import Volume
from penstock.engines.base import Found
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.cluster import Cluster
from penstock.engines.kubernetes.objects import Claim, Job
from penstock.engines.kubernetes.records import read_volume

log = logging.getLogger(__name__)


def found(cluster: Cluster) -> Found:
    newest: dict[str, tuple[int, str]] = {}
    for job in cluster.jobs.all():
        run, record = names.run_of(job), _record(job)
        if run and record and newest.get(run.workload_id, (0, ""))[0] < run.attempt:
            newest[run.workload_id] = (run.attempt, record)
    volumes = {volume.id: (volume, account) for claim in cluster.claims.all() for volume, account in _volumes(claim)}
    return Found(
        workloads=tuple(record for _, (_, record) in sorted(newest.items())),
        volumes=tuple(volumes[id_] for id_ in sorted(volumes)),
    )


def _record(job: Job) -> str | None:
    """Not one that says it is about another workload: labels and annotations can be written by others.

    What cannot be read at all is handed on, so that it is said.
    """
    record = job.annotations.get(names.RECORD)
    if record is None or job.metadata.deletion_timestamp:
        return None
    try:
        said = json.loads(record)
    except ValueError:
        return record
    if not isinstance(said, dict) or said.get("id") != job.labels.get(names.TASK_ID) or not _owns(said, job):
        log.warning("the Job %s/%s has the record of something else: it is not taken over", job.namespace, job.name)
        return None
    return record


def _owns(said: Mapping[str, object], found: Job | Claim) -> bool:
    return f"{said.get('group')}/{said.get('user')}" == found.annotations.get(names.OWNER)


def _volumes(claim: Claim) -> list[tuple[Volume, Account]]:
    if claim.labels.get(names.MANAGED) != names.PENSTOCK or claim.metadata.deletion_timestamp:
        return []
    read = read_volume(claim.annotations.get(names.RECORD, ""))
    if read is None:
        return []
    volume, _ = read
    same = volume.id == claim.labels.get(names.VOLUME_ID) and volume.object_name == claim.name
    return [read] if same and _owns({"group": volume.group, "user": volume.user}, claim) else []
