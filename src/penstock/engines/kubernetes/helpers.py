"""Measure how much volumes hold, with `du` in small helper pods that mount them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from penstock.domain.volumes import Phase, Volume
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cache import find_first
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import AlreadyExists, shown
from penstock.engines.kubernetes.api.objects import ContainerStateTerminated, Job, Pod
from penstock.engines.kubernetes.settings import PodSettings, build_pod_security
from penstock.engines.kubernetes.spec import Fields, build_affinity, build_container_security, build_placement
from penstock.engines.kubernetes.volumes import KubernetesClaims
from penstock.errors import Unavailable

SECONDS, PATIENCE = 60, 15
"""Seconds a measurement may take, and seconds a caller waits for it."""
DU = "du -sk /volume >/dev/termination-log 2>/dev/null; true"
"""What may not be read is left out."""


class VolumeMeter:
    def __init__(self, api: KubernetesApi, claims: KubernetesClaims, made: PodSettings, image: str) -> None:
        self._api, self._claims, self._made, self._image = api, claims, made, image
        self._counts: dict[str, asyncio.Task[int]] = {}

    async def close(self) -> None:
        for task in self._counts.values():
            task.cancel()
        await asyncio.gather(*self._counts.values(), return_exceptions=True)

    async def usage(self, volume: Volume) -> int:
        """Return the bytes a volume holds; however many callers ask at once, it is measured once."""
        task = self._counts.get(volume.id)
        if task is None:
            task = self._counts[volume.id] = asyncio.create_task(self._count(volume))
            task.add_done_callback(partial(self._counted, volume.id))
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(task)
        except TimeoutError:
            raise Unavailable(f"Volume {volume.name} is still being measured.", hint="ask again in a minute") from None

    def _counted(self, volume_id: str, task: asyncio.Task[int]) -> None:
        self._counts.pop(volume_id, None)
        if not task.cancelled():
            task.exception()  # seen, even if all who asked have gone

    async def _count(self, volume: Volume) -> int:
        report = self._claims.report(volume)
        if report.phase is Phase.Pending:
            return 0  # there is no storage behind it yet
        if report.phase is Phase.Lost:
            raise Unavailable(report.message or f"Volume {volume.name} is gone.")
        try:
            with shown():
                async with asyncio.timeout(SECONDS):
                    ended = await self._run_helper(volume)
        except TimeoutError:
            raise Unavailable(f"Volume {volume.name} could not be measured within {SECONDS} seconds.") from None
        kibibytes = ended.message.split("\t")[0]
        if not kibibytes.isdecimal():
            raise Unavailable(f"Volume {volume.name} could not be measured: {ended.message or ended.reason}")
        return int(kibibytes) * 1024

    async def _run_helper(self, volume: Volume) -> ContainerStateTerminated:
        """Run a helper pod on a node that has the volume already, if one has: no other may be able to mount it."""
        namespace, claim = self._claims.place(volume)
        name = f"measure-{volume.id}" if volume.claim is None else f"measure-{volume.claim}"[:57].rstrip("-.")
        node = next((pod.spec.node_name for pod in self._claims.pods(volume) if pod.spec.node_name), None)
        with suppress(AlreadyExists):  # from before a restart: it says the same
            await self._api.create(Job, self._job(name, claim, node), namespace)
        try:
            return await find_first(self._api, Pod, namespace, _ended, labels=f"{names.JOB_NAME}={name}")
        finally:
            await asyncio.shield(self._api.delete(Job, name, namespace))

    def _job(self, name: str, claim: str, node: str | None) -> Fields:
        labels = {names.MANAGED: names.PENSTOCK}
        container = {
            "name": names.CONTAINER,
            "image": self._image,
            "command": ["sh", "-c", DU],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
            "volumeMounts": [{"name": "volume", "mountPath": "/volume", "readOnly": True}],
            "securityContext": build_container_security(restricted=self._made.restricted),
        }
        source = {"claimName": claim, "readOnly": True}
        spec: Fields = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": build_pod_security(self._made),
            "containers": [container],
            "volumes": [{"name": "volume", "persistentVolumeClaim": source}],
        } | build_placement(self._made)
        if node:
            spec["affinity"] = build_affinity((), node)
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": SECONDS,
                "ttlSecondsAfterFinished": SECONDS,
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }


def _ended(pod: Pod) -> ContainerStateTerminated | None:
    status = pod.container(names.CONTAINER)
    return status.state.terminated if status else None
