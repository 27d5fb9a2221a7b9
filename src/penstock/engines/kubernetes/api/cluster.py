"""Keep what the cluster has: one cache for each kind Penstock watches, and which runs have changed.

Jobs and Services are only ours, claims and events those of our namespaces. Pods are everyone's, since they are what
holds GPUs and uses claims; of those that are not ours only that is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from penstock.domain.model import now
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cache import Cache, EventCache, Staleness, by_claim, by_node, trim_pod
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import KubernetesError, KubernetesForbidden
from penstock.engines.kubernetes.api.objects import OVER, Job, KubernetesObject, Pod
from penstock.engines.kubernetes.api.resources import (
    KubernetesEvent,
    KubernetesNode,
    KubernetesStorageClass,
    PersistentVolumeClaim,
    Service,
)
from penstock.engines.kubernetes.lease import HeldLease
from penstock.engines.shared.wakeup import Changes
from penstock.errors import Unavailable

log = logging.getLogger(__name__)

OURS = f"{names.MANAGED}={names.PENSTOCK}"
OPEN_PATIENCE = 10.0
"""Seconds a starting server waits for the cluster; after that it starts, and says what it waits for."""
RIGHTS_PATIENCE = 3.0
"""Seconds of these for asking what Penstock may see; without an answer the caches find out."""

T = TypeVar("T", bound=KubernetesObject)


class Cluster:
    def __init__(
        self,
        api: KubernetesApi,
        namespace: str | None,
        *,
        pods: str | None = None,
        ours: Callable[[str], bool] = lambda _: True,
        lease: HeldLease | None = None,
    ) -> None:
        """Penstock's objects are in `namespace`, or with None in all namespaces that are `ours`; `pods` are seen of all
        namespaces unless one is named. Nothing is read, and so nothing is done, before the `lease` is held."""
        self.api, self.namespace, self._lease = api, namespace, lease
        in_ours = ours if namespace is None else namespace.__eq__
        self.jobs = Cache[Job](api, Job, namespace, labels=OURS, indexes={"run": _by_run}, keep=_only(in_ours))
        self.services = Cache[Service](api, Service, namespace, labels=OURS, indexes={"run": _by_run})
        self.pods = Cache[Pod](
            api,
            Pod,
            pods,
            indexes={"run": _by_run, "claim": by_claim, "node": by_node},
            keep=lambda pod: trim_pod(pod, in_ours),
        )
        self.claims = Cache[PersistentVolumeClaim](api, PersistentVolumeClaim, namespace, keep=_only(in_ours))
        self.nodes = Cache[KubernetesNode](api, KubernetesNode)
        self.classes = Cache[KubernetesStorageClass](api, KubernetesStorageClass)
        self.events = EventCache(api, namespace, ours=in_ours)
        self._caches: tuple[Cache[Any], ...] = (
            self.jobs,
            self.services,
            self.pods,
            self.claims,
            self.nodes,
            self.classes,
            self.events,
        )
        self._changes = Changes()
        self._put_off: set[Run] = set()
        """Runs to tell of when the cluster answers again."""
        self._timers: dict[Run, asyncio.TimerHandle] = {}
        self._homes: dict[str, str] = {}
        """Namespaces of workloads by their ids, where each owner has one."""
        self._unread: set[Cache[Any]] = set(self._caches)
        self._reading: list[asyncio.Task[None]] = []
        self._refused: KubernetesError | None = None

    @classmethod
    async def of_rights(
        cls,
        api: KubernetesApi,
        namespace: str | None,
        *,
        ours: Callable[[str], bool] = lambda _: True,
        lease: HeldLease | None = None,
    ) -> Cluster:
        """Create one that sees as many pods as Penstock may: with the rights of one namespace, who else has GPUs is
        unknown."""
        try:
            everyone = namespace is None or await api.hurried(RIGHTS_PATIENCE).may("list", Pod)
        except KubernetesError:
            everyone = True
        return cls(api, namespace, pods=None if everyone else namespace, ours=ours, lease=lease)

    # life

    async def open(self) -> None:
        """Return when all was read once and is watched, or after a while without it: then `require` says why."""
        self.jobs.aged = self.pods.aged = self._aged
        for cache in self._caches:
            self._reading.append(asyncio.create_task(self._read(cache)))
        await asyncio.wait(self._reading, timeout=OPEN_PATIENCE)
        if self._refused:
            await self.close()
            raise self._refused.shown()
        self._subscribe()

    async def _read(self, cache: Cache[Any]) -> None:
        if self._lease:
            await self._lease.held.wait()
        cache.start()
        try:
            await cache.synced()
        except KubernetesForbidden as error:
            if cache is self.services or cache is self.classes:
                log.warning("not shown: %s", error.message)
            else:
                self._refused = error
                return
        except KubernetesError as error:
            self._refused = error
            return
        else:
            await cache.up.wait()
        self._unread.discard(cache)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, *(cache.close() for cache in self._caches), return_exceptions=True)

    @property
    def read(self) -> bool:
        """Everything was read at least once."""
        return not self._unread

    def require(self) -> None:
        """Raise Unavailable while nothing is known of the cluster yet."""
        if self._lease:
            self._lease.require()
        if not self._unread:
            return
        stale = next((cache.stale for cache in self._unread if cache.stale), None)
        why = self.api.trouble or (stale.why if stale else "nothing was read yet")
        raise Unavailable(f"Kubernetes: {why}", hint="Penstock keeps trying; running jobs go on")

    def require_for(self, run: Run) -> None:
        """Raise Unavailable also while the cluster does not answer any more; the run is told of when it does."""
        try:
            self.require()
            if trouble := self.trouble():
                raise Unavailable(trouble)
        except Unavailable:
            self._put_off.add(run)
            raise

    def trouble(self) -> str | None:
        """Why what is known of runs may be old; None when it is up to date."""
        stale: list[Staleness] = [cache.stale for cache in (self.jobs, self.pods) if cache.stale]
        if not stale:
            return None
        since = min(each.since for each in stale).astimezone()
        refused = next((each.why for each in stale if each.refused), None)
        said = f"has refused Penstock's credentials ({refused})" if refused else "has not answered"
        return f"the cluster's API {said} since {since:%H:%M}; running jobs go on"

    # reading

    def keep_to(self, workload_id: str, namespace: str) -> None:
        """Look for objects of this workload only in this namespace: in another one others may write what they like."""
        self._homes[workload_id] = namespace

    def forget(self, workload_id: str) -> None:
        self._homes.pop(workload_id, None)

    def is_at_home(self, found: KubernetesObject) -> bool:
        run = names.run_of(found)
        home = self._home(run) if run else None
        return home is None or found.namespace == home

    def _home(self, run: Run) -> str | None:
        """The namespace of a run; None where all share one. Before the store has named it, that of its first Job."""
        if self.namespace is not None:
            return None
        if home := self._homes.get(run.workload_id):
            return home
        first = min(self.jobs.by("run", _key(run)), key=lambda job: str(job.metadata.creation_timestamp), default=None)
        return first.namespace if first else None

    def _at_home(self, run: Run, found: list[T]) -> list[T]:
        home = self._home(run)
        return found if home is None else [each for each in found if each.namespace == home]

    def jobs_of(self, run: Run) -> list[Job]:
        return self._at_home(run, self.jobs.by("run", _key(run)))

    def services_of(self, run: Run) -> list[Service]:
        return self._at_home(run, self.services.by("run", _key(run)))

    def pods_of(self, run: Run) -> list[Pod]:
        return self._at_home(run, self.pods.by("run", _key(run)))

    def nodes_with_gpus(self) -> list[KubernetesNode]:
        return [node for node in self.nodes.all() if node.status.allocatable.get(names.GPU, "0") != "0"]

    def pods_using(self, namespace: str, claim: str) -> list[Pod]:
        """Return the pods that have a claim mounted, or will; those that have ended do not hold it."""
        return [pod for pod in self.pods.by("claim", f"{namespace}/{claim}") if pod.status.phase not in OVER]

    def job_of(self, pod: Pod) -> Job | None:
        name = pod.labels.get(names.JOB_NAME)
        return self.jobs.get(name, pod.namespace) if name else None

    def runs(self) -> set[Run]:
        return {run for job in self.jobs.all() if (run := names.run_of(job))}

    # changes

    def changed(self, run: Run) -> None:
        """Tell whoever listens that something about this run changed."""
        self._changes.tell(run, sum(job.completions for job in self.jobs_of(run)))

    def changed_at(self, run: Run, moment: datetime) -> None:
        """Tell that this run changed when the moment has come, unless an earlier one is set."""
        wait = max((moment - now()).total_seconds(), 0.0) + 0.01
        loop = asyncio.get_running_loop()
        known = self._timers.get(run)
        if known and known.when() <= loop.time() + wait:
            return
        if known:
            known.cancel()
        self._timers[run] = loop.call_later(wait, self._due, run)

    def _due(self, run: Run) -> None:
        del self._timers[run]
        self.changed(run)

    def changes(self) -> AsyncIterator[Run]:
        return self._changes.follow()

    def _subscribe(self) -> None:
        self.jobs.subscribe(self._ours_changed)
        self.pods.subscribe(self._ours_changed)
        self.claims.subscribe(self._claim_changed)
        self.nodes.subscribe(self._node_changed)
        self.events.subscribe(self._event_changed)
        for run in self.runs():
            self.changed(run)

    def _ours_changed(self, before: KubernetesObject | None, after: KubernetesObject | None) -> None:
        found = after or before
        if found and (run := names.run_of(found)):
            self.changed(run)

    def _claim_changed(self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> None:
        found = after or before
        if found:
            self._tell_all(self.pods.by("claim", f"{found.namespace}/{found.name}"))

    def _node_changed(self, before: KubernetesNode | None, after: KubernetesNode | None) -> None:
        if before and after and _health(before) == _health(after):
            return
        found = after or before
        if found:
            self._tell_all(self.pods.by("node", found.name))

    def _event_changed(self, before: KubernetesEvent | None, after: KubernetesEvent | None) -> None:
        about = after.involved_object if after else None
        if about is None:
            return
        found: KubernetesObject | None = None
        if about.kind == "PersistentVolumeClaim":
            self._tell_all(self.pods.by("claim", f"{about.namespace}/{about.name}"))
        elif about.kind == "Job":
            found = self.jobs.get(about.name, about.namespace)
        elif about.kind == "Pod":
            found = self.pods.get(about.name, about.namespace)
        if found and (run := names.run_of(found)):
            self.changed(run)

    def _tell_all(self, pods: Iterable[Pod]) -> None:
        for run in {run for pod in pods if (run := names.run_of(pod))}:
            self.changed(run)

    def _aged(self) -> None:
        """Tell runs that the cluster does not answer any more, or does again."""
        for run in self.runs() | self._put_off:
            self.changed(run)
        if self.trouble() is None:
            self._put_off.clear()


def _only(ours: Callable[[str], bool]) -> Callable[[T], T | None]:
    return lambda found: found if ours(found.namespace) else None


def _key(run: Run) -> str:
    return f"{run.workload_id}/{run.attempt}"


def _by_run(found: KubernetesObject) -> Iterable[str]:
    run = names.run_of(found)
    return (_key(run),) if run else ()


def _health(node: KubernetesNode) -> tuple[object, ...]:
    return tuple((each.type, each.status) for each in node.status.conditions)
