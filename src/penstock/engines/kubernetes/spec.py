"""Build the objects of one attempt: an Indexed Job, a headless Service for several nodes, a Secret with its values.

Pods are built field by field; user text is never merged in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.domain.model import now
from penstock.domain.paths import SHARED_MEMORY, WORKDIR
from penstock.domain.workloads import Medium, Resources, Scratch, Selectors, Spec
from penstock.engines.base import BoundMount, Launch, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects import Job, Pod
from penstock.engines.kubernetes.api.resources import Secret
from penstock.engines.kubernetes.settings import PodSettings, build_pod_security
from penstock.engines.kubernetes.state.jobs import write_placement
from penstock.engines.shared.environment import CAPABILITIES, INDEX, NO_GPUS, RANKS, run_variables, user_variables
from penstock.engines.shared.minder import MARKS, command, needs_bash, verbatim
from penstock.engines.shared.records import without_values

Fields = dict[str, Any]

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
    found = build_labels(launch, place) | {names.TASK_NAME: launch.name}
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
        "template": build_template(launch, made, place),
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
    found = build_labels(launch, PodIdentity(name))
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
    labels = build_labels(launch, PodIdentity(name))
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


# -- pods ----------------------------------------------------------------------------------------------------------


ANYWHERE = Selectors()


@dataclass(frozen=True)
class PodIdentity:
    """The Job a pod belongs to, and of an array's repeated index which it is."""

    job: str
    index: int | None = None
    products: tuple[str, ...] = ()
    """What the nodes call the GPUs that were asked for; empty is any."""


def build_template(launch: Launch, made: PodSettings, place: PodIdentity) -> Fields:
    """Build the pod template of a Job."""
    annotations = {names.OWNER: f"{launch.group}/{launch.user}"}
    if launch.workdir_archive is not None:
        annotations[names.SENDS_WORKDIR] = "true"
    if needs_bash(launch):
        annotations[names.HAS_BASH] = "true"
    return {
        "metadata": {"labels": build_labels(launch, place), "annotations": annotations},
        "spec": _spec(launch, made, place),
    }


def build_labels(launch: Launch, place: PodIdentity) -> dict[str, str]:
    """Build the labels: k8s-cli's, and those that name the run."""
    found = {
        names.MANAGED: names.PENSTOCK,
        names.TASK: "true",
        names.TASK_ID: launch.workload_id,
        names.USERNAME: names.label(launch.user),
        names.ATTEMPT: str(launch.attempt),
    }
    if launch.spec.parts == 1:
        found[names.NODE_INDEX] = "0"
    if place.index is not None:
        found[names.ARRAY_INDEX] = str(place.index)
    return found


def list_peers(launch: Launch, job: str) -> list[str]:
    """Return the addresses at which the nodes of a run reach each other, by rank."""
    nodes = launch.spec.nodes
    return [f"{job}-{rank}.{job}" for rank in range(nodes)] if nodes > 1 else ["127.0.0.1"]


def _spec(launch: Launch, made: PodSettings, place: PodIdentity) -> Fields:
    volumes, mounts = _volumes(launch)
    spec: Fields = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": max(launch.stop_grace, 1),
        "securityContext": build_pod_security(made),
        "containers": [_container(launch, made, place, mounts)],
        "volumes": volumes,
    }
    if launch.spec.nodes > 1:
        spec["subdomain"] = place.job
    if launch.spec.max_duration and not needs_bash(launch):
        spec["activeDeadlineSeconds"] = launch.spec.max_duration
    spec |= build_placement(made, place.products, launch.spec.selectors)
    if launch.spec.pull_secrets:
        pulled = dict.fromkeys((*made.pull_secrets, *launch.spec.pull_secrets))
        spec["imagePullSecrets"] = [{"name": name} for name in pulled]
    return spec


def build_placement(made: PodSettings, products: Sequence[str] = (), wanted_of: Selectors = ANYWHERE) -> Fields:
    """Say on which nodes pods may run; what the admin selects goes before what a user does."""
    fields: Fields = {}
    if selected := wanted_of.labels | made.node_selector:
        fields["nodeSelector"] = selected
    if made.tolerations:
        fields["tolerations"] = list(made.tolerations)
    if made.runtime_class:
        fields["runtimeClassName"] = made.runtime_class
    if made.pull_secrets:
        fields["imagePullSecrets"] = [{"name": name} for name in made.pull_secrets]
    if wanted := build_affinity(products, wanted_of.node):
        fields["affinity"] = wanted
    return fields


def build_affinity(products: Sequence[str], node: str | None) -> Fields:
    """Build an affinity to nodes with these GPUs, or to one node."""
    wanted: Fields = {}
    if products:
        wanted["matchExpressions"] = [{"key": names.GPU_PRODUCT, "operator": "In", "values": list(products)}]
    if node:
        wanted["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    terms = {"nodeSelectorTerms": [wanted]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}} if wanted else {}


def plan_pod(spec: Spec, made: PodSettings, products: Sequence[str] = ()) -> Pod:
    """Build a pod as far as it decides on which nodes it fits."""
    container = {"name": names.CONTAINER, "resources": build_resources(spec.resources, made)}
    body = {"spec": {"containers": [container]} | build_placement(made, products, spec.selectors)}
    return msgspec.convert(body, Pod)


def _container(launch: Launch, made: PodSettings, place: PodIdentity, mounts: list[Fields]) -> Fields:
    spec = launch.spec
    container: Fields = {
        "name": names.CONTAINER,
        "image": spec.resources.image or made.image,
        "env": _env(launch, place),
        "resources": build_resources(spec.resources, made),
        "volumeMounts": mounts,
        "securityContext": build_container_security(restricted=made.restricted),
    }
    if whole := [each for each in spec.from_secrets if each.name is None]:
        container["envFrom"] = [{"prefix": each.prefix, "secretRef": {"name": each.secret}} for each in whole]
    if words := command(launch, made.peer_patience):
        container["command"] = words
    if spec.terminal:
        container |= {"stdin": True, "tty": True}
    if workdir := WORKDIR if launch.workdir_archive else spec.workdir:
        container["workingDir"] = workdir
    return container


def build_container_security(*, restricted: bool) -> Fields:
    capabilities: Fields = {"drop": ["ALL"]} if restricted else {"drop": ["ALL"], "add": list(CAPABILITIES)}
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}


