"""Things to make in the cluster, and waiting for what becomes of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.objects import KubernetesObject, Pod, ResourceKind
from tests.rig.processes import pause_after

IMAGE = "docker.io/library/busybox:1"


class ConfigMap(KubernetesObject, frozen=True):
    kind = ResourceKind("ConfigMap", "configmaps")


async def eventually(holds: Callable[[], Any], seconds: float = 100) -> Any:
    """What it returns once that is true; for what tells nobody when it changes."""
    async with asyncio.timeout(seconds):
        while True:
            began = time.monotonic()
            if found := holds():
                return found
            await asyncio.sleep(pause_after(began))


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"key": "value"}}


def pod(name: str, script: str, *, restart: str = "Never", **more: Any) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}
    spec = {"restartPolicy": restart, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec | more}


async def started(api: KubernetesApi, namespace: str, name: str, script: str, **more: Any) -> Pod:
    """A pod whose container has begun, or has ended already."""
    return await becomes(api, await api.create(Pod, pod(name, script, **more), namespace), _has_begun)


async def becomes(api: KubernetesApi, pod: Pod, holds: Callable[[Pod], bool]) -> Pod:
    """The pod once that holds for it."""
    found = await api.get(Pod, pod.name, pod.namespace)
    if holds(found):
        return found
    async with (
        asyncio.timeout(60),
        api.watch(Pod, found.metadata.resource_version, pod.namespace, fields=f"metadata.name={pod.name}") as changes,
    ):
        async for change in changes:
            if change.object and holds(change.object):
                return change.object
    raise AssertionError(f"{pod.name} never became what was waited for")


def has_ended(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def _has_begun(pod: Pod) -> bool:
    status = pod.container("main")
    return bool(status and (status.state.running or status.state.terminated))
