"""Cache objects of one kind by one list and one watch, trimmed and indexed.

The watch begins at the version of the list, so nothing is missed between the two. A watch that ends or breaks goes on
where it stood; if the server has forgotten that point (410), everything is listed anew and the differences, also what
vanished meanwhile, are told as if they had been watched. While the watch is down, `stale` says since when and why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from penstock.domain.model import now
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.client import KubernetesApi
from penstock.engines.kubernetes.api.errors import (
    CredentialsExpired,
    KubernetesError,
    KubernetesUnavailable,
    KubernetesUnreachable,
    VersionGone,
)
from penstock.engines.kubernetes.api.objects import (
    OVER,
    KubernetesObject,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
)
from penstock.engines.kubernetes.api.requests import RetryPauses
from penstock.engines.kubernetes.api.resources import KubernetesEvent

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubernetesObject)
Listener = Callable[[T | None, T | None], None]


@dataclass(frozen=True)
class Staleness:
    since: datetime
    why: str
    refused: bool = False
    """The server answers, and does not accept our credentials."""


class Cache(Generic[T]):
    """Objects of one kind by name and by index. `keep` may return less of an object, or None to leave it out."""

    def __init__(
        self,
        api: KubernetesApi,
        kind: type[T],
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        keep: Callable[[T], T | None] | None = None,
    ) -> None:
        self._api, self._kind, self._namespace = api, kind, namespace
        self._labels, self._fields = labels, fields
        self._keep = keep
        self._items: dict[Key, T] = {}
        self._indexes = {name: Index(keys) for name, keys in (indexes or {}).items()}
        self._told: list[Listener[T]] = []
        self._version: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._refusal: KubernetesError | None = None
        self._broke_at: datetime | None = None
        self._pauses = RetryPauses()
        self.stale: Staleness | None = Staleness(now(), "nothing was read yet")
        """Not None while the watch is down: what is shown may be old."""
        self.up = asyncio.Event()
        """Everything was read, and changes are watched."""
        self.aged: Callable[[], None] = lambda: None
        """Called when the cache becomes stale, and when it is up to date again."""

    # life

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def synced(self) -> None:
        """Wait until everything was read once; raise what does not pass by itself, such as a missing right."""
        await self._answered.wait()
        if self._refusal:
            raise self._refusal

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    # reading

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._items.get((namespace, name))

    def all(self) -> Collection[T]:
        """The live view: it changes whenever the event loop runs."""
        return self._items.values()

    def by(self, index: str, value: str) -> list[T]:
        return [self._items[key] for key in self._indexes[index].get(value)]

    def __len__(self) -> int:
        return len(self._items)

    def subscribe(self, told: Listener[T]) -> None:
        """Call the listener with (before, after) of every change, one of them None at its ends."""
        self._told.append(told)

    # keeping up to date

    async def _run(self) -> None:
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                    self._refusal = None
                    self._answered.set()
                await self._watch(self._version)
            except KubernetesError as error:
                self._note(error)
                await asyncio.sleep(self._pauses.next(error))

    def _note(self, error: KubernetesError) -> None:
        """A watch that breaks and comes back at once was not down: stale begins when it does not come back."""
        if isinstance(error, VersionGone):
            self._version = None
        elif self._broke_at is None and self.stale is None:
            self._broke_at = now()
            return
        was_fresh = self.stale is None
        if was_fresh:
            log.warning("%s may be shown as they were: %s", self._kind.kind.plural, error.message)
        since = self.stale.since if self.stale else self._broke_at or now()
        self.stale = Staleness(since, error.message, isinstance(error, CredentialsExpired))
        if not self._answered.is_set() and not isinstance(error, (KubernetesUnavailable, VersionGone)):
            self._refusal = error
            self._answered.set()
        if was_fresh:
            self.aged()

    def _up(self) -> None:
        was_stale = self.stale is not None
        if was_stale:
            log.info("%s are up to date", self._kind.kind.plural)
        self.stale = self._broke_at = None
        self.up.set()
        if was_stale:
            self.aged()

    async def _list(self) -> str:
        """Read everything; returns the version of the list."""
        version, seen = "", set()
        pages = self._api.pages(self._kind, self._namespace, labels=self._labels, fields=self._fields)
        async with aclosing(pages):
            async for page in pages:
                version = page.metadata.version
                for item in page.items or ():
                    seen.add(_key(item))
                    self._put(item)
        for key in [key for key in self._items if key not in seen]:
            self._drop(key)
        return version

    async def _watch(self, version: str) -> None:
        async with self._api.watch(
            self._kind, version, self._namespace, labels=self._labels, fields=self._fields
        ) as changes:
            self._up()
            async for change in changes:
                self._pauses = RetryPauses()
                if change.object is None:
                    pass
                elif change.type == "DELETED":
                    self._drop(_key(change.object), change.object)
                else:
                    self._put(change.object)
                self._version = change.version
        self._pauses = RetryPauses()

    def _put(self, item: T) -> None:
        key = _key(item)
        kept = self._keep(item) if self._keep else item
        if kept is None:
            self._drop(key)
            return
        before = self._items.get(key)
        if before and before.metadata.resource_version == kept.metadata.resource_version:
            return
        self._items[key] = kept
        for index in self._indexes.values():
            if before:
                index.remove(key, before)
            index.add(key, kept)
        self._tell(before, kept)

    def _drop(self, key: Key, last: T | None = None) -> None:
        """`last` is the state it was deleted in, if the server told."""
        before = self._forget(key)
        if before:
            self._tell((self._keep(last) if self._keep and last else last) or before, None)

    def _forget(self, key: Key) -> T | None:
        before = self._items.pop(key, None)
        if before:
            for index in self._indexes.values():
                index.remove(key, before)
        return before

    def _tell(self, before: T | None, after: T | None) -> None:
        for told in self._told:
            try:
                told(before, after)
            except Exception:
                log.exception("a change of %s was not taken in", self._kind.kind.plural)


def _key(item: KubernetesObject) -> Key:
    return (item.namespace, item.name)


Key = tuple[str, str]
"""Namespace (empty where the kind has none) and name."""


class Index(Generic[T]):
    def __init__(self, values: Callable[[T], Iterable[str]]) -> None:
        self._values = values
        self._keys: dict[str, dict[Key, None]] = {}

    def get(self, value: str) -> Collection[Key]:
        return self._keys.get(value, ())

    def add(self, key: Key, item: T) -> None:
        for value in self._values(item):
            self._keys.setdefault(value, {})[key] = None

    def remove(self, key: Key, item: T) -> None:
        for value in self._values(item):
            keys = self._keys.get(value, {})
            keys.pop(key, None)
            if not keys:
                self._keys.pop(value, None)


def by_claim(pod: Pod) -> Iterable[str]:
    """Index a pod by the claims it mounts, as `namespace/name`."""
    return [f"{pod.namespace}/{name}" for name in pod.claims()]


def by_node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def trim_pod(pod: Pod, ours: Callable[[str], bool]) -> Pod | None:
    """Keep of a pod of others only what it holds and where, and nothing once it has ended. `ours` says which namespaces
    are this server's: a cluster may have several Penstocks."""
    if pod.labels.get(names.MANAGED) == names.PENSTOCK and ours(pod.namespace):
        return pod
    if pod.status.phase in OVER:
        return None
    meta, spec = pod.metadata, pod.spec
    return Pod(
        metadata=ObjectMeta(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        ),
        spec=PodSpec(
            node_name=spec.node_name,
            containers=spec.containers,
            init_containers=spec.init_containers,
            volumes=spec.volumes,
            overhead=spec.overhead,
        ),
        status=PodStatus(phase=pod.status.phase),
    )