# -- how much ------------------------------------------------------------------------------------------------------


def build_resources(asked: Resources, made: PodSettings) -> Fields:
    """Build requests and limits: what is asked for is both, unless `requests` says less."""
    limits = {
        "cpu": _milli(asked.cpus_milli),
        "memory": _whole(asked.memory_bytes),
        "ephemeral-storage": _whole(asked.disk_bytes),
        names.GPU: _whole(asked.gpus or None),
    }
    requests = {
        "cpu": _milli(asked.requests.cpus_milli) or limits["cpu"] or _milli(made.default_cpus_milli),
        "memory": _whole(asked.requests.memory_bytes) or limits["memory"] or ("0" if made.counts_memory else None),
        "ephemeral-storage": _whole(asked.requests.disk_bytes) or limits["ephemeral-storage"],
        names.GPU: limits[names.GPU],
    }
    return {"limits": _said(limits), "requests": _said(requests)}


def _milli(amount: int | None) -> str | None:
    return None if amount is None else f"{amount}m"


def _whole(amount: int | None) -> str | None:
    return None if amount is None else str(amount)


def _said(amounts: dict[str, str | None]) -> dict[str, str]:
    return {name: amount for name, amount in amounts.items() if amount is not None}


# -- variables -----------------------------------------------------------------------------------------------------


def _env(launch: Launch, place: PodIdentity) -> list[Fields]:
    """Build the variables: the user's own, then those about the run, which win."""
    facts, secret = _facts(launch, place), names.job_name(launch.name, Run(launch.workload_id, launch.attempt))
    hidden = set(launch.spec.secrets) - facts.keys()
    variables: list[Fields] = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}
        if name in hidden
        else {"name": name, "value": verbatim(value)}
        for name, value in (user_variables(launch) | facts).items()
    ]
    variables += [
        {"name": each.name, "valueFrom": {"secretKeyRef": {"name": each.secret, "key": each.key}}}
        for each in launch.spec.from_secrets
        if each.name is not None and each.name not in facts
    ]
    if launch.spec.nodes > 1:
        rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{names.INDEX}']"}}
        variables += [{"name": name, "valueFrom": rank} for name in RANKS]
    return variables


def _facts(launch: Launch, place: PodIdentity) -> dict[str, str]:
    facts = run_variables(launch, list_peers(launch, place.job))
    if launch.spec.nodes == 1:
        facts |= dict.fromkeys(RANKS, "0")
    if place.index is not None:
        facts[INDEX] = str(place.index)
    return facts if launch.spec.resources.gpus else facts | NO_GPUS


# -- volumes -------------------------------------------------------------------------------------------------------


def _volumes(launch: Launch) -> tuple[list[Fields], list[Fields]]:
    """Build the pod's volumes and the mounts of its container."""
    volumes, mounts = _claims(launch.mounts)
    for number, scratch in enumerate(_scratches(launch)):
        name = f"scratch-{number}"
        volumes.append({"name": name, "emptyDir": _empty_dir(scratch)})
        mounts.append({"name": name, "mountPath": scratch.path})
    return volumes, mounts


def _claims(bound: Sequence[BoundMount]) -> tuple[list[Fields], list[Fields]]:
    """Mount each claim as one pod volume at any number of paths; read-only if it is at all of them."""
    volumes: dict[str, Fields] = {}
    mounts = []
    for mount in bound:
        claim = mount.volume.object_name
        known = volumes.setdefault(claim, {"claimName": claim, "readOnly": True})
        known["readOnly"] &= mount.read_only
        number = list(volumes).index(claim)
        place: Fields = {"name": f"volume-{number}", "mountPath": mount.path, "readOnly": mount.read_only}
        mounts.append(place | {"subPath": mount.sub_path} if mount.sub_path else place)
    made = [
        {"name": f"volume-{number}", "persistentVolumeClaim": source} for number, source in enumerate(volumes.values())
    ]
    return made, mounts


def _scratches(launch: Launch) -> Iterator[Scratch]:
    spec = launch.spec
    yield from spec.scratch
    taken = {scratch.path for scratch in spec.scratch} | {mount.path for mount in launch.mounts}
    if SHARED_MEMORY not in taken:
        limit = spec.resources.memory_bytes
        yield Scratch(path=SHARED_MEMORY, medium=Medium.memory, size_bytes=limit // 2 if limit else None)
    if launch.workdir_archive is not None:
        yield Scratch(path=WORKDIR)
        yield Scratch(path=MARKS)


def _empty_dir(scratch: Scratch) -> Fields:
    fields: Fields = {"medium": "Memory"} if scratch.medium is Medium.memory else {}
    return fields | ({"sizeLimit": str(scratch.size_bytes)} if scratch.size_bytes else {})
