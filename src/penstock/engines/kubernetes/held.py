"""The records of workloads that wait for others, each beside a Job that never starts: a lost store finds them, too."""

from __future__ import annotations

from penstock.domain.workloads import Workload
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api import Api
from penstock.engines.kubernetes.cluster import Cluster
from penstock.engines.kubernetes.failures import AlreadyExists, NotFound
from penstock.engines.kubernetes.namespaces import Namespaces
from penstock.engines.kubernetes.objects import Job
from penstock.engines.kubernetes.pods import Fields

IMAGE = "penstock.dev/waits-for-others"
"""There is none of this name: whoever resumes such a Job starts nothing."""


class Held:
    def __init__(self, api: Api, cluster: Cluster, namespaces: Namespaces) -> None:
        self._api = api
        self._cluster = cluster
        self._namespaces = namespaces
        self._made: dict[Run, tuple[str, str]] = {}
        """Name and namespace of those that the watch may not have shown yet."""

    def all(self) -> dict[Run, Job]:
        return {run: job for job in self._cluster.jobs.all() if (run := names.held_run_of(job))}

    async def keep(self, workload: Workload, record: str) -> None:
        """Makes it, or writes what it waits for by now."""
        body = _job(workload, record)
        name, namespace = body["metadata"]["name"], await self._namespaces.ready(workload.user, workload.group)
        known = self._cluster.jobs.get(name, namespace)
        if known and known.annotations.get(names.RECORD) == record:
            return
        self._made[Run(workload.id, workload.attempt)] = (name, namespace)
        try:
            await self._api.create(Job, body, namespace)
        except NotFound as error:
            raise self._namespaces.missing(namespace) from error
        except AlreadyExists:
            change: Fields = {"metadata": {"annotations": {names.RECORD: record}}}
            await self._api.patch(Job, name, change, namespace)

    async def release(self, run: Run) -> None:
        """It was handed over, or never will be."""
        known = {(job.name, job.namespace) for job in self._cluster.held_of(run)}
        if made := self._made.get(run):
            known.add(made)
        for name, namespace in known:
            await self._api.delete(Job, name, namespace, propagation="Background")
        self._made.pop(run, None)

    async def sweep(self) -> None:
        """A server that was killed may have left some that were handed over."""
        for run in self.all():
            if self._cluster.jobs_of(run):
                await self.release(run)


def _job(workload: Workload, record: str) -> Fields:
    run = Run(workload.id, workload.attempt)
    labels = {
        names.MANAGED: names.PENSTOCK,
        names.HELD: workload.id,
        names.ATTEMPT: str(workload.attempt),
        names.USERNAME: names.label(workload.user),
    }
    annotations = {names.OWNER: f"{workload.group}/{workload.user}", names.RECORD: record}
    container = {"name": names.CONTAINER, "image": IMAGE}
    pod = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    return {
        "metadata": {"name": names.held_name(workload.name, run), "labels": labels, "annotations": annotations},
        "spec": {"suspend": True, "backoffLimit": 0, "template": {"spec": pod}},
    }
