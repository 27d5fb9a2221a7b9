"""The protocol every engine fulfils. Everything is named by us and idempotent, so every call can be repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from penstock.domain.model import Model
from penstock.domain.nodes import Node
from penstock.domain.users import Account
from penstock.domain.volumes import Phase, StorageClass, Volume
from penstock.domain.workloads import Spec, Unit
from penstock.wire import Check


@dataclass(frozen=True)
class Run:
    """One attempt of a workload: what an engine starts, watches and removes."""

    workload_id: str
    attempt: int = 1


class BoundMount(Model):
    path: str
    volume: Volume
    read_only: bool


class Launch(Model):
    """Everything an engine needs to start a run; made again from the store it is the same."""

    workload_id: str
    attempt: int
    name: str
    spec: Spec
    account: Account
    mounts: tuple[BoundMount, ...] = ()
    gpus: tuple[tuple[str, ...], ...] = ()
    master_port: int
    workdir_archive: Path | None = None
    venv: Path | None = None
    stop_grace: int
    """Seconds between TERM and KILL."""


class Presence(StrEnum):
    absent = "absent"
    """The engine knows nothing of it, or has only prepared it: starting it is safe."""
    running = "running"
    ended = "ended"
    """Every unit has its final state."""
    lost = "lost"
    """It began and nothing watches it any more: the outcome cannot be known; `message` says why."""


class Report(Model):
    """What is: the engine's answer about a run. `units` has one entry per rank once it began."""

    presence: Presence
    units: tuple[Unit, ...] = ()
    message: str | None = None


class VolumeReport(Model):
    phase: Phase
    message: str | None = None


@dataclass(frozen=True)
class LogQuery:
    follow: bool = False
    tail: int | None = None
    since: datetime | None = None


class DevicesBusy(Exception):
    """A GPU of the launch is held by someone else on the machine; `uuids` says which."""

    def __init__(self, uuids: Sequence[str]) -> None:
        super().__init__(", ".join(uuids))
        self.uuids = tuple(uuids)


class Engine(Protocol):
    name: str

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def checks(self) -> list[Check]: ...
    async def nodes(self) -> list[Node]: ...

    async def storage_classes(self) -> list[StorageClass]: ...
    async def create_volume(self, volume: Volume, account: Account) -> None: ...
    async def delete_volume(self, volume: Volume) -> None: ...
    async def volume_reports(self, volumes: Sequence[Volume]) -> dict[str, VolumeReport]: ...
    async def volume_usage(self, volume: Volume) -> int: ...

    async def start(self, launch: Launch) -> None: ...
    async def observe(self, run: Run) -> Report: ...
    async def stop(self, run: Run, grace: int) -> None: ...
    async def remove(self, run: Run) -> None: ...
    async def runs(self) -> list[Run]: ...
    def changes(self) -> AsyncIterator[Run]: ...
    def logs(self, run: Run, rank: int, query: LogQuery) -> AsyncIterator[bytes]: ...