KINDS = ("Pod", "Job", "PersistentVolumeClaim")
MOST_EVENTS = 10_000


class EventCache(Cache[KubernetesEvent]):
    """Keep the latest events of all objects; Kubernetes itself forgets them after an hour."""

    def __init__(
        self, api: KubernetesApi, namespace: str | None = None, *, ours: Callable[[str], bool] = lambda _: True
    ) -> None:
        super().__init__(
            api,
            KubernetesEvent,
            namespace,
            indexes={"about": lambda event: (event.involved_object.uid,)},
            keep=lambda event: event if event.involved_object.kind in KINDS and ours(event.namespace) else None,
        )

    def about(self, uid: str) -> list[KubernetesEvent]:
        """Return an object's events in the order in which they last happened."""
        return sorted(self.by("about", uid), key=lambda event: event.order)

    def _put(self, item: KubernetesEvent) -> None:
        super()._put(item)
        if len(self) > MOST_EVENTS:
            self._forget(next(iter(self._items)))


V = TypeVar("V")


async def find_first(
    api: KubernetesApi,
    kind: type[T],
    namespace: str,
    what: Callable[[T], V | None],
    *,
    labels: str | None = None,
    fields: str | None = None,
) -> V:
    """Wait for an object of which `what` is not None, and return that. The caller limits how long it may take."""
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
