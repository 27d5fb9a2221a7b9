"""Give up waits that cannot end: an image, Secret or claim that does not exist.

A verdict stands in an annotation of the Job, with the patch that suspends it: whoever reads it later, this server or
the next, reports the same. What only one index of an array waits for ends that index; the others go on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.domain.model import now
from penstock.domain.states import Reason, State
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cache import OVER
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.errors import KubernetesConflict, KubernetesNotFound
from penstock.engines.kubernetes.api.objects.jobs import Job
from penstock.engines.kubernetes.api.objects.pods import Pod
from penstock.engines.kubernetes.state.report import is_array
from penstock.engines.kubernetes.waiting.kueue import suspending
from penstock.engines.kubernetes.waiting.reasons import WaitReason

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Waiting:
    """A part that has not started, what it waits for, and its pod if it has one."""

    part: int
    job: Job
    pod: Pod | None
    why: WaitReason


class Verdicts:
    def __init__(
        self, api: KubernetesApi, cluster: Cluster, patience: int, *, again: Callable[[Run, datetime], None]
    ) -> None:
        """`again` is told when to look at a run anew."""
        self._api, self._cluster = api, cluster
        self._patience = timedelta(seconds=patience)
        self._again = again
        self._first_seen: dict[Run, dict[str, datetime]] = {}

    def due(self, run: Run, waiting: Waiting) -> datetime | None:
        """When it is given up; None if it may wait."""
        if waiting.why.ends_as is None:
            return None
        if waiting.why.at_once:
            return now()
        seen = self._first_seen.setdefault(run, {})
        key = f"{(waiting.pod or waiting.job).uid} {waiting.why.ends_as}"
        since = seen.setdefault(key, waiting.why.since or now())
        return min(since, waiting.why.since or since) + self._patience

    async def look(self, run: Run, waits: Mapping[int, Waiting]) -> None:
        hopeless = {part: waiting for part, waiting in waits.items() if waiting.why.ends_as}
        if not hopeless:
            self._first_seen.pop(run, None)
            return
        moment = now()
        for waiting in hopeless.values():
            due = self.due(run, waiting)
            if waiting.why.at_once or due is None or due <= moment:
                await self._give(run, waiting)
            else:
                self._again(run, due)

    async def _give(self, run: Run, waiting: Waiting) -> None:
        job, why = waiting.job, waiting.why
        if names.VERDICT in job.annotations or names.STOP in job.annotations:
            return
        said = (why.message or "It could not start").rstrip(".")
        text = _text(why.ends_as or Reason.LAUNCH_FAILED, said)
        log.info("%s is given up: %s", job.name, said)
        try:
            if self._others_go_on(run, waiting):
                await self._end_part(waiting, text)
            else:
                change = {"metadata": {"annotations": {names.VERDICT: text}}}
                await self._api.patch(Job, job.name, change | await suspending(self._api, job), job.namespace)
        except (KubernetesNotFound, KubernetesConflict):
            log.debug("%s is gone already", job.name)

    async def lose(self, job: Job, part: int, node: str) -> None:
        """A node was lost, and with it this part of a run that has several: Kubernetes would wait for its end, which
        nobody can tell, and let the others wait, too."""
        name = f"{names.VERDICT}-{part}"
        if job.spec.suspend or name in job.annotations or (job.spec.completions or 1) < 2 or is_array(job):
            return
        text = _text(Reason.NODE_LOST, f"Its node {node} was lost")
        change = {"metadata": {"annotations": {name: text}}}
        try:
            await self._api.patch(Job, job.name, change | await suspending(self._api, job), job.namespace)
        except KubernetesNotFound:
            log.debug("%s is gone already", job.name)

    def _others_go_on(self, run: Run, waiting: Waiting) -> bool:
        if not is_array(waiting.job) or waiting.pod is None:
            return False
        return any(
            pod.uid != waiting.pod.uid and (pod.status.phase in (*OVER, "Running"))
            for pod in self._cluster.pods_of(run)
            if pod.labels.get(names.JOB_NAME) == waiting.job.name
        )

    async def _end_part(self, waiting: Waiting, text: str) -> None:
        job, pod = waiting.job, waiting.pod
        change = {"metadata": {"annotations": {f"{names.VERDICT}-{waiting.part}": text}}}
        await self._api.patch(Job, job.name, change, job.namespace)
        if pod:
            await self._api.delete(Pod, pod.name, pod.namespace, uid=pod.uid)


def _text(reason: Reason, said: str) -> str:
    return json.dumps({"state": State.CRASHED, "reason": reason, "message": f"{said[:1].upper()}{said[1:]}."})
