"""Jobs in a queue of Kueue's: it lets them start by resuming them, and would do so again whenever we suspend one."""

from __future__ import annotations

import logging

from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api import Api
from penstock.engines.kubernetes.failures import Forbidden, NotFound
from penstock.engines.kubernetes.objects import Job, Kind, Object

log = logging.getLogger(__name__)

GROUP = "kueue.x-k8s.io"


class QueuedWorkload(Object, frozen=True, gc=False, rename="camel"):
    """What Kueue makes for each Job that has a queue."""

    kind = Kind("Workload", "workloads", GROUP, "v1beta1")


async def let_go(api: Api, job: Job) -> None:
    """Kueue suspends what belongs to a workload that is not active, and leaves it so."""
    if names.QUEUE not in job.labels:
        return
    try:
        for found in await api.list(QueuedWorkload, job.namespace, labels=f"{GROUP}/job-uid={job.uid}"):
            await api.patch(QueuedWorkload, found.name, {"spec": {"active": False}}, found.namespace)
    except NotFound:
        log.debug("%s is in no queue any more", job.name)
    except Forbidden as error:
        log.warning("%s may be started again by its queue: %s", job.name, error.message)
