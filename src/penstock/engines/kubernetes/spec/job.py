"""Build the objects of one attempt: an Indexed Job, a headless Service for several nodes, a Secret with its values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from penstock.domain.model import now
from penstock.engines.base import Launch, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects import Job
from penstock.engines.kubernetes.api.resources import Secret
from penstock.engines.kubernetes.settings import PodSettings
from penstock.engines.kubernetes.spec import pod
from penstock.engines.kubernetes.spec.pod import Fields, PodIdentity
from penstock.engines.kubernetes.state.jobs import write_placement
from penstock.engines.shared.environment import user_variables
from penstock.engines.shared.records import without_values

LARGEST_RECORD = 192 * 1024
"""Bytes; all annotations of an object together may have 256 KiB."""
MOST_OWNERS = 1000
"""A Secret has at most so many Jobs as owners; of an array that repeats more indexes it goes with the first of them."""


def build_jobs(launch: Launch, made: PodSettings, products: Sequence[str] = (), *, held: bool = False) -> list[Fields]:
    """Build the run's Job; for an array of which only some indexes run again, one Job for each of these.

    A Job that has ended cannot be opened again, and indexes of a Job cannot be chosen. One that is `held` makes no pods
    until there is room for all of them.
    """
    run = Run(launch.workload_id, launch.attempt)
    array = launch.spec.array
    if array is None or launch.attempt == 1 or len(launch.indexes) in (0, array.count):
        places = [PodIdentity(names.job_name(launch.name, run), None, tuple(products))]
    else:
        places = [
            PodIdentity(names.job_name(launch.name, run, index), index, tuple(products)) for index in launch.indexes
        ]
    bodies = [_job(launch, made, place, recorded=place is places[0]) for place in places]
    for body in bodies if held else ():
        body["metadata"]["annotations"][names.PLACEMENT] = write_placement(0, now())
        body["spec"]["suspend"] = True
    return bodies


def _job(launch: Launch, made: PodSettings, place: PodIdentity, *, recorded: bool) -> Fields:
    found = pod.build_labels(launch, place) | {names.TASK_NAME: launch.name}
    annotations = {
        names.CREATED_AT: datetime.now(UTC).replace(tzinfo=None).isoformat(),
        names.NUM_NODES: str(launch.spec.nodes),
        names.OWNER: f"{launch.group}/{launch.user}",
        names.GRACE: str(launch.stop_grace),
    }
    if launch.spec.max_duration:
        annotations[names.MAX_DURATION] = str(launch.spec.max_duration)
    if launch.workdir_archive is not None:
        annotations[names.SENDS_WORKDIR] = "true"
    if launch.spec.resources.gpu_products:
        annotations[names.PRODUCTS] = json.dumps(launch.spec.resources.gpu_products)
    if recorded and launch.record and len(launch.record.encode()) <= LARGEST_RECORD:
        annotations[names.RECORD] = without_values(launch.record, launch.spec)
    spec = _counts(launch, place) | {
        "completionMode": "Indexed",
        "podReplacementPolicy": "Failed",  # none is started anew while the old one may still write
        "template": pod.build_template(launch, made, place),
    }
    if launch.spec.queue:
        found[names.QUEUE] = launch.spec.queue
        spec["suspend"] = True
    return {"metadata": {"name": place.job, "labels": found, "annotations": annotations}, "spec": spec}


def _counts(launch: Launch, place: PodIdentity) -> Fields:
    """Set how failures count: a node that fails ends all nodes, an index of an array only itself."""
    array = launch.spec.array
    if array is None or place.index is not None:
        nodes = launch.spec.nodes if array is None else 1
        return {"completions": nodes, "parallelism": nodes, "backoffLimit": 0}
    return {
        "completions": array.count,
        "parallelism": min(array.parallelism or array.count, array.count),
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": array.count,
    }


def build_service(launch: Launch) -> Fields | None:
    """Build the Service that gives each node a name in DNS as soon as it has an address; None for a single node."""
    if launch.spec.nodes == 1:
        return None
    run = Run(launch.workload_id, launch.attempt)
    name = names.job_name(launch.name, run)
    found = pod.build_labels(launch, PodIdentity(name))
    return {
        "metadata": {"name": name, "labels": found},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.TASK_ID: launch.workload_id, names.ATTEMPT: str(launch.attempt)},
        },
    }


def build_secret(launch: Launch, owners: Sequence[Job]) -> Fields | None:
    """Build the Secret with the secret values of a launch; None if there are none.

    It is made right after the Job, with the Job as its owner from the beginning: whatever is cut off between the two,
    no Secret is left without a Job. Until it is there, Kubernetes does not start the container.
    """
    values = {name: value for name, value in user_variables(launch).items() if name in launch.spec.secrets}
    if not values or not owners:
        return None
    name = names.job_name(launch.name, Run(launch.workload_id, launch.attempt))
    labels = pod.build_labels(launch, PodIdentity(name))
    metadata = {"name": name, "labels": labels} | build_owner_patch(*owners[:MOST_OWNERS])["metadata"]
    return {"metadata": metadata, "type": "Opaque", "immutable": True, "stringData": values}


def is_owned(found: Secret, owners: Iterable[Job]) -> bool:
    """Does a Secret belong to one of these Jobs? Its name alone proves nothing."""
    uids = {job.uid for job in owners}
    return any(owner.kind == Job.kind.name and owner.uid in uids for owner in found.metadata.owner_references)


def build_owner_patch(*owners: Job) -> Fields:
    """Build a patch that makes Jobs the owners: Kubernetes deletes the object with the last of them."""
    references = [
        {"apiVersion": Job.kind.api_version, "kind": Job.kind.name, "name": job.name, "uid": job.uid} for job in owners
    ]
    return {"metadata": {"ownerReferences": references}}
