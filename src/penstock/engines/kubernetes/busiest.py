"""The processes of a node that use the most, as far as anybody may see them: those of our own pods.

Which pods are the busiest the kubelet says; these few are asked inside, as `top` of a workload does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api import Api
from penstock.engines.kubernetes.cluster import Cluster
from penstock.engines.kubernetes.dcgm import Place
from penstock.engines.kubernetes.looking import look_inside
from penstock.engines.kubernetes.objects import Pod
from penstock.errors import PenstockError
from penstock.wire import ProcessMeasure

PODS, AT_ONCE, SECONDS = 3, 24, 5.0
"""Of each node, of all together, and for each."""
MOST = 5


class Busiest:
    def __init__(self, api: Api, cluster: Cluster) -> None:
        self._api, self._cluster = api, cluster
        self._places = asyncio.Semaphore(AT_ONCE)

    async def on(self, node: str, used: Mapping[Place, int]) -> tuple[ProcessMeasure, ...]:
        """`used` is how busy each pod is."""
        ours = [pod for pod in self._cluster.pods.by("node", node) if self._is_ours(pod)]
        ours.sort(key=lambda pod: -used.get((pod.namespace, pod.name), 0))
        found = await asyncio.gather(*(self._inside(pod) for pod in ours[:PODS]))
        each = [process for processes in found for process in processes]
        return tuple(sorted(each, key=lambda process: (-process.cpu_percent, process.pid))[:MOST])

    def _is_ours(self, pod: Pod) -> bool:
        status = pod.container(names.CONTAINER)
        return bool(names.run_of(pod) and self._cluster.is_at_home(pod) and status and status.state.running)

    async def _inside(self, pod: Pod) -> list[ProcessMeasure]:
        """None of one that has no shell, has just ended, or does not answer in time."""
        run = names.run_of(pod)
        try:
            async with self._places, asyncio.timeout(SECONDS):
                said = await look_inside(self._api, pod, processes_only=True)
        except (PenstockError, TimeoutError):
            return []
        return [each.model_copy(update={"workload": run.workload_id if run else None}) for each in said.processes]
