"""The protocol every engine fulfils. Everything is named by us and idempotent, so every call can be repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from penstock.domain.model import Model
from penstock.domain.nodes import Host, Node
from penstock.domain.states import Reason, State
from penstock.domain.users import Account
from penstock.domain.volumes import Phase, Storage, StorageClass, Volume
from penstock.domain.workloads import Spec, Unit, Workload
from penstock.wire.measures import GpuMeasure, Measure, NodeMeasure
from penstock.wire.pages import Event as Event
from penstock.wire.server import Check

GpuUse = dict[str, tuple[GpuMeasure | None, ...]]
"""By id of a workload: of each GPU that it has what it does, and None where that cannot be seen."""


@dataclass(frozen=True)
class Run:
    """One attempt of a workload: what an engine starts, watches and removes."""

    workload_id: str
    attempt: int = 1
    owner: tuple[str, str] | None = field(default=None, compare=False)
    """User and group as the store has them, where it is the store that speaks: what others wrote beside it in a
    cluster says nothing about whose it is."""
    hosts: tuple[str, ...] = field(default=(), compare=False)
    """The nodes it was placed on, as the store has them; empty: any."""

    @classmethod
    def of(cls, workload: Workload, attempt: int | None = None) -> Run:
        """The current attempt, unless another is named."""
        number = workload.attempt if attempt is None else attempt
        return cls(workload.id, number, (workload.user, workload.group), tuple(dict.fromkeys(workload.hosts)))


class BoundMount(Model):
    path: str
    volume: Volume
    read_only: bool
    sub_path: str | None = None
    """The directory in the volume that is mounted; None is all of it."""


class Launch(Model):
    """Everything an engine needs to start a run; made again from the store it is the same."""

    workload_id: str
    attempt: int
    name: str
    user: str
    group: str
    spec: Spec
    account: Account
    indexes: tuple[int, ...] = ()
    """Which of an array's indexes this attempt runs; empty if it is no array."""
    mounts: tuple[BoundMount, ...] = ()
    gpus: tuple[tuple[str, ...], ...] = ()
    """By rank; for an array by place: so many indexes run at once."""
    hosts: tuple[str, ...] = ()
    """Names of nodes, as `gpus`; empty where there is one to choose, or the engine chooses."""
    cpusets: tuple[tuple[int, ...], ...] = ()
    """CPUs that are theirs alone, as `gpus`."""
    master_port: int
    record: str = ""
    """The workload as the store has it: an engine that can keep it beside the run gives it back in `found`."""
    workdir_archive: Path | None = None
    venv: Path | None = None
    stop_grace: int
    """Seconds between TERM and KILL."""

    @property
    def run(self) -> Run:
        return Run(self.workload_id, self.attempt)


class Presence(StrEnum):
    absent = "absent"
    """The engine knows nothing of it, or has only prepared it: starting it is safe."""
    waiting = "waiting"
    """The engine has taken it over and nothing of it runs yet: `state`, `reason`, `message` say what it waits for."""
    running = "running"
    ended = "ended"
    """Every unit has its final state."""
    lost = "lost"
    """It began and nothing watches it any more: the outcome cannot be known; `message` says why."""


class Step(Model):
    state: State
    reason: Reason
    message: str | None = None


class Report(Model):
    """What is: the engine's answer about a run. `units` has one entry per rank or index once it began."""

    presence: Presence
    units: tuple[Unit, ...] = ()
    message: str | None = None
    state: State | None = None
    """What it waits for, or UNKNOWN: it is in doubt, and asked about again."""
    reason: Reason | None = None
    steps: tuple[Step, ...] = ()
    """What it went through on its way, as far as the engine saw it: none is missed because it was short."""


class VolumeReport(Model):
    phase: Phase
    message: str | None = None
    free_bytes: int | None = None
    """What the disk it is on has free, where that is known without measuring."""


@dataclass(frozen=True)
class LogQuery:
    follow: bool = False
    tail: int | None = None
    since: datetime | None = None


class Refusal(Model):
    """Why a spec can never run here, at the key it stands under (`("resources", "accelerators")`)."""

    keys: tuple[str, ...]
    message: str
    hint: str | None = None


