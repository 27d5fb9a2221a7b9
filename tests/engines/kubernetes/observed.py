"""The part of the engine that observes runs and advances them, on a real cluster: Jobs are made as the engine would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.domain.model import iso, now
from penstock.engines.base import Launch, LogQuery, Presence, Report, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes import spec as jobs
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesError
from penstock.engines.kubernetes.api.objects import Job, Pod
from penstock.engines.kubernetes.api.resources import Service
from penstock.engines.kubernetes.controller import RunController
from penstock.engines.kubernetes.logs.collect import CollectedLogs, LogCollector
from penstock.engines.kubernetes.nodes.inventory import Inventory
from penstock.engines.kubernetes.pod_records import PodRecords
from penstock.engines.kubernetes.settings import read_pod_settings
from penstock.engines.kubernetes.snapshots import Snapshots
from penstock.engines.kubernetes.waiting.capacity import read_autoscaler
from penstock.engines.kubernetes.waiting.kueue import KueueQueues
from penstock.engines.kubernetes.waiting.reasons import PendingReasons
from penstock.errors import PenstockError
from penstock.settings import Settings
from tests.engines.launches import run_of
from tests.rig.cluster import Rig

IMAGE = "penstock-test:1"


async def becomes(
    changes: AsyncIterator[Run],
    observe: Callable[[], Awaitable[Report]],
    holds: Callable[[Report], Any],
    seconds: float = 100,
) -> Report:
    """The report once that holds, looked at whenever something is said to have changed."""
    report = None
    try:
        async with asyncio.timeout(seconds):
            while not holds(report := await observe()):
                await anext(changes)
    except TimeoutError:
        raise AssertionError(f"it never became what was waited for, but {report!r}") from None
    return report


@asynccontextmanager
async def advanced(changes: AsyncIterator[Run], advance: Callable[[Run], Awaitable[None]]) -> AsyncIterator[None]:
    """Advance every run that changes, as the reconciler does."""

    async def advance_all() -> None:
        async for run in changes:
            while True:
                try:
                    await advance(run)
                    break
                except (KubernetesError, PenstockError):
                    await asyncio.sleep(0.5)

    task = asyncio.create_task(advance_all())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()):
            raise error


@dataclass
class Observed:
    rig: Rig
    namespace: str
    settings: Settings
    api: KubernetesApi
    cluster: Cluster
    inventory: Inventory
    records: PodRecords
    collector: LogCollector
    logs: CollectedLogs
    snapshots: Snapshots
    controller: RunController

    # as the writing side does

    async def start(
        self, launch: Launch, products: Sequence[str] = (), change: Callable[[dict[str, Any]], None] | None = None
    ) -> Run:
        """`change` makes the Job's body into what a test needs."""
        if service := jobs.build_service(launch):
            await self.api.create(Service, service, self.namespace)
        for body in jobs.build_jobs(launch, read_pod_settings(self.settings), products):
            if change:
                change(body)
            await self.api.create(Job, body, self.namespace)
        return run_of(launch)

    async def stop(self, run: Run) -> None:
        change = {"metadata": {"annotations": {names.STOP: iso(now())}}, "spec": {"suspend": True}}
        for job in self.cluster.jobs_of(run):
            await self.api.patch(Job, job.name, change, self.namespace)

    # what is

    async def until(self, run: Run, holds: Callable[[Report], Any], seconds: float = 100) -> Report:
        """The report once that holds, looked at whenever the run is said to have changed."""

        async def look() -> Report:
            return self.snapshots.report(run)

        return await becomes(self.cluster.changes(), look, holds, seconds)

    async def remove(self, run: Run) -> None:
        self.records.remove(run)
        self.snapshots.forget(run)
        await self.collector.remove(run)

    async def ended(self, run: Run, seconds: float = 100) -> Report:
        return await self.until(run, lambda report: report.presence is Presence.ended, seconds)

    async def waits(self, run: Run, text: str) -> Report:
        """The report once it waits with that in its message."""
        return await self.until(
            run, lambda report: report.presence is Presence.waiting and text in (report.message or "")
        )

    async def running(self, run: Run) -> Report:
        return await self.until(run, lambda report: report.presence is Presence.running)

    async def log(self, run: Run, part: int = 0, **query: Any) -> bytes:
        return b"".join([data async for data in self.logs.read(run, part, LogQuery(**query))])

    async def printed(self, run: Run, text: bytes, part: int = 0) -> None:
        seen = b""
        async with asyncio.timeout(60):
            async for data in self.logs.read(run, part, LogQuery(follow=True)):
                seen += data
                if text in seen:
                    return
        raise AssertionError(f"{text!r} was never printed, only {seen!r}")

    def pod(self, run: Run, part: int = 0) -> Pod:
        """The newest: one that it follows may not be gone yet."""
        there = [pod for pod in self.cluster.pods_of(run) if names.part_of(pod) == part]
        return max(there, key=lambda pod: (pod.metadata.creation_timestamp, not pod.metadata.deletion_timestamp))

    def kubectl(self, *arguments: str) -> str:
        return self.rig.kubectl("-n", self.namespace, *arguments)


@asynccontextmanager
async def observed(rig: Rig, namespace: str, place: Path, **chosen: Any) -> AsyncIterator[Observed]:
    """On the directory of an earlier one it is a server that starts anew."""
    given = {"default_cpus": "20m", "kubernetes_image": IMAGE, "pull_patience": "3s", "placement_timeout": "4s"}
    api = KubernetesApi.open(chosen.pop("kubeconfig", rig.kubeconfig))
    settings = Settings(data_dir=place, engine="kubernetes", **(given | chosen))
    cluster = Cluster(api, namespace)
    inventory = Inventory(cluster, settings.kubernetes_tolerations)
    queues = KueueQueues(api, cluster)
    records = PodRecords(cluster, settings.data_dir / "kubernetes" / "runs")
    collector = LogCollector(api, cluster, records, settings.log_limit)
    reasons = PendingReasons(cluster, inventory, read_autoscaler(settings), queues.why)
    snapshots = Snapshots(cluster, records, collector, reasons, settings)
    logs = CollectedLogs(cluster, records, collector, snapshots.report)
    controller = RunController(api, cluster, snapshots, collector, inventory, queues, settings)
    seen = Observed(rig, namespace, settings, api, cluster, inventory, records, collector, logs, snapshots, controller)
    changes = cluster.changes()
    try:
        await cluster.open()
        for each in (queues, records, collector, logs):
            each.open()
        async with advanced(changes, controller.advance):
            yield seen
    finally:
        for each in (cluster, queues, collector, logs, api):
            await each.close()


def objects(text: str) -> list[dict[str, Any]]:
    """Of kubectl's answer."""
    found: list[dict[str, Any]] = json.loads(text)["items"]
    return found
