"""What is to happen to one document of a text that is applied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.domain.users import Caller
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.wire import Applied, NewVolume

CREATED, CONFIGURED, RESIZED, NOT_CHANGED, FAILED = "created", "configured", "resized", "not changed", "failed"


@dataclass(frozen=True)
class Planned:
    kind: str
    name: str
    result: str
    id: str | None = None
    message: str | None = None
    volume: Volume | None = None
    asked: NewVolume | None = None
    workload: Workload | None = None
    homes: dict[str, Volume] = field(default_factory=dict)
    """Volumes that are made with the workload."""
    caller: Caller | None = None
    """Who makes it, where the document names another group than theirs."""
    write: Callable[[], Awaitable[str]] | None = None
    """Makes it so, and says what came of it."""

    def applied(self, **more: Any) -> Applied:
        notices = self.workload.notices if self.workload else ()
        fields = {"id": self.id, "result": self.result, "message": self.message, "notices": notices} | more
        return Applied(kind=self.kind, name=self.name, **fields)
