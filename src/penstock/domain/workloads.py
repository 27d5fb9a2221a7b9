"""Workload: something to run, and the one table of states it moves through."""

from __future__ import annotations

from enum import StrEnum

from penstock.domain.model import Model, Time
from penstock.domain.users import Account


class State(StrEnum):
    """The life cycle of document 003."""

    INSERTED = "INSERTED"
    DENIED = "DENIED"
    QUEUED = "QUEUED"
    ASSIGNED = "ASSIGNED"
    PULLING = "PULLING"
    REQUESTED_PULLING = "REQUESTED_PULLING"
    LAUNCHING = "LAUNCHING"
    REQUESTED_LAUNCH = "REQUESTED_LAUNCH"
    LAUNCHED = "LAUNCHED"
    RUNNING = "RUNNING"
    REQUESTED_CANCEL = "REQUESTED_CANCEL"
    EXITED = "EXITED"
    CRASHED = "CRASHED"
    STOPPED = "STOPPED"
    UNKNOWN = "UNKNOWN"
    STUCK = "STUCK"
    DELETED = "DELETED"


class Reason(StrEnum):
    """Why a state was entered; a person's sentence stands beside it."""

    SUBMITTED = "SUBMITTED"
    NO_AVAILABLE_RESOURCES = "NO_AVAILABLE_RESOURCES"
    PLACED = "PLACED"
    GIVEN_BACK = "GIVEN_BACK"
    STARTED = "STARTED"
    FINISHED = "FINISHED"
    PROGRAM_FAILED = "PROGRAM_FAILED"
    SETUP_FAILED = "SETUP_FAILED"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    TIME_LIMIT = "TIME_LIMIT"
    VOLUME_LOST = "VOLUME_LOST"
    STOPPED_BY_USER = "STOPPED_BY_USER"
    ANOTHER_NODE_ENDED = "ANOTHER_NODE_ENDED"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    NODE_LOST = "NODE_LOST"
    DELETED_BY_USER = "DELETED_BY_USER"
    RETENTION = "RETENTION"


_S = State
ENDED = frozenset({_S.EXITED, _S.CRASHED, _S.STOPPED, _S.UNKNOWN, _S.STUCK, _S.DELETED})
_ANY_END = ENDED - {_S.DELETED, _S.EXITED}
WAITING = frozenset({_S.INSERTED, _S.DENIED, _S.QUEUED})
PLACED = frozenset(_S) - WAITING - ENDED
"""Holds resources: from ASSIGNED until it has ended."""

MOVES: dict[State, frozenset[State]] = {
    _S.INSERTED: frozenset({_S.DENIED, _S.QUEUED, _S.ASSIGNED, _S.STOPPED, _S.CRASHED}),
    _S.DENIED: frozenset({_S.DENIED, _S.QUEUED, _S.ASSIGNED, _S.STOPPED}),
    _S.QUEUED: frozenset({_S.QUEUED, _S.DENIED, _S.ASSIGNED, _S.STOPPED, _S.CRASHED}),
    _S.ASSIGNED: frozenset({_S.PULLING, _S.LAUNCHING, _S.QUEUED, _S.REQUESTED_CANCEL}) | _ANY_END,
    _S.PULLING: frozenset({_S.REQUESTED_PULLING, _S.LAUNCHING, _S.QUEUED, _S.REQUESTED_CANCEL}) | _ANY_END,
    _S.REQUESTED_PULLING: frozenset({_S.LAUNCHING, _S.QUEUED, _S.REQUESTED_CANCEL}) | _ANY_END,
    _S.LAUNCHING: frozenset({_S.REQUESTED_LAUNCH, _S.LAUNCHED, _S.RUNNING, _S.QUEUED, _S.REQUESTED_CANCEL, _S.EXITED})
    | _ANY_END,
    _S.REQUESTED_LAUNCH: frozenset({_S.LAUNCHING, _S.LAUNCHED, _S.RUNNING, _S.QUEUED, _S.REQUESTED_CANCEL, _S.EXITED})
    | _ANY_END,
    _S.LAUNCHED: frozenset({_S.RUNNING, _S.REQUESTED_CANCEL, _S.EXITED}) | _ANY_END,
    _S.RUNNING: frozenset({_S.REQUESTED_CANCEL, _S.EXITED}) | _ANY_END,
    _S.REQUESTED_CANCEL: frozenset({_S.EXITED}) | _ANY_END,
    _S.UNKNOWN: frozenset({_S.RUNNING, _S.REQUESTED_CANCEL, _S.EXITED, _S.CRASHED, _S.STOPPED, _S.STUCK, _S.DELETED}),
    _S.EXITED: frozenset({_S.DELETED}),
    _S.CRASHED: frozenset({_S.DELETED}),
    _S.STOPPED: frozenset({_S.DELETED}),
    _S.STUCK: frozenset({_S.DELETED}),
    _S.DELETED: frozenset(),
}

