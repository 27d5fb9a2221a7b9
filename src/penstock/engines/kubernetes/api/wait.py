"""Wait for one object in the cluster where no cache looks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import TypeVar

from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import KubernetesUnreachable, VersionGone
from penstock.engines.kubernetes.api.objects.base import KubernetesObject

T = TypeVar("T", bound=KubernetesObject)
V = TypeVar("V")


async def first(
    api: KubernetesApi,
    kind: type[T],
    namespace: str,
    what: Callable[[T], V | None],
    *,
    labels: str | None = None,
    fields: str | None = None,
) -> V:
    """The first that is not None of what is said about objects, those that are there and those that come; how long that
    may take the caller knows."""
    while True:
        version = ""
        async with aclosing(api.pages(kind, namespace, labels=labels, fields=fields)) as pages:
            async for page in pages:
                version = page.metadata.version
                for item in page.items or ():
                    if (found := what(item)) is not None:
                        return found
        try:
            async with api.watch(kind, version, namespace, labels=labels, fields=fields) as changes:
                async for change in changes:
                    if change.object and change.type != "DELETED" and (found := what(change.object)) is not None:
                        return found
        except (VersionGone, KubernetesUnreachable):
            continue
