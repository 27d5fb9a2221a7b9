"""Run small helper pods that mount a volume, and measure with `du` how much a volume holds."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from penstock.domain.volumes import Phase, Volume
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cache import find_first
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import AlreadyExists, KubernetesError, shown
from penstock.engines.kubernetes.api.objects import ContainerStateTerminated, Job, Pod
from penstock.engines.kubernetes.api.streams import ExecFailed, ExecSession
from penstock.engines.kubernetes.settings import PodSettings, build_pod_security
from penstock.engines.kubernetes.spec.pod import Fields, build_container_security, build_placement
from penstock.engines.kubernetes.volumes import KubernetesClaims
from penstock.errors import Unavailable

SECONDS, PATIENCE = 60, 15
"""Seconds a measurement may take, and seconds a caller waits for it."""
INSIDE = "/volume"
"""Where a helper pod mounts the volume."""
KIBIBYTE = 1024
LINE, LONGEST = 4096, 15
"""Bytes of an answer that are read, and digits of a number that are believed."""
DU = f"du -sk {INSIDE} >/dev/termination-log 2>/dev/null; true"
"""What may not be read is left out."""


class HelperPods:
    """Run a script once in a pod of its own; what it writes to the termination log is its answer."""

    def __init__(self, api: KubernetesApi, made: PodSettings, image: str) -> None:
        self._api, self._made, self._image = api, made, image

    async def run(
        self, name: str, namespace: str, claim: str, script: str, node: str | None = None
    ) -> ContainerStateTerminated:
        """The volume is read-only; what only one node may have is mounted on that `node`."""
        with suppress(AlreadyExists):  # from before a restart: it says the same
            await self._api.create(Job, self._job(name, claim, script, node), namespace)
        try:
            return await find_first(self._api, Pod, namespace, _ended, labels=f"{names.JOB_NAME}={name}")
        finally:
            await asyncio.shield(self._api.delete(Job, name, namespace))

    def _job(self, name: str, claim: str, script: str, node: str | None) -> Fields:
        found = {names.MANAGED: names.PENSTOCK}
        container = {
            "name": names.CONTAINER,
            "image": self._image,
            "command": ["sh", "-c", script],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
            "volumeMounts": [{"name": "volume", "mountPath": INSIDE, "readOnly": True}],
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
            spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        return {
            "metadata": {"name": name, "labels": found},
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": SECONDS,
                "ttlSecondsAfterFinished": SECONDS,
                "template": {"metadata": {"labels": found}, "spec": spec},
            },
        }


class VolumeMeter:
    def __init__(self, api: KubernetesApi, claims: KubernetesClaims, helpers: HelperPods) -> None:
        self._api, self._claims, self._helpers = api, claims, helpers
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
                    found = await self._in_a_running_pod(volume)
                    return await self._in_a_helper_pod(volume) if found is None else found
        except TimeoutError:
            raise Unavailable(f"Volume {volume.name} could not be measured within {SECONDS} seconds.") from None

    async def _in_a_running_pod(self, volume: Volume) -> int | None:
        _, claim = self._claims.place(volume)
        for pod in self._claims.pods(volume):
            path = _mounted_at(pod, claim)
            if names.run_of(pod) is None or path is None or pod.metadata.deletion_timestamp:
                continue
            command = ["du", "-sk", path]
            try:
                async with await self._api.exec(pod.name, pod.namespace, command, container=names.CONTAINER) as session:
                    if (found := _bytes(await _beginning(session))) is not None:
                        return found
            except (ExecFailed, KubernetesError):
                continue  # its image has no `du`, or it ended meanwhile
        return None

    async def _in_a_helper_pod(self, volume: Volume) -> int:
        namespace, claim = self._claims.place(volume)
        name = f"measure-{volume.id}" if volume.claim is None else f"measure-{volume.claim}"[:57].rstrip("-.")
        users = [pod.spec.node_name for pod in self._claims.pods(volume) if pod.spec.node_name]
        ended = await self._helpers.run(name, namespace, claim, DU, users[0] if users else None)
        if (found := _bytes(ended.message)) is not None:
            return found
        raise Unavailable(f"Volume {volume.name} could not be measured: {ended.message or ended.reason}")


def _ended(pod: Pod) -> ContainerStateTerminated | None:
    status = pod.container(names.CONTAINER)
    return status.state.terminated if status else None


def _mounted_at(pod: Pod, claim: str) -> str | None:
    volumes = {
        each.name
        for each in pod.spec.volumes
        if (source := each.persistent_volume_claim) and source.claim_name == claim
    }
    containers = [each for each in pod.spec.containers if each.name == names.CONTAINER]
    mounts = [mount for container in containers for mount in container.volume_mounts if mount.name in volumes]
    return mounts[0].mount_path if mounts else None


async def _beginning(session: ExecSession) -> str:
    """Read the beginning of what `du` prints; a program of that name in a user's image may print anything, for ever."""
    said = b""
    async for channel, data in session:
        if channel == 1:
            said += data[:LINE]
        if b"\n" in said or len(said) >= LINE:
            break
    return said.decode(errors="replace")


def _bytes(said: str) -> int | None:
    kibibytes = said.split("\t")[0].strip()
    return (
        int(kibibytes) * KIBIBYTE if kibibytes.isascii() and kibibytes.isdigit() and len(kibibytes) < LONGEST else None
    )
