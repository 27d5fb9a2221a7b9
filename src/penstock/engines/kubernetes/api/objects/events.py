"""Events: what Kubernetes says about other objects."""

from __future__ import annotations

from datetime import datetime

from penstock.engines.kubernetes.api.objects.base import KubernetesObject, ObjectPart, ObjectReference, ResourceKind


class EventSeries(ObjectPart, frozen=True):
    count: int = 0
    last_observed_time: datetime | None = None


class EventSource(ObjectPart, frozen=True):
    component: str = ""

    one_for_all = ("component",)


class KubernetesEvent(KubernetesObject, frozen=True):
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None
    reporting_component: str = ""
    source: EventSource = EventSource()

    kind = ResourceKind("Event", "events")
    one_for_all = ("type", "reason", "reporting_component")

    @property
    def last_seen(self) -> datetime | None:
        """When it last happened; older and newer parts of Kubernetes write that in different places."""
        repeated = self.series.last_observed_time if self.series else None
        return repeated or self.last_timestamp or self.event_time or self.metadata.creation_timestamp

    @property
    def times(self) -> int:
        return max(1, self.count, self.series.count if self.series else 0)
