"""Observe runs: their state, their logs and their events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from penstock.domain.model import now
from penstock.domain.nodes import Node
from penstock.domain.quantities import parse_duration
from penstock.engines.base import Event, LogQuery, Report, Run
from penstock.engines.kubernetes import events as happenings
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesError
from penstock.engines.kubernetes.api.objects.base import condition
from penstock.engines.kubernetes.api.objects.jobs import Job
from penstock.engines.kubernetes.api.objects.nodes import KubernetesNode
from penstock.engines.kubernetes.api.objects.pods import Pod
from penstock.engines.kubernetes.api.objects.storage import PersistentVolumeClaim
from penstock.engines.kubernetes.logs.collect import LogCollector
from penstock.engines.kubernetes.nodes.inventory import Inventory, changes_room
from penstock.engines.kubernetes.state.last_seen import PodRecord, RunPods, record_pod
from penstock.engines.kubernetes.state.report import Snapshot, current, is_array, is_lost, is_quiet, report
from penstock.engines.kubernetes.waiting.autoscaler import read_autoscaler
from penstock.engines.kubernetes.waiting.gang import Gang
from penstock.engines.kubernetes.waiting.hopeless import Verdicts, Waiting
from penstock.engines.kubernetes.waiting.kueue import KueueQueues
from penstock.engines.kubernetes.waiting.products import Products
from penstock.engines.kubernetes.waiting.reasons import WaitReason, WaitReasons
from penstock.settings import Settings

log = logging.getLogger(__name__)

RETRY = 5.0
LONGEST_TIMER = 3600.0
ROOM_PAUSE = timedelta(seconds=1)
"""Where one pod has ended there are often more."""


class Observing:
    def __init__(
        self,
        api: KubernetesApi,
        cluster: Cluster,
        settings: Settings,
        *,
        ended: Callable[[Run], bool] = lambda _: False,
    ) -> None:
        """`ended` knows runs that have ended and of which the cluster has nothing."""
        self._cluster = cluster
        self._ended = ended
        self.stock = Inventory(cluster.nodes, cluster.pods, cluster.job_of, settings.kubernetes_tolerations)
        self._queues = KueueQueues(api, cluster, again=self._look_at)
        self._autoscaler = read_autoscaler(settings)
        self._reasons = WaitReasons(cluster, self.stock, self._autoscaler, self._queues.why)
        self._logs = LogCollector(
            api,
            settings.data_dir / "kubernetes" / "runs",
            settings.log_limit,
            pod_of=self._pod_of,
            done=cluster.changed,
            over=self._is_over,
        )
        self._verdicts = Verdicts(api, cluster, parse_duration(settings.pull_patience), again=self._look_at)
        patience = parse_duration(settings.placement_timeout)
        self._gang = Gang(api, cluster, self.stock, self._autoscaler, patience, again=self._look_at)
        self._products = Products(api, cluster, self.stock)
        self._notes: dict[Run, RunPods] = {}
        self._compared: set[Run] = set()
        """Runs of which the notes were compared with what is there."""
        self._removed: set[Run] = set()
        self._timers: dict[Run, asyncio.TimerHandle] = {}
        self._looking: dict[Run, asyncio.Task[None]] = {}
        self._again: set[Run] = set()
        """Changed while they were looked at."""
        self._watching: asyncio.Task[None] | None = None
        self._preparing: asyncio.Future[Any] | None = None
        """Counts thousands of nodes before someone waits for it, and ends removals that a crash cut short."""
        self._subscribed: list[Callable[[], None]] = []

    # life

    async def open(self) -> None:
        """After the cluster's own `open`."""
        self._subscribed = [
            self._cluster.pods.subscribe(self._pod_changed),
            self._cluster.pods.subscribe(self._room_changed),
            self._cluster.nodes.subscribe(self._room_changed),
        ]
        for pod in list(self._cluster.pods.all()):
            self._pod_changed(None, pod)
        self._queues.open()
        self._watching = asyncio.create_task(self._watch())
        self._preparing = asyncio.gather(self.stock.nodes(), self._logs.sweep())
        for run in self._cluster.runs():
            if not all(is_quiet(job) and names.PLACEMENT not in job.annotations for job in self._cluster.jobs_of(run)):
                self._begin_to_look(run)

    async def close(self) -> None:
        for unsubscribe in self._subscribed:
            unsubscribe()
        for timer in self._timers.values():
            timer.cancel()
        tasks = [*self._looking.values(), *(each for each in (self._watching, self._preparing) if each)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._queues.close()
        await self._logs.close()

    # what is

    async def nodes(self) -> list[Node]:
        self._cluster.require()
        found = await self.stock.nodes()
        if trouble := self._cluster.trouble():
            old = {"ready": False, "message": f"as last known: {trouble}"}
            return [node.model_copy(update=old) for node in found]
        return found

    def observe(self, run: Run) -> Report:
        self._cluster.require()
        return report(self._view(run))

    def events(self, run: Run) -> list[Event]:
        return happenings.events_of(self._cluster, run)

    def volume_events(self, claim: PersistentVolumeClaim) -> list[Event]:
        return happenings.volume_events(self._cluster, claim)

    def logs(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        return self._logs.read(run, part, query)

    def changes(self) -> AsyncIterator[Run]:
        return self._cluster.changes()

    def changed(self, run: Run) -> None:
        """It ended, or something else happened that the cluster does not show."""
        self._cluster.changed(run)
        self._logs.ring(run)

    async def remove(self, run: Run) -> None:
        """What is stored of it; after its Job was removed."""
        self._removed.add(run)
        self._notes.pop(run, None)
        self._compared.discard(run)
        if timer := self._timers.pop(run, None):
            timer.cancel()
        try:
            await self._logs.remove(run)
        finally:
            if not self._cluster.pods_of(run):
                self._removed.discard(run)

    # pods

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        run = names.run_of(pod) if pod else None
        if pod is None or run is None or not self._cluster.is_at_home(pod):
            return
        if run in self._removed:
            if not self._cluster.pods_of(run):
                self._removed.discard(run)
            return
        job = self._cluster.job_of(pod)
        notes = self._notes_of(run)
        seen = notes.see(record_pod(pod, array=job is not None and is_array(job)))
        if after is None:
            notes.lose(seen.part, pod.uid, now())
        self._logs.see(run, notes.units[seen.part])

    def _notes_of(self, run: Run) -> RunPods:
        if run not in self._notes:
            self._notes[run] = RunPods(self._logs.run_dir(run))
        return self._notes[run]

    def _units(self, run: Run) -> dict[int, PodRecord]:
        """What was seen of its pods; those that vanished while no server ran are seen to be gone now."""
        if run in self._removed:
            return {}
        if run not in self._notes and not self._cluster.jobs_of(run) and not self._logs.run_dir(run).exists():
            return {}
        notes = self._notes_of(run)
        if run not in self._compared and self._cluster.read:
            self._compared.add(run)
            for seen in list(notes.units.values()):
                if not seen.over and self._pod_of(seen) is None:
                    notes.lose(seen.part, seen.uid, now())
        return notes.units

    def _pod_of(self, seen: PodRecord) -> Pod | None:
        pod = self._cluster.pods.get(seen.pod, seen.namespace)
        return pod if pod and pod.uid == seen.uid else None

    # a run

    def _view(self, run: Run) -> Snapshot:
        jobs = self._cluster.jobs_of(run)
        units = current(jobs, self._units(run))
        waits: dict[int, Waiting] = {}
        view = Snapshot(
            run=run,
            jobs=jobs,
            units=units,
            now=now(),
            why=lambda part: self._why(run, part, units, jobs, waits),
            kept=lambda part: self._kept(view, part),
            printed=partial(self._logs.printed, run),
            lost_nodes=frozenset(node for seen in units.values() if (node := self._lost_node(seen))),
            gives_back=self._gang.gives_back(run),
            trouble=self._cluster.trouble(),
        )
        return view

    def _why(
        self, run: Run, part: int, units: Mapping[int, PodRecord], jobs: list[Job], known: dict[int, Waiting]
    ) -> WaitReason:
        waiting = self._waits(part, units.get(part), jobs, known)
        due = self._verdicts.due(run, waiting)
        if due is None or waiting.why.at_once:
            return waiting.why
        said = f"{waiting.why.message}; if that does not change it ends at {due.astimezone():%H:%M:%S}"
        return WaitReason(waiting.why.state, waiting.why.reason, said)

    def _waits(self, part: int, seen: PodRecord | None, jobs: list[Job], known: dict[int, Waiting]) -> Waiting:
        """What a part waits for; for the many of an array that have no pod yet it is the same."""
        pod = self._pod_of(seen) if seen else None
        key = part if pod else -1
        if key not in known or names.ARRAY_INDEX in known[key].job.labels:
            own = [job for job in jobs if names.ARRAY_INDEX not in job.labels or names.part_of(job) == part]
            known[key] = Waiting(part, (own or jobs or [Job()])[0], pod, self._reasons.why(own, pod))
        return known[key]

    def _kept(self, view: Snapshot, part: int) -> bool:
        seen = view.units.get(part)
        if seen is None:
            return True
        if is_lost(view, seen):
            self._logs.give_up(view.run, part, f"its node {seen.node} was lost before its last output could be read")
        return self._logs.kept(view.run, seen)

    def _lost_node(self, seen: PodRecord) -> str | None:
        """The name of its node, if that does not answer or is gone."""
        if seen.over or not seen.node:
            return None
        node = self._cluster.nodes.get(seen.node)
        ready = condition(node.status.conditions, "Ready") if node else None
        return seen.node if ready is None or ready.status == "Unknown" else None

    def _is_over(self, run: Run, part: int) -> bool:
        """A part of which nothing is kept has ended, or was never to be."""
        if self._ended(run):
            return True
        if not self._cluster.read:
            return False
        units = report(self._view(run)).units
        return any(unit.ended_at is not None for unit in units if part == (unit.index or unit.rank))

    # what has to be done

    async def _watch(self) -> None:
        async for run in self._cluster.changes():
            self._logs.ring(run)
            if run in self._looking:
                self._again.add(run)
            else:
                self._begin_to_look(run)

    def _begin_to_look(self, run: Run) -> None:
        self._looking[run] = asyncio.create_task(self._look(run))
        self._looking[run].add_done_callback(partial(self._looked, run))

    def _looked(self, run: Run, task: asyncio.Task[None]) -> None:
        self._looking.pop(run, None)
        if run in self._again and not task.cancelled():
            self._again.discard(run)
            self._begin_to_look(run)
        if not task.cancelled() and (error := task.exception()):
            if not isinstance(error, KubernetesError):
                log.error("looking at %s", run.workload_id, exc_info=error)
            asyncio.get_running_loop().call_later(RETRY, self._cluster.changed, run)

    async def _look(self, run: Run) -> None:
        if not self._cluster.read or self._cluster.trouble():
            return
        await self._end_what_is_lost(run)
        waits = self._waiting_parts(run)
        await self._verdicts.look(run, waits)
        await self._products.look(run)
        if run not in self._products.awaited:
            await self._gang.look(run)
        await self._queues.look(run)

    def _room_changed(self, before: Pod | KubernetesNode | None, after: Pod | KubernetesNode | None) -> None:
        """What waits for room without having pods is told by nobody when there is some."""
        if changes_room(before, after):
            for run in self._gang.held | self._products.awaited:
                self._look_at(run, now() + ROOM_PAUSE)

    def _waiting_parts(self, run: Run) -> dict[int, Waiting]:
        """Those that have a pod that does not run yet; or all of it, as one, if Kubernetes cannot even make pods."""
        jobs = self._cluster.jobs_of(run)
        units = current(jobs, self._units(run))
        known: dict[int, Waiting] = {}
        waits = {
            part: self._waits(part, seen, jobs, known)
            for part, seen in units.items()
            if not seen.ran and not seen.over and not seen.deleting
        }
        if not units and jobs:
            waits[names.part_of(jobs[0])] = self._waits(names.part_of(jobs[0]), None, jobs, known)
        return waits

    async def _end_what_is_lost(self, run: Run) -> None:
        """Nothing tells that the time is over in which a node should have ended a pod: it is looked at then."""
        view = self._view(run)
        for part, seen in view.units.items():
            if seen.node not in view.lost_nodes:
                continue
            if is_lost(view, seen) and len(view.jobs) == 1:
                await self._verdicts.lose(view.jobs[0], part, seen.node)
            elif seen.due and seen.due > view.now:
                self._look_at(run, seen.due)

    def _look_at(self, run: Run, moment: datetime) -> None:
        wait = min(max((moment - now()).total_seconds(), 0.0) + 0.01, LONGEST_TIMER)
        loop = asyncio.get_running_loop()
        known = self._timers.get(run)
        if known and not known.cancelled() and loop.time() < known.when() <= loop.time() + wait:
            return
        if known:
            known.cancel()
        self._timers[run] = loop.call_later(wait, self._cluster.changed, run)
