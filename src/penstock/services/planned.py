"""What is to happen to one document of a text that is applied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.domain.scheduling.demand import Job
from penstock.domain.users import Caller
from penstock.domain.volumes import Volume
from penstock.domain.workloads import Workload
from penstock.errors import Conflict
from penstock.wire.requests import NewVolume
from penstock.wire.workloads import Applied

CREATED, CONFIGURED, RESIZED, NOT_CHANGED, FAILED = "created", "configured", "resized", "not changed", "failed"

AT_ONCE = 64


@dataclass(frozen=True)
class Planned:
    kind: str
    name: str
    result: str
    id: str | None = None
    message: str | None = None
    volume: Volume | None = None
    larger: Volume | None = None
    """The volume that is there, with its new size."""
    asked: NewVolume | None = None
    workload: Workload | None = None
    known: Workload | None = None
    """The one that is there and the same, for those of the text that name it."""
    job: Job | None = None
    """The workload as the queue would see it."""
    homes: dict[str, Volume] = field(default_factory=dict)
    """Volumes that are made with the workload."""
    caller: Caller | None = None
    """Who makes it, where the document names another group than theirs."""
    write: Callable[[], Awaitable[str]] | None = None
    """Makes it so, and says what came of it."""
    again: Callable[[], Awaitable[Planned]] | None = None
    """Plans it once more, where someone else made one of its name meanwhile."""

    def applied(self, **more: Any) -> Applied:
        notices = self.workload.notices if self.workload else ()
        fields = {"id": self.id, "result": self.result, "message": self.message, "notices": notices} | more
        return Applied(kind=self.kind, name=self.name, **fields)


def together(plans: Sequence[Planned]) -> Iterator[list[Planned]]:
    """In their order, those that can share a write: new workloads of which none needs another of them."""
    some: list[Planned] = []
    ids: set[str] = set()
    for plan in plans:
        new = plan.workload
        if some and (new is None or plan.homes or len(some) == AT_ONCE or ids.intersection(new.after_ids)):
            yield some
            some, ids = [], set()
        if new is None or plan.homes:
            yield [plan]
        else:
            some.append(plan)
            ids.add(new.id)
    if some:
        yield some


@dataclass
class Made:
    """What became of what was planned before, for those of the same text that need it."""

    ids: dict[str, str] = field(default_factory=dict)
    """Planned → real: someone else may have made the same meanwhile."""
    lost: dict[str, str] = field(default_factory=dict)
    """By the planned id, the names of those that could not be made."""

    def note(self, plan: Planned, applied: Applied) -> None:
        if planned := plan.volume or plan.workload:
            if applied.id is None:
                self.lost[planned.id] = f"{plan.kind} {plan.name}"
            elif applied.id != planned.id:
                self.ids[planned.id] = applied.id

    def resolved(self, workload: Workload) -> Workload:
        """The workload, meaning what is really there."""
        needs = (*workload.volume_ids.values(), *workload.after_ids)
        if lost := [self.lost[id_] for id_ in needs if id_ in self.lost]:
            raise Conflict(f"It needs {', '.join(dict.fromkeys(lost))}, which could not be made.")
        if not any(id_ in self.ids for id_ in needs):
            return workload
        message = workload.message
        for planned, real in self.ids.items():
            message = message and message.replace(f"({planned})", f"({real})")
        mounts = {path: self.ids.get(id_, id_) for path, id_ in workload.volume_ids.items()}
        after = tuple(self.ids.get(id_, id_) for id_ in workload.after_ids)
        return workload.model_copy(update={"volume_ids": mounts, "after_ids": after, "message": message})
