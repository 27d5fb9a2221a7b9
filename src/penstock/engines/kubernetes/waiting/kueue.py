"""Watch and end Jobs in a queue of Kueue, which starts them by resuming and preempts them by suspending.

What it thinks of a Job stands in a Workload of its own, which is watched from the first Job on that has a queue. It is
also the way to end one: a Job that we only suspend is resumed by Kueue.
"""

from __future__ import annotations

import logging
import re
from datetime import datetime, timedelta

from penstock.background import Tasks
from penstock.domain.model import now
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cache import Cache
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesError, KubernetesForbidden
from penstock.engines.kubernetes.api.objects import (
    Condition,
    Job,
    KubernetesObject,
    ObjectPart,
    ResourceKind,
    condition,
)
from penstock.engines.kubernetes.spec import Fields
from penstock.engines.kubernetes.state.jobs import is_array, is_finished, is_given_up

log = logging.getLogger(__name__)

GROUP = "kueue.x-k8s.io"
PATIENCE = timedelta(seconds=10)
"""How long Kueue may take to suspend a Job whose Workload was deactivated."""

FINDING = "Kueue's kind of Workload"

SUSPENDED: Fields = {"spec": {"suspend": True}}

_NO_ROOM = re.compile(r"insufficient unused quota for (\S+) in flavor \S+, (\S+) more needed")
_NEVER = re.compile(r"insufficient quota for (\S+) in flavor \S+, .*? request \((\S+)\) > maximum capacity \((\S+)\)")
_NOT_THERE = re.compile(r"resource (\S+) unavailable in ClusterQueue")
_WORDS = {"cpu": "CPU", names.GPU: "GPU", "ephemeral-storage": "disk"}


class WorkloadSpec(ObjectPart, frozen=True):
    active: bool = True


class WorkloadStatus(ObjectPart, frozen=True):
    conditions: tuple[Condition, ...] = ()


class QueuedWorkload(KubernetesObject, frozen=True):
    """Kueue's object for each Job that has a queue."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    kind = ResourceKind("Workload", "workloads", GROUP, "v1beta2")


class QueuedWorkloadV1Beta1(QueuedWorkload, frozen=True):
    """The object as Kueue before 0.15 has it."""

    kind = ResourceKind("Workload", "workloads", GROUP, "v1beta1")


async def find_workload_kind(api: KubernetesApi) -> type[QueuedWorkload] | None:
    """Return the version of the kind this cluster's Kueue has; None without Kueue."""
    offered = await api.versions(GROUP)
    return next((kind for kind in (QueuedWorkload, QueuedWorkloadV1Beta1) if kind.kind.version in offered), None)


async def suspend_patch(api: KubernetesApi, job: Job) -> Fields:
    """Build the patch that ends a Job; nothing where Kueue was told to end it."""
    return {} if await deactivate(api, job) and not job.spec.suspend else SUSPENDED


async def deactivate(api: KubernetesApi, job: Job) -> bool:
    """Tell Kueue to suspend a Job and leave it so, by deactivating its Workload; False if it has none for it."""
    if names.QUEUE not in job.labels:
        return False
    told = False
    try:
        kind = await find_workload_kind(api)
        for found in await api.list(kind, job.namespace, labels=f"{GROUP}/job-uid={job.uid}") if kind else ():
            await api.amend(found, {"spec": {"active": False}})
            told = True
    except KubernetesForbidden as error:
        log.warning("%s may be started again by its queue: %s", job.name, error.message)
    return told


