"""Start, stop and remove runs. Every write follows from the run, so a repeated one changes nothing.

A node that does not answer may run its pods on. Kubernetes gives them up after some minutes and marks them as deleted,
but keeps the objects until the kubelet confirms the end, the node is removed from the cluster, or an admin says with a
taint that the machine is off. A Job makes no new pod before that (`podReplacementPolicy`); neither do we by a new Job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from penstock.background import Tasks
from penstock.domain.model import iso, now
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import HeldUp, Launch, Presence, Report, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import (
    AdmissionDenied,
    AlreadyExists,
    KubernetesError,
    KubernetesForbidden,
    KubernetesInvalid,
    KubernetesNotFound,
    describe_quota,
)
from penstock.engines.kubernetes.api.objects import Job, Pod, condition
from penstock.engines.kubernetes.api.resources import KubernetesNode, Secret, Service
from penstock.engines.kubernetes.namespaces import Namespaces
from penstock.engines.kubernetes.settings import PodSettings
from penstock.engines.kubernetes.spec import (
    Fields,
    build_jobs,
    build_owner_patch,
    build_secret,
    build_service,
    is_owned,
)
from penstock.engines.kubernetes.state.jobs import is_finished
from penstock.engines.kubernetes.state.pods import record_pod
from penstock.engines.kubernetes.waiting.kueue import suspend_patch
from penstock.errors import Conflict, PenstockError

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")

SWEEP_SECONDS = 60.0
UNSEEN = timedelta(minutes=1)
AT_ONCE = 8
"""Calls at the same time for one run: an array that repeats a thousand indexes must not push others aside."""


class KubernetesRuns:
    def __init__(self, api: KubernetesApi, cluster: Cluster, namespaces: Namespaces, made: PodSettings) -> None:
        self._api = api
        self._cluster = cluster
        self._namespaces = namespaces
        self._made = made
        self._unseen: dict[Run, dict[str, Job]] = {}
        """Jobs that were made and not yet seen by the watch, by name."""
        self._removed: set[Run] = set()
        """Runs whose Jobs were deleted and are still in the cache."""
        self._graces: dict[Run, int] = {}
        """The grace of runs that were told to stop: only a shorter one is worth another call."""
        self._never: dict[Run, Report] = {}
        """Runs that were stopped before they started, of which nothing is in the cluster."""
        cluster.jobs.subscribe(self._seen)
        self._tasks = Tasks()

    def open(self) -> None:
        self._tasks.start(self._sweep())

    async def close(self) -> None:
        await self._tasks.close()

    def _seen(self, before: Job | None, after: Job | None) -> None:
        known = after or before
        run = names.run_of(known) if known else None
        if known is None or run is None or not self._cluster.is_at_home(known):
            return
        self._was_seen(run, known.name)
        if after is None and not self._cluster.jobs_of(run):
            self._removed.discard(run)

    def _was_seen(self, run: Run, name: str) -> None:
        if unseen := self._unseen.get(run):
            unseen.pop(name, None)
            if not unseen:
                del self._unseen[run]

    # -- what is -------------------------------------------------------------------------------------------------

    def all(self) -> list[Run]:
        known = self._cluster.runs() | set(self._unseen)
        return sorted(known - self._removed, key=lambda run: (run.workload_id, run.attempt))

    def report(self, run: Run, observed: Callable[[Run], Report]) -> Report:
        """Add to the report what the caches cannot know: made or removed a moment ago, or never made at all."""
        if run in self._removed:
            return Report(presence=Presence.absent)
        if run in self._never:
            return self._never[run]
        self._give_up_looking(run)
        report = observed(run)
        if run in self._unseen and report.presence is Presence.absent:
            said = "it is handed over to the cluster"
            return Report(presence=Presence.waiting, state=State.QUEUED, reason=Reason.SUBMITTED, message=said)
        if run in self._unseen and report.presence is Presence.ended:
            return report.model_copy(update={"presence": Presence.running})
        return _as_stopped(report) if run in self._graces else report

    def _give_up_looking(self, run: Run) -> None:
        """Forget a Job that a working watch has not seen for long: it came and went."""
        for job in list(self._unseen.get(run, {}).values()):
            made = job.metadata.creation_timestamp
            if made and now() - made > UNSEEN and not self._cluster.trouble():
                self._was_seen(run, job.name)

    # -- start ---------------------------------------------------------------------------------------------------

    async def start(self, launch: Launch, products: Sequence[str], *, held: bool = False) -> None:
        run, owner = Run(launch.workload_id, launch.attempt), (launch.user, launch.group)
        known = {job.name for job in self._cluster.jobs_of(run)}
        bodies = build_jobs(launch, self._made, products, held=held)
        wanted = [body for body in bodies if body["metadata"]["name"] not in known]
        if not wanted:
            await self._give_services(run)
            await self._give_secret(launch, self._cluster.jobs_of(run), self._namespaces.of(*owner))
            return
        if run in self._graces and not await self._find(run):
            self._never[run] = _never_ran(launch)
            self._cluster.changed(run)
            return
        namespace = await self._namespaces.ready(*owner)
        service = build_service(launch)
        if service:
            # First, and given to the Job afterwards: whatever is cut off between the two, no node waits for its name.
            await self._create_service(service, namespace)
        made = await self._make(run, wanted, namespace)
        try:
            await self._give_secret(launch, self._known(run), namespace)
        except (AdmissionDenied, KubernetesInvalid, Conflict):
            await self._take_back(run, wanted, namespace)
            raise
        if service:
            await self._api.patch(Service, made[0].name, build_owner_patch(made[0]), namespace)

    async def _make(self, run: Run, bodies: list[Fields], namespace: str) -> list[Job]:
        tried = await _each(lambda body: self._tried(run, body, namespace), bodies)
        made = [each for each in tried if isinstance(each, Job)]
        seen = {job.name for job in self._cluster.jobs_of(run)}
        if unseen := {job.name: job for job in made if job.name not in seen}:
            self._unseen[run] = unseen
        failed = [each for each in tried if isinstance(each, Exception)]
        refused = [each for each in failed if isinstance(each, (AdmissionDenied, KubernetesInvalid, Conflict))]
        if refused:
            await self._take_back(run, bodies, namespace)
            if not made and isinstance(refused[0], AdmissionDenied) and (quota := describe_quota(refused[0].message)):
                raise HeldUp(Reason.QUOTA, quota)
        if failed:
            raise (refused or failed)[0]
        return made

    async def _tried(self, run: Run, body: Fields, namespace: str) -> Job | Exception:
        try:
            return await self._job(run, body, namespace)
        except (KubernetesError, PenstockError) as error:
            return error

    async def _take_back(self, run: Run, bodies: list[Fields], namespace: str) -> None:
        """Remove everything of a run of which one Job is refused for good."""
        await self._api.delete(Service, bodies[0]["metadata"]["name"], namespace)
        await self.remove(run)

    async def _give_services(self, run: Run) -> None:
        """Give a Service to its Job, if a server was killed before it could."""
        for job in self._cluster.jobs_of(run):
            service = self._cluster.services.get(job.name, job.namespace)
            if service and not service.metadata.owner_references:
                await self._api.amend(service, build_owner_patch(job))

    async def _give_secret(self, launch: Launch, owners: Sequence[Job], namespace: str) -> None:
        secret = build_secret(launch, owners)
        if secret is None:
            return
        try:
            await self._api.create(Secret, secret, namespace)
        except AlreadyExists:
            name = secret["metadata"]["name"]
            if not is_owned(await self._api.get(Secret, name, namespace), owners):
                raise Conflict(
                    f"There is a Secret {namespace}/{name} in the cluster that Penstock did not make.",
                    hint=f"kubectl delete secret -n {namespace} {name}",
                ) from None

    async def _create_service(self, body: Fields, namespace: str) -> None:
        try:
            await self._api.create(Service, body, namespace)
        except (KubernetesNotFound, KubernetesForbidden) as error:
            raise self._namespaces.missing(namespace, error) from error
        except AlreadyExists:
            log.debug("%s is there already", body["metadata"]["name"])

    async def _job(self, run: Run, body: Fields, namespace: str) -> Job:
        name: str = body["metadata"]["name"]
        try:
            return await self._api.create(Job, body, namespace)
        except (KubernetesNotFound, KubernetesForbidden) as error:
            raise self._namespaces.missing(namespace, error) from error
        except AlreadyExists:
            found = await self._api.get(Job, name, namespace)
            if names.run_of(found) == run:
                return found
            raise Conflict(
                f"There is a Job {namespace}/{name} in the cluster that Penstock did not make.",
                hint=f"kubectl delete job -n {namespace} {name}",
            ) from None

    def _known(self, run: Run) -> list[Job]:
        return [*self._cluster.jobs_of(run), *self._unseen.get(run, {}).values()]

    async def _find(self, run: Run) -> list[Job]:
        """Return the Jobs of a run; asks the server when the cache has none, since it may be a moment behind."""
        return self._known(run) or await self._api.list(Job, self._namespaces.scope, labels=names.selector(run))

    # -- stop ----------------------------------------------------------------------------------------------------

    async def stop(self, run: Run, grace: int) -> None:
        """Suspend the Jobs: Kubernetes ends their pods, each with the grace it was made with; a shorter one is said to
        the pods themselves. That a run not yet started is stopped is only remembered here: the store wants it
        stopped, too."""
        if self._graces.get(run, grace + 1) <= grace:
            return
        found = [job for job in await self._find(run) if not is_finished(job)]
        await _each(self._suspend, found)
        if found and grace < min(_grace_of(job) for job in found):
            await _each(lambda pod: self._end(pod, grace), self._cluster.pods_of(run))
        self._graces[run] = grace

    async def _suspend(self, job: Job) -> None:
        if names.STOP not in job.annotations:
            change: Fields = {"metadata": {"annotations": {names.STOP: iso(now())}}}
            await self._api.amend(job, change | await suspend_patch(self._api, job))

    async def _end(self, pod: Pod, grace: int) -> None:
        await self._api.delete(Pod, pod.name, pod.namespace, uid=pod.uid, grace=max(grace, 1))

    # -- afterwards ----------------------------------------------------------------------------------------------

    async def settle(self, run: Run, keep: int) -> None:
        """Let Kubernetes remove a Job that has ended. One that was suspended has not ended in its eyes, so it is marked
        with when it may go, and removed in a sweep."""
        due = iso(now() + timedelta(seconds=keep))

        async def mark(job: Job) -> None:
            change: Fields = {"metadata": {"annotations": {names.SETTLED: due}}}
            if is_finished(job):
                change["spec"] = {"ttlSecondsAfterFinished": keep}
            await self._api.amend(job, change)

        found = [job for job in self._cluster.jobs_of(run) if names.SETTLED not in job.annotations]
        if keep:
            await _each(mark, found)
        else:
            await _each(self._delete, self._cluster.jobs_of(run))
        for service in self._cluster.services_of(run):
            if not service.metadata.owner_references:  # its Job was never made
                await self._api.delete(Service, service.name, service.namespace)
        self._graces.pop(run, None)

    async def remove(self, run: Run) -> None:
        """Remove a run, also while it runs, with the grace it has. Most went long ago, and cost no call."""
        found = await self._find(run) if self._cluster.trouble() else self._known(run)
        if found:
            self._removed.add(run)
        for service in self._cluster.services_of(run):
            await self._api.delete(Service, service.name, service.namespace)
        try:
            await _each(self._delete, found)
        except BaseException:
            self._removed.discard(run)
            raise
        if not self._cluster.jobs_of(run):
            self._removed.discard(run)
        for noted in (self._unseen, self._graces, self._never):
            noted.pop(run, None)

    async def _delete(self, job: Job) -> None:
        """Delete a Job and with it its Service."""
        await self._api.delete(Job, job.name, job.namespace, uid=job.uid or None, propagation="Foreground")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            moment = now()
            for job in [job for job in self._cluster.jobs.all() if _due(job, moment)]:
                try:
                    await self._delete(job)
                except Exception as error:
                    log.warning("%s could not be removed: %s", job.name, error)


async def _each(work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> R:
        async with limit:
            return await work(item)

    return await asyncio.gather(*(one(item) for item in items))


def _as_stopped(report: Report) -> Report:
    """Call the pods of a stopped run stopped: the watch of pods may show them deleted before that of Jobs says why."""
    stopped = {"state": State.STOPPED, "reason": Reason.STOPPED_BY_USER, "message": None}
    units = [
        unit.model_copy(update=stopped) if unit.reason is Reason.DELETED_OUTSIDE else unit for unit in report.units
    ]
    return report.model_copy(update={"units": tuple(units)})


def _grace_of(job: Job) -> int:
    text = job.annotations.get(names.GRACE, "")
    return int(text) if text.isdecimal() else 30


def _due(job: Job, moment: datetime) -> bool:
    text = job.annotations.get(names.SETTLED)
    if not text or names.run_of(job) is None or job.metadata.deletion_timestamp:
        return False
    try:
        return datetime.fromisoformat(text).astimezone(UTC) <= moment
    except ValueError:
        return False


def _never_ran(launch: Launch) -> Report:
    units = [
        Unit(
            attempt=launch.attempt,
            index=part if launch.spec.array else 0,
            rank=0 if launch.spec.array else part,
            state=State.STOPPED,
            reason=Reason.STOPPED_BY_USER,
            ended_at=now(),
        )
        for part in launch.indexes or range(launch.spec.parts)
    ]
    return Report(presence=Presence.ended, units=tuple(units))


OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def require_end(cluster: Cluster, run: Run) -> None:
    """Raise HeldUp while a pod of an earlier attempt may still run."""
    for attempt in range(1, run.attempt):
        for pod in cluster.pods_of(Run(run.workload_id, attempt)):
            node = cluster.nodes.get(pod.spec.node_name) if pod.spec.node_name else None
            if node and _may_run(pod, node):
                raise _held_up(attempt, node)


def _may_run(pod: Pod, node: KubernetesNode) -> bool:
    return not record_pod(pod, array=False).over and not any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def _held_up(attempt: int, node: KubernetesNode) -> HeldUp:
    ready = condition(node.status.conditions, "Ready")
    if ready and ready.true:
        said = f"attempt {attempt} is still being ended on {node.name}; this one starts when that is done"
        return HeldUp(Reason.IN_QUEUE, said)
    said = (
        f"attempt {attempt} may still run on {node.name}, which does not answer; this one starts when {node.name} "
        f"answers again or is deleted from the cluster, or when an admin says that it is off: "
        f"kubectl taint nodes {node.name} {OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    )
    return HeldUp(Reason.NODE_LOST, said)