SHORT: dict[State, str] = (
    dict.fromkeys(WAITING | {_S.ASSIGNED, _S.PULLING, _S.REQUESTED_PULLING}, "pending")
    | dict.fromkeys((_S.LAUNCHING, _S.REQUESTED_LAUNCH, _S.LAUNCHED), "pending")
    | dict.fromkeys((_S.RUNNING, _S.REQUESTED_CANCEL), "running")
    | {_S.EXITED: "completed", _S.CRASHED: "failed", _S.STUCK: "failed"}
    | {_S.STOPPED: "stopped", _S.UNKNOWN: "unknown", _S.DELETED: "deleted"}
)
"""Document 001's words, as a projection."""


class IllegalMove(RuntimeError):
    """A state change the table does not know: a defect of ours, never of a user."""


def check_move(old: State, new: State) -> None:
    if new not in MOVES[old]:
        raise IllegalMove(f"{old} → {new}")


class Wants(StrEnum):
    RUN = "RUN"
    STOP = "STOP"
    DELETE = "DELETE"


class Resources(Model):
    """What one node of a workload asks for; None is "not said"."""

    cpus_milli: int | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    gpu_products: tuple[str, ...] = ()
    """Any one of these; empty is any product."""
    image: str | None = None


class Mount(Model):
    path: str
    volume: str
    """As the user named it."""
    read_only: bool = False


class Spec(Model):
    """What a user asked for, whatever they wrote it in."""

    name: str | None = None
    nodes: int = 1
    resources: Resources = Resources()
    envs: dict[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    workdir: str | None = None
    """Absolute: a directory inside the job. Relative: the user's code, sent along at submit."""
    setup: str | None = None
    run: str
    max_duration: int | None = None
    """Seconds."""


class Change(Model):
    """One line of a workload's history."""

    state: State
    reason: Reason
    message: str | None = None
    at: Time


class Unit(Model):
    """One (attempt, index, rank): what is kept of each."""

    attempt: int = 1
    index: int = 0
    rank: int
    state: State
    reason: Reason | None = None
    message: str | None = None
    exit_code: int | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    peak_memory_bytes: int | None = None


class Workload(Model):
    id: str
    name: str
    group: str
    user: str
    account: Account
    """The Unix account it runs as."""
    spec: Spec
    volume_ids: dict[str, str] = {}
    """Mount path → id of the volume, resolved once, at submit."""
    files: dict[str, str] = {}
    """Field → id of the upload (`workdir`)."""
    venv: str | None = None
    notices: tuple[str, ...] = ()
    """What the submitter was told: fields that do not apply here, an image that is not used."""
    state: State = State.INSERTED
    reason: Reason = Reason.SUBMITTED
    message: str | None = None
    wants: Wants = Wants.RUN
    attempt: int = 1
    gpus: tuple[tuple[str, ...], ...] = ()
    """GPU uuids by rank, while placed."""
    master_port: int | None = None
    exit_code: int | None = None
    created_at: Time
    updated_at: Time
    started_at: Time | None = None
    ended_at: Time | None = None

    @property
    def object_name(self) -> str:
        return f"{self.name}-{self.id}"

    @property
    def status(self) -> str:
        return SHORT[self.state]

    @property
    def ended(self) -> bool:
        return self.state in ENDED
