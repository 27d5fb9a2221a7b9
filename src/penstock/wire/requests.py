"""Request bodies. An unknown key is an error."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewVolume(RequestBody):
    name: str = Field(examples=["training-data"])
    size: str | None = Field(None, examples=["10Gi"])
    """May be left out where a storage is named: such a volume has the room its storage has."""
    storage_class: str | None = Field(None, examples=["standard"])
    access_modes: list[str] | None = Field(None, examples=[["ReadWriteOnce"]])
    storage: str | None = Field(None, examples=["pwmzfs01"])
    sub_path: str | None = Field(None, max_length=1024, examples=["datasets/hmdb_ucf"])
    """The directory on the storage, below that of the group; without it the volume's own name."""
    readonly: bool = False


class Submission(RequestBody):
    """A task as the user wrote it; the server reads it, so that every client gets the same errors."""

    text: str = Field(examples=["name: hello\nrun: echo hello\n"])
    source: str = Field("task.yaml", max_length=1024)
    name: str | None = None
    envs: dict[str, str] = {}
    after: list[str] = Field([], max_length=100)
    """Ids or names of workloads it waits for, beside those the task names."""
    files: dict[str, str] = {}
    venv: str | None = Field(None, max_length=4096)
    dry_run: bool = False


class Resize(RequestBody):
    size: str = Field(examples=["20Gi"])


class Retry(RequestBody):
    indexes: list[int] | None = Field(None, max_length=100_000, examples=[[3, 7]])
    """Of an array; without them all that did not complete."""


class Documents(RequestBody):
    """One or several documents as the user wrote them: tasks and Kubernetes' manifests."""

    text: str = Field(examples=["kind: PersistentVolumeClaim\n…"])
    source: str = Field("documents.yaml", max_length=1024)


class Conversion(Documents):
    to: Literal["task", "document", "kubernetes"] | None = None
    """The way of writing; without it a task becomes a manifest and any other workload a task."""


class Application(Documents):
    kinds: list[str] | None = Field(None, max_length=10, examples=[["User", "Group"]])
    """Documents of other kinds are refused; without it, all are taken."""
    files: dict[str, str] = {}
    venv: str | None = Field(None, max_length=4096)
    dry_run: bool = False


class FirstUser(RequestBody):
    user: str | None = Field(None, max_length=64, examples=["alice"])
    """Who becomes the admin; without it whoever asks."""


class NewToken(RequestBody):
    description: str = Field("", max_length=200)
    expires: str | None = Field(None, examples=["30d"])
    user: str | None = Field(None, max_length=64, examples=["alice"])
    """For whom, if not for the one who asks: admins may."""
