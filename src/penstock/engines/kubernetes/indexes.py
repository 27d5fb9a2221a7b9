"""Finding cached objects by something else than their name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

from penstock.engines.kubernetes.objects import Object, Pod

T = TypeVar("T", bound=Object)
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


def by_label(name: str) -> Callable[[Object], Iterable[str]]:
    def values(item: Object) -> Iterable[str]:
        value = item.labels.get(name)
        return () if value is None else (value,)

    return values


def by_owner(item: Object) -> Iterable[str]:
    """The uids of its owners."""
    return [owner.uid for owner in item.metadata.owner_references]


def by_claim(pod: Pod) -> Iterable[str]:
    """`namespace/name` of the claims a pod mounts."""
    return [f"{pod.namespace}/{name}" for name in pod.claims()]


def by_node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()
