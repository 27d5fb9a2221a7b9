"""Do what is due for a run: end what is lost, give up hopeless waits, name GPU products, start nodes together.

The reconciler calls `advance` when a run has changed. Nothing waits here: what is due later becomes a change of the
run when its time has come, and what waits for room without having pods changes when there may be some.

A wait that cannot end (an image, Secret or claim that does not exist) ends with a verdict. It stands in an annotation
of the Job, with the patch that suspends it: whoever reads it later, this server or the next, reports the same. What
only one index of an array waits for ends that index; the others go on.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from datetime import timedelta

from penstock.domain.model import now
from penstock.domain.states import Reason, State
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesConflict
from penstock.engines.kubernetes.api.objects import OVER, Job, Pod
from penstock.engines.kubernetes.api.resources import KubernetesNode
from penstock.engines.kubernetes.logs.collect import LogCollector
from penstock.engines.kubernetes.nodes.inventory import Inventory, changes_room
from penstock.engines.kubernetes.snapshots import Snapshots
from penstock.engines.kubernetes.spec import Fields
from penstock.engines.kubernetes.state.jobs import is_array, is_given_up
from penstock.engines.kubernetes.state.report import Snapshot, Wait, compute_report
from penstock.engines.kubernetes.waiting.holds import Gang, Products
from penstock.engines.kubernetes.waiting.kueue import KueueQueues, suspend_patch
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


# verdicts


async def give_up_hopeless(api: KubernetesApi, cluster: Cluster, snapshot: Snapshot) -> None:
    """End the parts whose patience is over; the others are looked at again when theirs is."""
    for part, wait in _waits_of_pods(snapshot).items():
        if wait.ends_at is None:
            continue
        if wait.ends_at <= snapshot.now:
            await _give_up(api, cluster, snapshot.run, part, wait)
        else:
            cluster.changed_at(snapshot.run, wait.ends_at)


def _waits_of_pods(snapshot: Snapshot) -> dict[int, Wait]:
    """Return the waits of parts that have a pod; or of all parts, as one, if Kubernetes cannot even make pods."""
    if not snapshot.pods and snapshot.jobs:
        part = names.part_of(snapshot.jobs[0])
        return {part: snapshot.waits[part]} if part in snapshot.waits else {}
    waiting = (part for part, record in snapshot.pods.items() if not record.ran and not record.deleting)
    return {part: snapshot.waits[part] for part in waiting if part in snapshot.waits}


async def _give_up(api: KubernetesApi, cluster: Cluster, run: Run, part: int, wait: Wait) -> None:
    job, reason = wait.job, wait.reason
    if is_given_up(job):
        return
    said = (reason.message or "It could not start").rstrip(".")
    text = _verdict_text(reason.ends_as or Reason.LAUNCH_FAILED, said)
    log.info("%s is given up: %s", job.name, said)
    if wait.pod and _others_go_on(cluster, run, job, wait.pod):
        await api.amend(job, _annotate(f"{names.VERDICT}-{part}", text))
        with suppress(KubernetesConflict):  # another pod has its name by now
            await api.delete(Pod, wait.pod.name, wait.pod.namespace, uid=wait.pod.uid)
    else:
        await api.amend(job, _annotate(names.VERDICT, text) | await suspend_patch(api, job))


async def end_lost_node(api: KubernetesApi, job: Job, part: int, node: str) -> None:
    """End a run of several nodes of which one was lost: Kubernetes would wait for its end, which nobody can tell, and
    let the others wait, too."""
    name = f"{names.VERDICT}-{part}"
    if job.spec.suspend or name in job.annotations or job.completions < 2 or is_array(job):
        return
    text = _verdict_text(Reason.NODE_LOST, f"Its node {node} was lost")
    await api.amend(job, _annotate(name, text) | await suspend_patch(api, job))


def _others_go_on(cluster: Cluster, run: Run, job: Job, pod: Pod) -> bool:
    return is_array(job) and any(
        other.uid != pod.uid and (other.status.phase in (*OVER, "Running"))
        for other in cluster.pods_of(run)
        if other.labels.get(names.JOB_NAME) == job.name
    )


def _annotate(name: str, text: str) -> Fields:
    return {"metadata": {"annotations": {name: text}}}


def _verdict_text(reason: Reason, said: str) -> str:
    return json.dumps({"state": State.CRASHED, "reason": reason, "message": f"{said[:1].upper()}{said[1:]}."})
