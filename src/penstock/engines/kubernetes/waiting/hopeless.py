"""Give up waits that cannot end: an image, Secret or claim that does not exist.

A verdict stands in an annotation of the Job, with the patch that suspends it: whoever reads it later, this server or
the next, reports the same. What only one index of an array waits for ends that index; the others go on.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress

from penstock.domain.states import Reason, State
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesConflict
from penstock.engines.kubernetes.api.objects import Job, Pod
from penstock.engines.kubernetes.spec import Fields
from penstock.engines.kubernetes.state.jobs import is_array, is_given_up
from penstock.engines.kubernetes.state.pods import PodRecord
from penstock.engines.kubernetes.state.report import Snapshot, Wait
from penstock.engines.kubernetes.waiting.kueue import suspend_patch

log = logging.getLogger(__name__)


async def give_up_hopeless(api: KubernetesApi, cluster: Cluster, snapshot: Snapshot) -> None:
    """End the parts whose patience is over; the others are looked at again when theirs is."""
    for part, wait in _waits_of_pods(snapshot).items():
        if wait.ends_at is None:
            continue
        if wait.ends_at <= snapshot.now:
            await _give_up(api, snapshot, part, wait)
        else:
            cluster.changed_at(snapshot.run, wait.ends_at)


def _waits_of_pods(snapshot: Snapshot) -> dict[int, Wait]:
    """Return the waits of parts that have a pod; or of all parts, as one, if Kubernetes cannot even make pods."""
    if not snapshot.pods and snapshot.jobs:
        part = names.part_of(snapshot.jobs[0])
        return {part: snapshot.waits[part]} if part in snapshot.waits else {}
    waiting = (part for part, record in snapshot.pods.items() if not record.ran and not record.deleting)
    return {part: snapshot.waits[part] for part in waiting if part in snapshot.waits}


async def _give_up(api: KubernetesApi, snapshot: Snapshot, part: int, wait: Wait) -> None:
    job, reason = wait.job, wait.reason
    if is_given_up(job):
        return
    said = (reason.message or "It could not start").rstrip(".")
    text = _verdict_text(reason.ends_as or Reason.LAUNCH_FAILED, said)
    log.info("%s is given up: %s", job.name, said)
    if wait.pod and _others_go_on(snapshot, job, part):
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


def _others_go_on(snapshot: Snapshot, job: Job, part: int) -> bool:
    """Has another index of the array begun, or may it still begin? One that is just being started may."""
    if not is_array(job) or names.ARRAY_INDEX in job.labels:
        return False
    others = {number: record for number, record in snapshot.pods.items() if number != part}
    return any(record.ran or _may_begin(record, snapshot.waits.get(number)) for number, record in others.items())


def _may_begin(record: PodRecord, wait: Wait | None) -> bool:
    return not record.over and not record.deleting and (wait is None or wait.ends_at is None)


def _annotate(name: str, text: str) -> Fields:
    return {"metadata": {"annotations": {name: text}}}


def _verdict_text(reason: Reason, said: str) -> str:
    return json.dumps({"state": State.CRASHED, "reason": reason, "message": f"{said[:1].upper()}{said[1:]}."})