class KueueQueues:
    def __init__(self, api: KubernetesApi, cluster: Cluster) -> None:
        self._api, self._cluster = api, cluster
        self._workloads: Cache[QueuedWorkload] | None = None
        self._tasks = Tasks()
        self._told: dict[str, datetime] = {}
        """Since when Kueue should have suspended a Job, by its uid."""

    def open(self) -> None:
        """After the cluster's own `open`."""
        self._cluster.jobs.subscribe(self._seen)
        for job in list(self._cluster.jobs.all()):
            self._seen(None, job)

    async def close(self) -> None:
        await self._tasks.close()
        if self._workloads:
            await self._workloads.close()

    def _seen(self, before: Job | None, after: Job | None) -> None:
        if before and after is None:
            self._told.pop(before.uid, None)
        wanted = after is not None and names.QUEUE in after.labels
        if wanted and self._workloads is None and FINDING not in self._tasks:
            self._tasks.start(self._find(), key=FINDING)

    async def _find(self) -> None:
        """Watch Kueue's Workloads. Where that fails, less can be said, and the next Job in a queue tries again."""
        try:
            kind = await find_workload_kind(self._api)
        except KubernetesError as error:
            log.warning("what Kueue says of Jobs is not known: %s", error)
            return
        if kind is None:
            return
        indexes = {"job": lambda found: [owner.uid for owner in found.metadata.owner_references]}
        self._workloads = Cache(self._api, kind, self._cluster.namespace, indexes=indexes)
        self._workloads.subscribe(self._changed)
        self._workloads.start()

    def _changed(self, before: QueuedWorkload | None, after: QueuedWorkload | None) -> None:
        found = after or before
        for owner in found.metadata.owner_references if found else ():
            job = self._cluster.jobs.get(owner.name, found.namespace if found else "")
            if job and (run := names.run_of(job)):
                self._cluster.changed(run)

    def _of(self, job: Job) -> QueuedWorkload | None:
        return next(iter(self._workloads.by("job", job.uid)), None) if self._workloads else None

    # why it waits

    def why(self, job: Job) -> str:
        return explain_queue(job, self._of(job))

    # what was stopped stays so

    async def advance(self, run: Run) -> None:
        """End Jobs that are to end and are not suspended: Kueue learned of them only after that, or does not act."""
        for job in self._cluster.jobs_of(run):
            if names.QUEUE in job.labels and not job.spec.suspend and _is_to_end(job):
                await self._end(run, job)
            else:
                self._told.pop(job.uid, None)

    async def _end(self, run: Run, job: Job) -> None:
        found, moment = self._of(job), now()
        due = self._told.setdefault(job.uid, moment) + PATIENCE
        told = found is not None and not found.spec.active
        if due > moment and (told or await deactivate(self._api, job)):
            self._cluster.changed_at(run, due)
            return
        log.info("%s is suspended, since Kueue did not", job.name)
        await self._api.amend(job, SUSPENDED)


def _is_to_end(job: Job) -> bool:
    """Was it stopped or given up? Of an array one index alone may be given up, and the others go on."""
    a_node_ended = not is_array(job) and any(name.startswith(f"{names.VERDICT}-") for name in job.annotations)
    return (is_given_up(job) or a_node_ended) and not is_finished(job) and not job.metadata.deletion_timestamp


def explain_queue(job: Job, found: QueuedWorkload | None) -> str:
    """Say why it has not started yet, from what Kueue says."""
    queue = job.labels.get(names.QUEUE, "")
    reserved = condition(found.status.conditions, "QuotaReserved") if found else None
    if found and not found.spec.active:
        return f"it was taken out of the queue {queue} in the cluster (its Workload {found.name} is not active)"
    if reserved is None:
        return f"it is in the queue {queue}, which has not let it start yet"
    lack = None if reserved.true else _lack(queue, reserved.message)
    evicted = condition(found.status.conditions, "Evicted") if found else None
    if evicted and evicted.true and evicted.reason == "Preempted":
        said = f"it gave its place in the queue {queue} to something of higher priority and starts again when it can"
        return f"{said}; {lack}" if lack else said
    if reserved.true:
        return f"the queue {queue} has room for it, and lets it start when nothing else is to be checked"
    return lack or _shut(job, queue, reserved.message)


def _lack(queue: str, message: str) -> str | None:
    if never := _NEVER.search(message):
        return f"it asks for {never[2]} {_word(never[1])}, and the queue {queue} never has more than {never[3]}"
    if absent := _NOT_THERE.search(message):
        return f"the queue {queue} has no {_word(absent[1])} to give"
    if lacking := [f"{amount} more {_word(what)}" for what, amount in _NO_ROOM.findall(message)]:
        needed = " and ".join(dict.fromkeys(lacking))
        return f"the queue {queue} has no room for it now: {needed} is needed"
    return None


def _shut(job: Job, queue: str, message: str) -> str:
    if message == f"LocalQueue {queue} doesn't exist":
        return f"there is no queue {queue} in the namespace {job.namespace}; it starts when there is"
    said = message.strip().rstrip(".")
    if "inactive" in said or "stopped" in said or "doesn't exist" in said:
        return f"the queue {queue} lets nothing start: {said}"
    return f"it is in the queue {queue}, which has not let it start yet: {said}"


def _word(resource: str) -> str:
    return _WORDS.get(resource, resource)
