"""What the cluster has of one kind, kept up to date by one list and one watch: nothing is asked when something is read.

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
from penstock.engines.kubernetes.api import Api
from penstock.engines.kubernetes.calls import Pauses
from penstock.engines.kubernetes.failures import ApiError, Expired, Gone, Passing
from penstock.engines.kubernetes.indexes import Index, Key
from penstock.engines.kubernetes.objects import Object

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
Told = Callable[[T | None, T | None], None]


@dataclass(frozen=True)
class Stale:
    since: datetime
    why: str
    refused: bool = False
    """The server answers, and does not accept our credentials."""


class Cache(Generic[T]):
    """`keep` may return less of an object, or None for one that is of no interest."""

    def __init__(
        self,
        api: Api,
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
        self._told: list[Told[T]] = []
        self._version: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._refusal: ApiError | None = None
        self._broke_at: datetime | None = None
        self._pauses = Pauses()
        self.stale: Stale | None = Stale(now(), "nothing was read yet")
        """Not None while the watch is down: what is shown may be old."""

    # life

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def synced(self) -> None:
        """Waits until all there is has been read once; raises what does not pass by itself, such as a missing right."""
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
        """As it is now; it changes whenever the loop runs."""
        return self._items.values()

    def by(self, index: str, value: str) -> list[T]:
        return [self._items[key] for key in self._indexes[index].get(value)]

    def __len__(self) -> int:
        return len(self._items)

    def subscribe(self, told: Told[T]) -> Callable[[], None]:
        """Tells every change from now on as (before, after), None where it is not there; returns how to end it."""
        self._told.append(told)
        return lambda: self._told.remove(told)

    # keeping up to date

    async def _run(self) -> None:
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                    self._refusal = None
                    self._answered.set()
                await self._watch(self._version)
            except ApiError as error:
                self._note(error)
                await asyncio.sleep(self._pauses.next(error))

    def _note(self, error: ApiError) -> None:
        """A watch that breaks and comes back at once was not down: stale begins when it does not come back."""
        if isinstance(error, Gone):
            self._version = None
        elif self._broke_at is None and self.stale is None:
            self._broke_at = now()
            return
        if self.stale is None:
            log.warning("%s may be shown as they were: %s", self._kind.kind.plural, error.message)
        since = self.stale.since if self.stale else self._broke_at or now()
        self.stale = Stale(since, error.message, isinstance(error, Expired))
        if not self._answered.is_set() and not isinstance(error, (Passing, Gone)):
            self._refusal = error
            self._answered.set()

    def _up(self) -> None:
        if self.stale:
            log.info("%s are up to date", self._kind.kind.plural)
        self.stale = self._broke_at = None

    async def _list(self) -> str:
        """The version all of it has."""
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
                self._pauses = Pauses()
                if change.object is None:
                    pass
                elif change.type == "DELETED":
                    self._drop(_key(change.object), change.object)
                else:
                    self._put(change.object)
                self._version = change.version
        self._pauses = Pauses()

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
        for told in tuple(self._told):
            try:
                told(before, after)
            except Exception:
                log.exception("a change of %s was not taken in", self._kind.kind.plural)


def _key(item: Object) -> Key:
    return (item.namespace, item.name)
