"""Do what is due for a run: end what is lost, give up hopeless waits, name GPU products, start nodes together.

The reconciler calls `advance` when a run has changed. Nothing waits here: what is due later becomes a change of the
run when its time has come, and what waits for room without having pods changes when there may be some.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from penstock.domain.model import now
from penstock.engines.base import Run
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.api.resources import KubernetesNode
from penstock.engines.kubernetes.logs.collect import LogCollector
from penstock.engines.kubernetes.nodes.inventory import Inventory, changes_room
from penstock.engines.kubernetes.snapshots import Snapshots
from penstock.engines.kubernetes.state.report import Snapshot, compute_report
from penstock.engines.kubernetes.waiting.holds import Gang, Products
from penstock.engines.kubernetes.waiting.hopeless import end_lost_node, give_up_hopeless
from penstock.engines.kubernetes.waiting.kueue import KueueQueues
from penstock.settings import Settings

log = logging.getLogger(__name__)

ROOM_PAUSE = timedelta(seconds=1)
"""Where one pod has ended there are often more."""


class RunController:
    def __init__(
        self,
        api: KubernetesApi,
        cluster: Cluster,
        snapshots: Snapshots,
        logs: LogCollector,
        inventory: Inventory,
        queues: KueueQueues,
        settings: Settings,
    ) -> None:
        self._api, self._cluster, self._snapshots, self._logs = api, cluster, snapshots, logs
        self._queues = queues
        self._gang = Gang(api, cluster, inventory, settings)
        self._products = Products(api, cluster, inventory)
        cluster.pods.subscribe(self._room_changed)
        cluster.nodes.subscribe(self._room_changed)

    async def advance(self, run: Run) -> None:
        """Nothing is done on old knowledge: while the cluster does not answer, nor before it has."""
        if not self._cluster.read or self._cluster.trouble():
            return
        snapshot = self._snapshots.take(run)
        self._complete_logs(snapshot)
        await self._end_lost(snapshot)
        await give_up_hopeless(self._api, self._cluster, snapshot)
        await self._products.advance(run)
        if run not in self._products.awaited:
            await self._gang.advance(run)
        await self._queues.advance(run)

    def _complete_logs(self, snapshot: Snapshot) -> None:
        """Read the rest of the logs of pods that vanished while no server ran, of which no watch tells; and when all
        units have ended, wait no more for those on lost nodes."""
        lost = [record for record in snapshot.pods.values() if snapshot.is_lost(record)]
        if lost and all(unit.ended_at for unit in compute_report(snapshot).units):
            for record in lost:
                why = f"its node {record.node} was lost before its last output could be read"
                self._logs.give_up(snapshot.run, record, why)
        for part, progress in snapshot.logs.items():
            if not progress.stored:
                self._logs.see(snapshot.run, snapshot.pods[part])

    async def _end_lost(self, snapshot: Snapshot) -> None:
        """Nothing tells that the time is over in which a node should have ended a pod."""
        for part, record in snapshot.pods.items():
            if snapshot.is_lost(record) and len(snapshot.jobs) == 1:
                await end_lost_node(self._api, snapshot.jobs[0], part, record.node)
            elif record.node in snapshot.lost_nodes and record.due and record.due > snapshot.now:
                self._cluster.changed_at(snapshot.run, record.due)

    def _room_changed(self, before: Pod | KubernetesNode | None, after: Pod | KubernetesNode | None) -> None:
        if changes_room(before, after):
            for run in self._gang.waiting() | self._products.waiting():
                self._cluster.changed_at(run, now() + ROOM_PAUSE)