class Found(Model):
    """What an engine has kept of ours: the records that stood beside the runs and the claims."""

    workloads: tuple[Workload, ...] = ()
    """As `Launch.record` of their newest attempt has them."""
    volumes: tuple[tuple[Volume, Account], ...] = ()
    unreadable: tuple[str, ...] = ()
    """Objects that are marked as ours and whose record is not to be understood or believed, each with why."""
    nodes: tuple[str, ...] = ()
    """Of those that were asked about, the ones that could be looked at."""


@dataclass(frozen=True)
class LeftOver:
    """Something of ours that runs although nobody asked for it."""

    run: Run
    node: str
    container: str
    """Its name."""


class Terminal(Model):
    columns: int
    rows: int


class Session(Protocol):
    """A program started inside a unit. Its output comes as (1 or 2, bytes) until it has ended.

    A connection to a program that listens is one as well: what that says comes as 1, and its end is code 0.
    """

    async def send(self, data: bytes) -> None: ...
    async def end_input(self) -> None: ...
    async def resize(self, size: Terminal) -> None: ...
    def output(self) -> AsyncIterator[tuple[int, bytes]]: ...
    async def exit_code(self) -> int: ...
    async def close(self) -> None:
        """Ends the program if it still runs."""
        ...


class DevicesBusy(Exception):
    """A GPU of the launch is held by someone else on the machine; `uuids` says which."""

    def __init__(self, uuids: Sequence[str]) -> None:
        super().__init__(", ".join(uuids))
        self.uuids = tuple(uuids)


class HeldUp(Exception):
    """A run must not be started yet, for this reason; it is tried again. Where our scheduler placed it, its place is
    free for others until `seconds` are over."""

    def __init__(self, reason: Reason, message: str, seconds: float = 0) -> None:
        super().__init__(message)
        self.reason, self.message, self.seconds = reason, message, seconds


class Engine(Protocol):
    """What every engine does. What only some can do are the protocols below: a caller asks with `isinstance`."""

    name: str
    schedules: bool
    """It places work itself; otherwise our scheduler does."""
    enforces_sizes: bool
    """A volume cannot hold more than its size; otherwise that is only counted."""
    helper_image: str | None
    """The image that a shell on a volume runs in; None where programs of the machine run."""

    async def open(self) -> None: ...
    async def close(self) -> None:
        """Stop looking, as far as `open` came. What runs goes on."""
        ...

    async def checks(self) -> list[Check]: ...
    async def nodes(self) -> list[Node]: ...

    async def storage_classes(self) -> list[StorageClass]: ...
    async def create_volume(self, volume: Volume, account: Account) -> None: ...
    async def delete_volume(self, volume: Volume) -> None: ...
    async def volume_reports(self, volumes: Sequence[Volume]) -> dict[str, VolumeReport]: ...
    async def volume_usage(self, volume: Volume) -> int:
        """Measure the bytes it holds, however long that takes."""
        ...

    async def refusals(self, spec: Spec, owner: tuple[str, str] = ("", "")) -> list[Refusal]:
        """Say why a spec can never run here. `owner` are the user and the group it would run for."""
        ...

    async def notices(self, spec: Spec) -> list[str]: ...
    async def start(self, launch: Launch) -> None: ...
    async def observe(self, run: Run) -> Report:
        """Report what is. Nothing is started or ended by asking."""
        ...

    async def stop(self, run: Run, grace: int) -> None: ...
    async def remove(self, run: Run) -> None:
        """Delete all that is left of a run; one that still runs is ended first."""
        ...

    async def runs(self) -> list[Run]: ...
    def changes(self) -> AsyncIterator[Run]:
        """Tell of each run that changes from this call on."""
        ...

    async def events(self, run: Run) -> list[Event]: ...
    def logs(self, run: Run, part: int, query: LogQuery) -> AsyncIterator[bytes]:
        """Read what one rank, or one index of an array, has printed."""
        ...

    async def exec(self, run: Run, part: int, command: Sequence[str], terminal: Terminal | None) -> Session: ...
    async def connect(self, run: Run, part: int, port: int) -> Session:
        """Connect to whatever of this unit, and of nothing else, listens on the port."""
        ...

    async def inspect(self, run: Run) -> dict[str, Any]:
        """Return all that is known of a run, in the engine's own words and JSON, with secrets masked."""
        ...

    async def top(self, run: Run, part: int) -> Measure: ...
    async def activity(self, names: Sequence[str], wait: float = 0) -> list[NodeMeasure]:
        """Measure what these nodes do now; what cannot be seen is left open, with the reason. So many seconds may be
        waited where something will be known then."""
        ...

    async def gpu_use(self, workloads: Sequence[Workload]) -> GpuUse:
        """Measure what the GPUs of these running workloads do now. Asked all the time: only where it is cheap."""
        ...


