"""What goes over the wire: bodies that are asked for and answers that are given, in one place for OpenAPI."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from penstock.domain.model import Model, Time
from penstock.domain.nodes import Gpu
from penstock.domain.quantities import show_bytes, show_cpus
from penstock.domain.users import Proof
from penstock.domain.volumes import AccessMode, Phase, Source, StorageClass, Volume
from penstock.domain.workloads import Change, Resources, Spec, State, Unit, Workload


class Body(BaseModel):
    """A request's body: an unknown key is an error, as everywhere."""

    model_config = ConfigDict(extra="forbid")


class NewVolume(Body):
    name: str = Field(examples=["training-data"])
    size: str = Field(examples=["10Gi"])
    storage_class: str | None = Field(None, examples=["standard"])
    access_modes: list[str] | None = Field(None, examples=[["ReadWriteOnce"]])


class Submission(Body):
    """A task as the user wrote it; the server reads it, so that every client gets the same errors."""

    text: str = Field(examples=["name: hello\nrun: echo hello\n"])
    source: str = Field("task.yaml", max_length=1024)
    name: str | None = None
    envs: dict[str, str] = {}
    files: dict[str, str] = {}
    venv: str | None = Field(None, max_length=4096)
    dry_run: bool = False


class NewToken(Body):
    description: str = Field("", max_length=200)
    expires: str | None = Field(None, examples=["30d"])


class VolumeUse(Model):
    id: str
    name: str
    status: str


class VolumeView(Model):
    id: str
    name: str
    group: str
    user: str
    source: Source
    size: str
    size_bytes: int
    storage_class: str
    access_modes: tuple[AccessMode, ...]
    status: Phase
    message: str | None = None
    object_name: str
    created_at: Time
    used_bytes: int | None = None
    used_by: tuple[VolumeUse, ...] | None = None
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, volume: Volume, **more: Any) -> VolumeView:
        kept = volume.model_dump(exclude={"phase", "message"})
        return cls(**kept, status=volume.phase, object_name=volume.object_name, **({"message": volume.message} | more))


class Summary(Model):
    """A workload as a list shows it. Kept as JSON in the store, so that a list is a copy, not a computation."""

    id: str
    name: str
    group: str
    user: str
    status: str
    state: State
    reason: str
    message: str | None
    exit_code: int | None
    nodes: int
    cpus: str | None
    memory: str | None
    accelerators: str | None
    created_at: Time
    started_at: Time | None
    ended_at: Time | None
    updated_at: Time

    @classmethod
    def of(cls, workload: Workload) -> Summary:
        return cls(**_summary_fields(workload))


class MountView(Model):
    path: str
    volume: str
    id: str
    read_only: bool


class WorkloadView(Summary):
    """A workload whole: what was asked, what happened."""

    spec: Spec
    volumes: tuple[MountView, ...]
    history: tuple[Change, ...]
    units: tuple[Unit, ...]
    notices: tuple[str, ...]
    limits: str
    attempt: int
    object_name: str

    @classmethod
    def whole(
        cls, workload: Workload, history: tuple[Change, ...], units: tuple[Unit, ...], limits: str
    ) -> WorkloadView:
        mounts = tuple(
            MountView(path=m.path, volume=m.volume, id=workload.volume_ids[m.path], read_only=m.read_only)
            for m in workload.spec.mounts
        )
        return cls(
            **_summary_fields(workload),
            spec=workload.spec,
            volumes=mounts,
            history=history,
            units=units,
            notices=workload.notices,
            limits=limits,
            attempt=workload.attempt,
            object_name=workload.object_name,
        )


class DryRun(Model):
    valid: bool = True
    fits_now: bool
    message: str
    notices: tuple[str, ...]
    spec: Spec


class TokenView(Model):
    id: str
    user: str
    description: str
    created_at: Time
    expires_at: Time | None = None
    last_used_at: Time | None = None


class NewTokenView(TokenView):
    token: str
    """Shown this once; only its hash is kept."""


def accelerators(resources: Resources) -> str | None:
    """`A10:1`, `A10|L4:1`, `2`: as short as the task YAML writes it."""
    if not resources.gpus:
        return None
    return f"{'|'.join(resources.gpu_products)}:{resources.gpus}".removeprefix(":")


def _summary_fields(workload: Workload) -> dict[str, Any]:
    asked = workload.spec.resources
    return {
        "id": workload.id,
        "name": workload.name,
        "group": workload.group,
        "user": workload.user,
        "status": workload.status,
        "state": workload.state,
        "reason": workload.reason,
        "message": workload.message,
        "exit_code": workload.exit_code,
        "nodes": workload.spec.nodes,
        "cpus": show_cpus(asked.cpus_milli) if asked.cpus_milli else None,
        "memory": show_bytes(asked.memory_bytes) if asked.memory_bytes else None,
        "accelerators": accelerators(asked),
        "created_at": workload.created_at,
        "started_at": workload.started_at,
        "ended_at": workload.ended_at,
        "updated_at": workload.updated_at,
    }


class Deleted(Model):
    id: str
    name: str
    deleted: bool = True


class Uploaded(Model):
    id: str


class Page(Model):
    """`next` is the cursor of the following page; `version` goes into `seen` to wait for a change."""

    next: str | None = None
    version: str


class VolumePage(Page):
    items: tuple[VolumeView, ...]


class SummaryPage(Page):
    items: tuple[Summary, ...]


class TokenPage(Page):
    items: tuple[TokenView, ...]


class StorageClassPage(Page):
    items: tuple[StorageClass, ...]


class Health(Model):
    status: str = "ok"
    service: str
    version: str


class Whoami(Model):
    user: str
    group: str
    admin: bool
    proof: Proof
    uid: int | None


class ServerView(Model):
    version: str
    pid: int
    mode: str
    engine: str
    socket: str
    address: str | None
    auth: str
    data_dir: str
    started_at: Time


class Check(Model):
    """One line of `penstock doctor`."""

    name: str
    ok: bool
    detail: str
    fix: str | None = None
    required: bool = True


class CheckList(Model):
    checks: tuple[Check, ...]


class GpuView(Gpu):
    workload: str | None
    """Who has it."""


class NodeView(Model):
    name: str
    cpus: str
    cpus_free: str
    memory_bytes: int
    memory_free_bytes: int
    gpus: tuple[GpuView, ...]
    limits_enforced: bool


class NodePage(Page):
    items: tuple[NodeView, ...]


class ErrorBody(Model):
    """Every error, on every route."""

    detail: str
    code: str
    message: str
    hint: str | None = None
    problems: tuple[dict[str, str], ...] = ()
    details: dict[str, Any] = {}
