"""Run workloads and keep volumes on a Kubernetes cluster, which schedules, restarts, binds and cleans up.

What users ask for becomes Jobs and claims (`runs`, `volumes`), made in a namespace (`namespaces`) from a pod built here
(`spec`). What there is comes from caches that watches keep up to date (`api/cluster`), so reading costs the cluster
nothing: a snapshot of a run (`snapshots`) becomes its report (`state`), and `controller` does what is due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from penstock.domain.nodes import Node
from penstock.domain.quantities import parse_duration
from penstock.domain.users import Account
from penstock.domain.volumes import StorageClass, Volume
from penstock.domain.workloads import Spec, Workload
from penstock.engines.base import (
    Event,
    Found,
    GpuUse,
    Launch,
    LogQuery,
    Refusal,
    Report,
    Run,
    Session,
    Terminal,
    VolumeReport,
)
from penstock.engines.kubernetes import adoption, doctor, refusals
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import shown
from penstock.engines.kubernetes.controller import RunController
from penstock.engines.kubernetes.events import list_run_events, list_volume_events
from penstock.engines.kubernetes.exec import start_exec
from penstock.engines.kubernetes.gpus import GpuExporters
from penstock.engines.kubernetes.helpers import VolumeMeter
from penstock.engines.kubernetes.inspect import inspect_run, measure_part
from penstock.engines.kubernetes.lease import HeldLease
from penstock.engines.kubernetes.logs.collect import CollectedLogs, LogCollector
from penstock.engines.kubernetes.namespaces import Namespaces
from penstock.engines.kubernetes.nodes.activity import Activity
from penstock.engines.kubernetes.nodes.inventory import Inventory
from penstock.engines.kubernetes.nodes.kubelet import Kubelets
from penstock.engines.kubernetes.pod_records import PodRecords
from penstock.engines.kubernetes.ports import open_port
from penstock.engines.kubernetes.runs import KubernetesRuns, require_end
from penstock.engines.kubernetes.settings import read_pod_settings
from penstock.engines.kubernetes.snapshots import Snapshots
from penstock.engines.kubernetes.spec import plan_pod
from penstock.engines.kubernetes.volumes import KubernetesClaims
from penstock.engines.kubernetes.waiting import capacity, kueue
from penstock.engines.kubernetes.waiting.capacity import read_autoscaler
from penstock.engines.kubernetes.waiting.kueue import KueueQueues
from penstock.engines.kubernetes.waiting.reasons import PendingReasons
from penstock.engines.kubernetes.workdir import WorkdirSender
from penstock.engines.shared.refusals import idle_notices
from penstock.errors import Forbidden
from penstock.settings import Settings
from penstock.wire.measures import Measure, NodeMeasure
from penstock.wire.server import Check

log = logging.getLogger(__name__)

RUNS_PATIENCE = 5.0
"""Seconds until a call fails: creating volumes, starting, stopping and removing are tried again by the reconciler."""


class KubernetesEngine:
    name = "kubernetes"
    schedules = True
    enforces_sizes = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.lost: Callable[[str], None] = log.critical
        self.helper_image: str | None = settings.kubernetes_helper_image
        self._pods = read_pod_settings(settings)
        self._autoscaler = read_autoscaler(settings)
        self._closing = AsyncExitStack()

    async def open(self) -> None:
        """Open, also without a cluster that answers: then every call says so until it does."""
        settings, closing = self._settings, self._closing
        config = Path(settings.kubernetes_config) if settings.kubernetes_config else None
        self._api = KubernetesApi.open(config, settings.kubernetes_context or None)
        closing.push_async_callback(self._api.close)
        self._namespaces = Namespaces(self._api.hurried(RUNS_PATIENCE), settings)
        self._named = refusals.NamedSecrets(self._api, self._namespaces, settings.kubernetes_pull_secrets)
        closing.push_async_callback(self._namespaces.close)
        lease = HeldLease(self._api, self._namespaces.base, settings.data_dir, lambda why: self.lost(why))
        closing.push_async_callback(lease.close)
        await lease.open()
        self._cluster = await Cluster.of_rights(
            self._api, self._namespaces.scope, ours=self._namespaces.are_ours, lease=lease
        )
        await self._cluster.open()
        closing.push_async_callback(self._cluster.close)
        every = parse_duration(settings.gpu_sample)
        self._exporters = GpuExporters(self._api, self._cluster, settings.kubernetes_dcgm_namespace, every)
        kubelets = None
        if settings.kubernetes_kubelet_account:
            kubelets = Kubelets(self._api, settings.kubernetes_kubelet_account, settings.kubernetes_kubelet_ca)
            closing.push_async_callback(kubelets.close)
        self._activity = Activity(self._api, self._cluster, self._exporters, kubelets)
        self._runs = KubernetesRuns(self._api.hurried(RUNS_PATIENCE), self._cluster, self._namespaces, self._pods)
        self._runs.open()
        closing.push_async_callback(self._runs.close)
        await self._open_observation(closing)
        self._workdirs = WorkdirSender(self._api, self._cluster, settings.data_dir)
        self._workdirs.open()
        closing.push_async_callback(self._workdirs.close)
        self._claims = KubernetesClaims(self._api.hurried(RUNS_PATIENCE), self._cluster, self._namespaces)
        self._meter = VolumeMeter(self._api, self._claims, self._pods, settings.kubernetes_helper_image)
        closing.push_async_callback(self._meter.close)
        closing.push_async_callback(self._cluster.close)  # before all others, who are told of changes

    async def _open_observation(self, closing: AsyncExitStack) -> None:
        """Set up what reads runs, collects their logs, and does what is due for them."""
        api, cluster, settings = self._api, self._cluster, self._settings
        self._inventory = Inventory(cluster, settings.kubernetes_tolerations)
        hurried = api.hurried(RUNS_PATIENCE)
        queues = KueueQueues(hurried, cluster)
        closing.push_async_callback(queues.close)
        self._records = PodRecords(cluster, settings.data_dir / "kubernetes" / "runs")
        self._collector = LogCollector(api, cluster, self._records, settings.log_limit)
        closing.push_async_callback(self._collector.close)
        reasons = PendingReasons(cluster, self._inventory, self._autoscaler, queues.why)
        self._snapshots = Snapshots(cluster, self._records, self._collector, reasons, settings)
        self._logs = CollectedLogs(cluster, self._records, self._collector, self._report)
        closing.push_async_callback(self._logs.close)
        self._controller = RunController(
            hurried, cluster, self._snapshots, self._collector, self._inventory, queues, settings
        )
        for each in (queues, self._records, self._collector, self._logs):
            each.open()

    async def close(self) -> None:
        """Close what `open` has opened. What runs goes on."""
        await self._closing.aclose()

    @contextmanager
    def _acting(self, run: Run | None = None) -> Iterator[None]:
        """Do something in the cluster, once it is known; errors of the cluster are raised as Penstock's own."""
        self._cluster.require()
        if run:
            self._keep_to_namespace(run)
        with shown():
            yield

    # -- the cluster -------------------------------------------------------------------------------------------------

    async def checks(self) -> list[Check]:
        return await doctor.run_checks(
            self._api,
            self._cluster,
            self._claims,
            self._namespaces,
            self._exporters,
            self._activity,
            self._settings,
        )

    async def nodes(self) -> list[Node]:
        return self._inventory.nodes()

    async def found(self, nodes: Collection[str]) -> Found:
        with self._acting():
            found = adoption.find_records(self._cluster, self._namespaces)
            return await adoption.restore_values(self._api, self._cluster, found)

    # -- volumes -----------------------------------------------------------------------------------------------------

    def namespace(self, user: str, group: str) -> str:
        return self._namespaces.of(user, group)

    async def storage_classes(self) -> list[StorageClass]:
        self._cluster.require()
        return self._claims.classes()

    async def create_volume(self, volume: Volume, account: Account) -> None:
        with self._acting():
            await self._claims.create(volume, account)

    async def resize_volume(self, volume: Volume) -> None:
        with self._acting():
            await self._claims.resize(volume)

    async def delete_volume(self, volume: Volume) -> None:
        with self._acting():
            await self._claims.delete(volume)

    async def volume_reports(self, volumes: Sequence[Volume]) -> dict[str, VolumeReport]:
        self._cluster.require()
        return {volume.id: self._claims.report(volume) for volume in volumes}

    async def volume_usage(self, volume: Volume) -> int:
        self._cluster.require()
        return await self._meter.usage(volume)

    async def volume_users(self, volume: Volume) -> list[str]:
        self._cluster.require()
        return self._claims.users(volume)

    async def existing_claim(self, name: str, user: str, group: str) -> Volume | None:
        self._cluster.require()
        return self._claims.literal(name, user, group)

    async def volume_events(self, volume: Volume) -> list[Event]:
        claim = self._claims.find(volume)
        return list_volume_events(self._cluster, claim) if claim else []

    # -- runs --------------------------------------------------------------------------------------------------------

    async def refusals(self, spec: Spec, owner: tuple[str, str] = ("", "")) -> list[Refusal]:
        with self._acting():
            queues = bool(spec.queue and await kueue.find_workload_kind(self._api))
            named = await self._named.refusals(spec, owner)
        products = self._inventory.products()
        return [*refusals.find_refusals(spec, products, self._autoscaler, kueue=queues), *named]

    async def notices(self, spec: Spec) -> list[str]:
        found = idle_notices(spec, await self._exporters.gpus_seen() if spec.idle_timeout is not None else ())
        known = self._inventory.products() if self._cluster.read else None
        return found if known is None else [*found, *refusals.find_notices(spec, known, self._autoscaler)]

    async def outlook(self, spec: Spec) -> str | None:
        self._cluster.require()
        pod = plan_pod(spec, self._pods, self._products(spec))
        return capacity.explain_outlook(pod, spec.nodes, self._inventory, self._autoscaler)

    def _known_products(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._inventory.products(), *self._autoscaler.products)))

    def _products(self, spec: Spec) -> tuple[str, ...]:
        """Return what the nodes call the GPUs it asks for."""
        return (
            refusals.matching_products(spec.resources.gpu_products, self._known_products())
            if spec.resources.gpus
            else ()
        )

    def _must_wait(self, spec: Spec, products: Sequence[str]) -> bool:
        """Must its Job be held back until a node names its GPUs, or until there is room for all of its nodes?"""
        if spec.queue:  # then Kueue says when
            return False
        if refusals.are_unknown(spec, self._known_products()):
            return True
        pod = plan_pod(spec, self._pods, products)
        return spec.nodes > 1 and bool(
            capacity.explain_lack_of_room(pod, spec.nodes, self._inventory, self._autoscaler)
        )

    async def start(self, launch: Launch) -> None:
        run = Run(launch.workload_id, launch.attempt, (launch.user, launch.group))
        self._cluster.require_for(run)
        require_end(self._cluster, run)
        self._keep_to_namespace(run)
        products = self._products(launch.spec)
        if launch.workdir_archive is not None:
            await asyncio.to_thread(self._workdirs.keep, run, launch.workdir_archive)
        with shown():
            for refused in await self._named.refusals(launch.spec, (launch.user, launch.group)):
                raise Forbidden(refused.message, hint=refused.hint)
            await self._runs.start(launch, products, held=self._must_wait(launch.spec, products))

    def _keep_to_namespace(self, run: Run) -> None:
        """Tell the cluster in which namespace its objects are: the store says whose it is."""
        if run.owner:
            self._cluster.keep_to(run.workload_id, self._namespaces.of(*run.owner))

    async def observe(self, run: Run) -> Report:
        self._keep_to_namespace(run)
        return self._report(run)

    def _report(self, run: Run) -> Report:
        return self._runs.report(run, self._snapshots.report)

    async def advance(self, run: Run) -> None:
        self._keep_to_namespace(run)
        with shown():
            await self._controller.advance(run)

    async def stop(self, run: Run, grace: int) -> None:
        with self._acting(run):
            await self._runs.stop(run, grace)

    async def settle(self, run: Run, keep: int) -> None:
        with self._acting(run):
            await self._runs.settle(run, keep)
        await asyncio.to_thread(self._workdirs.forget, run)

    async def remove(self, run: Run) -> None:
        with self._acting(run):
            await self._runs.remove(run)
        await asyncio.to_thread(self._workdirs.forget, run)
        self._records.remove(run)
        self._snapshots.forget(run)
        await self._collector.remove(run)
        if run.attempt == 1:
            self._cluster.forget(run.workload_id)

    async def runs(self) -> list[Run]:
        self._cluster.require()
        return self._runs.all()

    def changes(self) -> AsyncIterator[Run]:
        return self._cluster.changes()

    async def events(self, run: Run) -> list[Event]:
        self._keep_to_namespace(run)
        return list_run_events(self._cluster, run)

    def logs(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        self._keep_to_namespace(run)
        return self._logs.read(run, part, query)

    async def exec(self, run: Run, part: int, command: Sequence[str], terminal: Terminal | None) -> Session:
        self._keep_to_namespace(run)
        return await start_exec(self._api, self._cluster, run, part, command, terminal)

    # -- what it does ------------------------------------------------------------------------------------------------

    async def inspect(self, run: Run) -> dict[str, Any]:
        self._cluster.require()
        self._keep_to_namespace(run)
        return await inspect_run(self._api, self._cluster, run)

    async def top(self, run: Run, part: int) -> Measure:
        self._keep_to_namespace(run)
        return await measure_part(self._api, self._cluster, run, part)

    async def activity(self, names: Sequence[str], wait: float = 0) -> list[NodeMeasure]:
        asked = set(names)
        return await self._activity.of([node for node in await self.nodes() if node.name in asked], wait)

    async def gpu_use(self, workloads: Sequence[Workload]) -> GpuUse:
        for workload in workloads:
            self._keep_to_namespace(Run.of(workload))
        return await self._exporters.use(workloads)

    async def connect(self, run: Run, part: int, port: int) -> Session:
        self._keep_to_namespace(run)
        return await open_port(self._api, self._cluster, run, part, port)
