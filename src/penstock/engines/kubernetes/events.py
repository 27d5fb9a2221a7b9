"""What Kubernetes said about a run or a volume, in order: about its Job, its pods and its claims."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from penstock.engines.kubernetes.api import Api
from penstock.engines.kubernetes.cache import Cache
from penstock.engines.kubernetes.objects import Event

KINDS = ("Pod", "Job", "PersistentVolumeClaim")
EACH, MOST = 30, 10_000
_BEGINNING = datetime.min.replace(tzinfo=UTC)


class Events(Cache[Event]):
    """Of each object the latest `each`, of all objects the latest `most`; Kubernetes itself forgets after an hour."""

    def __init__(
        self,
        api: Api,
        namespace: str | None = None,
        *,
        kinds: Collection[str] = KINDS,
        each: int = EACH,
        most: int = MOST,
    ) -> None:
        super().__init__(
            api,
            Event,
            namespace,
            indexes={"about": lambda event: (event.involved_object.uid,)},
            keep=lambda event: event if event.involved_object.kind in kinds else None,
        )
        self._each, self._most = each, most

    def about(self, uid: str) -> list[Event]:
        """In the order in which they last happened."""
        return sorted(self.by("about", uid), key=_when)

    def _put(self, item: Event) -> None:
        super()._put(item)
        about = self.by("about", item.involved_object.uid)
        if len(about) > self._each:
            oldest = min(about, key=_when)
            self._forget((oldest.namespace, oldest.name))
        if len(self) > self._most:
            self._forget(next(iter(self._items)))


def _when(event: Event) -> tuple[datetime, int]:
    """Some parts of Kubernetes write whole seconds, others fractions: within a second the order of writing counts."""
    version = event.metadata.resource_version
    return (event.last_seen or _BEGINNING).replace(microsecond=0), int(version) if version.isdigit() else 0
