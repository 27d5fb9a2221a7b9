"""Answers about workloads: a line of a list, the whole, why it waits, and what a text became."""

from __future__ import annotations

import json
from typing import TypeVar

from penstock.domain.attempts import latest
from penstock.domain.model import Model, Time
from penstock.domain.scheduling.obstacles import Obstacle
from penstock.domain.states import State
from penstock.domain.summaries import WorkloadSummary
from penstock.domain.workloads import Change, Progress, Spec, Unit, Workload
from penstock.wire.pages import Page

Told = TypeVar("Told", Change, Unit)


class SpecView(Spec):
    """What was asked for, without the values of secrets."""

    @classmethod
    def of(cls, spec: Spec) -> SpecView:
        return cls.model_validate(vars(spec.shown))


class ArrayView(Progress):
    """How far an array has come."""

    count: int


class Summary(Model):
    """A workload as a list shows it.

    A field that is to be called otherwise than in the store has the store's name as its `validation_alias`.
    """

    id: str
    name: str
    group: str
    namespace: str = ""
    """Where the engine's own tools find it; empty in what an earlier version wrote."""
    user: str
    status: str
    state: State
    reason: str
    message: str | None
    ahead: int | None = None
    """How many are before it in Penstock's queue; None: nobody, or it does not wait there."""
    exit_code: int | None
    nodes: int
    hosts: tuple[str, ...] = ()
    """The nodes it is placed on, by rank, where there are several to choose from."""
    containers: tuple[str, ...] = ()
    """Their ids, by rank, where the engine has containers."""
    array: ArrayView | None = None
    cpus: str | None
    memory: str | None
    accelerators: str | None
    created_at: Time
    started_at: Time | None
    ended_at: Time | None
    updated_at: Time

    @classmethod
    def of(cls, workload: Workload) -> Summary:
        return cls.model_validate(WorkloadSummary.of(workload).model_dump())


RENAMED = {field.validation_alias: name for name, field in Summary.model_fields.items() if field.validation_alias}
"""The fields of a summary that are called otherwise in the store, by their names there."""


def summary_texts(stored: list[str]) -> list[str]:
    """Return stored summaries as the API has them: copies, where all fields are called the same."""
    if not RENAMED:
        return stored
    found = ({RENAMED.get(name, name): value for name, value in json.loads(text).items()} for text in stored)
    return [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in found]


class MountView(Model):
    path: str
    volume: str
    id: str
    read_only: bool


class WorkloadView(Summary):
    """A workload whole: what was asked, what happened."""

    spec: SpecView
    volumes: tuple[MountView, ...]
    history: tuple[Change, ...]
    units: tuple[Unit, ...]
    """Each node, or each index of an array, as its newest attempt left it."""
    earlier: tuple[Unit, ...] = ()
    """What they were in attempts before."""
    notices: tuple[str, ...]
    limits: str
    attempt: int
    requeue: int
    """How often it begins anew because its node is lost or takes its room back: its own or the server's number."""
    object_name: str

    @classmethod
    def whole(
        cls, workload: Workload, history: tuple[Change, ...], units: tuple[Unit, ...], limits: str
    ) -> WorkloadView:
        mounts = tuple(
            MountView(path=m.path, volume=m.volume, id=workload.volume_ids[m.path], read_only=m.read_only)
            for m in workload.spec.mounts
        )
        history, units = _without_secrets(workload, history), _without_secrets(workload, units)
        newest = latest(units)
        shown = {(unit.attempt, unit.index, unit.rank) for unit in newest}
        return cls(
            **WorkloadSummary.of(workload).model_dump(),
            spec=SpecView.of(workload.spec),
            volumes=mounts,
            history=history,
            units=newest,
            earlier=tuple(unit for unit in units if (unit.attempt, unit.index, unit.rank) not in shown),
            notices=workload.notices,
            limits=limits,
            attempt=workload.attempt,
            requeue=workload.requeues,
            object_name=workload.object_name,
        )


class DryRun(Model):
    valid: bool = True
    fits_now: bool | None
    """None: the cluster decides, and nothing is known against it."""
    message: str
    ahead: int | None = None
    """How many would be before it in Penstock's queue."""
    notices: tuple[str, ...]
    spec: SpecView
    upload_limit_bytes: int | None = None
    """What its workdir, which would be sent along, may have at most when it is packed."""


def _without_secrets(workload: Workload, told: tuple[Told, ...]) -> tuple[Told, ...]:
    if not workload.spec.secrets:
        return told
    hide = workload.spec.without_secrets
    return tuple(each.model_copy(update={"message": hide(each.message)}) for each in told)


class SummaryPage(Page):
    items: tuple[Summary, ...]


class Applied(Model):
    """What became of one document; `result` is `created`, `resized`, `not changed`, `deleted`, `is being stopped`,
    `stopped`, `not running`, `not present` or `failed`."""

    kind: str
    name: str
    id: str | None = None
    result: str
    message: str | None = None
    ahead: int | None = None
    """Of a workload: how many are before it in Penstock's queue."""
    notices: tuple[str, ...] = ()


class ApplyResults(Model):
    results: tuple[Applied, ...]
    upload_limit_bytes: int | None = None
    """Of a dry run: what each directory that would be sent along may have at most when it is packed."""


class Converted(Model):
    text: str


class ExplainedNode(Model):
    name: str
    fits: bool
    obstacles: tuple[Obstacle, ...] = ()


class Explained(Model):
    id: str
    name: str
    state: State
    sentence: str | None
    """Why it waits; of one that does not, what is the case."""
    ahead: int | None = None
    """So many are before it in the queue; None where it is in none of ours."""
    since: Time
    """When it began to wait, or to run, or ended."""
    nodes: tuple[ExplainedNode, ...] = ()
    """Each that its owner may use. Empty where it does not wait, or a cluster decides."""
