"""Take snapshots of runs: the cluster's caches, the records of pods and the collected logs, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from penstock.domain.model import now
from penstock.domain.quantities import parse_duration
from penstock.engines.base import Report, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.objects import Job, Pod, condition
from penstock.engines.kubernetes.logs.collect import LogCollector
from penstock.engines.kubernetes.pod_records import PodRecords
from penstock.engines.kubernetes.state.jobs import list_parts, select_current_pods
from penstock.engines.kubernetes.state.pods import PodRecord
from penstock.engines.kubernetes.state.report import Snapshot, Wait, WaitReason, compute_report
from penstock.engines.kubernetes.waiting.holds import gives_back_at
from penstock.engines.kubernetes.waiting.reasons import PendingReasons
from penstock.settings import Settings


class Snapshots:
    def __init__(
        self, cluster: Cluster, records: PodRecords, logs: LogCollector, reasons: PendingReasons, settings: Settings
    ) -> None:
        self._cluster, self._records, self._logs, self._reasons = cluster, records, logs, reasons
        self._pull_patience = timedelta(seconds=parse_duration(settings.pull_patience))
        self._placement_timeout = timedelta(seconds=parse_duration(settings.placement_timeout))
        self._hopeless_since: dict[Run, dict[str, datetime]] = {}
        """When a wait that cannot end was first seen, by what waits and what it would end with."""

    def report(self, run: Run) -> Report:
        self._cluster.require()
        return compute_report(self.take(run))

    def take(self, run: Run) -> Snapshot:
        jobs = self._cluster.jobs_of(run)
        pods = select_current_pods(jobs, self._records.of(run))
        moment = now()
        return Snapshot(
            run=run,
            jobs=jobs,
            pods=pods,
            now=moment,
            waits=self._waits(run, jobs, pods, moment),
            logs={part: self._logs.progress(run, record) for part, record in pods.items() if record.ran},
            lost_nodes=frozenset(record.node for record in pods.values() if self._is_on_lost_node(record)),
            gives_back=gives_back_at(self._cluster, run, self._placement_timeout),
            trouble=self._cluster.trouble(),
        )

    def forget(self, run: Run) -> None:
        self._hopeless_since.pop(run, None)

    def _is_on_lost_node(self, record: PodRecord) -> bool:
        if record.over or not record.node:
            return False
        node = self._cluster.nodes.get(record.node)
        ready = condition(node.status.conditions, "Ready") if node else None
        return ready is None or ready.status == "Unknown"

    # what it waits for

    def _waits(self, run: Run, jobs: Sequence[Job], pods: Mapping[int, PodRecord], moment: datetime) -> dict[int, Wait]:
        """Of the many indexes of an array that have no pod yet, all wait for the same."""
        shape = list_parts(jobs, pods)
        own = {names.part_of(job): job for job in jobs if names.ARRAY_INDEX in job.labels}
        shared = [job for job in jobs if names.ARRAY_INDEX not in job.labels]
        without_pod: Wait | None = None
        waits: dict[int, Wait] = {}
        for part in shape.parts:
            record = pods.get(part)
            if (record and (record.over or record.started_at)) or (record is None and part in shape.completed):
                continue
            pod = self._records.pod(record) if record else None
            if pod or part in own:
                waits[part] = self._wait(run, [own[part]] if part in own else shared, pod, moment)
            else:
                without_pod = without_pod or self._wait(run, shared, None, moment)
                waits[part] = without_pod
        if not any(wait.ends_at for wait in waits.values()):
            self._hopeless_since.pop(run, None)
        return waits

    def _wait(self, run: Run, jobs: Sequence[Job], pod: Pod | None, moment: datetime) -> Wait:
        reason, job = self._reasons.why(jobs, pod), jobs[0] if jobs else Job()
        return Wait(reason, job, pod, self._ends_at(run, reason, (pod or job).uid, moment))

    def _ends_at(self, run: Run, reason: WaitReason, uid: str, moment: datetime) -> datetime | None:
        if reason.ends_as is None:
            return None
        if reason.at_once:
            return moment
        known = self._hopeless_since.setdefault(run, {})
        since = known.setdefault(f"{uid} {reason.ends_as}", reason.since or moment)
        return min(since, reason.since or since) + self._pull_patience