# -- what only some engines can do ---------------------------------------------------------------------------------


@runtime_checkable
class HasHosts(Protocol):
    """Its nodes are hosts that an admin registers, each with a disk of its own."""

    async def use_hosts(self, hosts: Sequence[Host], storages: Sequence[Storage] = ()) -> None:
        """Say which hosts there are from now on, and where their volumes are."""
        ...

    async def lacking(self, host: Host, runs: Sequence[Run]) -> list[Run]:
        """Return those of these runs, which are on the host, of which nothing is at the address it is to have."""
        ...

    async def left_over(self) -> list[LeftOver]: ...
    async def volume_node(self, volume: Volume) -> str | None:
        """Return the one node a volume is on; None: any. Raises where the node that may have it does not answer."""
        ...

    def remind(self, launch: Launch) -> None:
        """Say what a run of several parts is that another server began: the hosts keep nothing of that."""
        ...


@runtime_checkable
class HasCluster(Protocol):
    """It keeps its things in a cluster that other tools work with as well."""

    lost: Callable[[str], None]
    """Called with the reason when another server has taken the cluster over from this one."""

    def namespace(self, user: str, group: str) -> str:
        """Return what the cluster calls the place where this user's things are."""
        ...

    async def existing_claim(self, name: str, user: str, group: str) -> Volume | None:
        """Return a claim of the cluster by its own name, if it is there and not one of Penstock's.

        Its group is this one if it was given to it, or else none: nobody said who may use it.
        """
        ...

    async def volume_events(self, volume: Volume) -> list[Event]: ...
    async def resize_volume(self, volume: Volume) -> None: ...
    async def outlook(self, spec: Spec) -> str | None:
        """Say why a workload that came now would wait, as far as that is sure; None if nothing is known against it."""
        ...


@runtime_checkable
class KeepsRecords(Protocol):
    """`Launch.record` stands beside the run, so that work is found again without the database."""

    async def found(self, nodes: Collection[str]) -> Found:
        """Return what is on these nodes, where hosts are named; otherwise all there is. A workload that our scheduler
        placed comes with what it has: the nodes, GPUs and CPUs it runs on, none if it is over, and since when."""
        ...


@runtime_checkable
class SeesVolumeUsers(Protocol):
    async def volume_users(self, volume: Volume) -> list[str]:
        """Return what else uses a volume now, that our records do not know."""
        ...


@runtime_checkable
class Settles(Protocol):
    """More than the log is left behind by a run that has ended."""

    async def settle(self, run: Run, keep: int) -> None:
        """The end of this run is recorded: what is kept of it besides the log may go after `keep` seconds."""
        ...


@runtime_checkable
class Advances(Protocol):
    """An engine whose runs need its server on their way: nothing beside them does what is due."""

    async def advance(self, run: Run) -> None:
        """Do what is due now: start the next index, end the nodes of one that failed, give up a hopeless wait.

        Called after `observe`, each time the run has changed, until its end is recorded. It may return before all is
        done; what comes of it is a change of the run.
        """
        ...


def namespace_of(engine: Engine, user: str, group: str) -> str:
    """Return where the engine's own tools find this user's things: a namespace, or else the group's name."""
    return engine.namespace(user, group) if isinstance(engine, HasCluster) else group
