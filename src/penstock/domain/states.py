"""The life cycle of a workload: its states, the reasons for them and the table of transitions."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """PWM's states of a workload."""

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
    """Why a state was entered. A message for people stands beside it."""

    SUBMITTED = "SUBMITTED"
    ADOPTED = "ADOPTED"
    """Found in the cluster, or on a Docker host, by a server whose records were lost."""
    WAITS_FOR_OTHERS = "WAITS_FOR_OTHERS"
    """The workloads named in `after` have not all completed."""
    NO_AVAILABLE_RESOURCES = "NO_AVAILABLE_RESOURCES"
    NO_NODE_FITS = "NO_NODE_FITS"
    """No node could run it, even if it were empty; a node that is added or changed may."""
    QUOTA = "QUOTA"
    """It would exceed a limit of its user, its group or its namespace."""
    NOT_ALLOWED = "NOT_ALLOWED"
    """Its user may not start anything any more."""
    PARTLY_PLACED = "PARTLY_PLACED"
    """Some of its nodes have a place, not all: none starts."""
    VOLUME_NOT_READY = "VOLUME_NOT_READY"
    IN_QUEUE = "IN_QUEUE"
    """Handed to a queue that decides when it may start."""
    PULLING_IMAGE = "PULLING_IMAGE"
    CLUSTER_UNREACHABLE = "CLUSTER_UNREACHABLE"
    PLACED = "PLACED"
    GIVEN_BACK = "GIVEN_BACK"
    STARTED = "STARTED"
    FINISHED = "FINISHED"
    PROGRAM_FAILED = "PROGRAM_FAILED"
    SETUP_FAILED = "SETUP_FAILED"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    TIME_LIMIT = "TIME_LIMIT"
    DISK_LIMIT = "DISK_LIMIT"
    """It wrote more to its scratch disks, or in all, than it asked for."""
    EVICTED = "EVICTED"
    """The node needed the resources for itself."""
    PULL_FAILED = "PULL_FAILED"
    DEPENDENCY_FAILED = "DEPENDENCY_FAILED"
    RETRY = "RETRY"
    """The program failed and `retries` gives it another attempt."""
    REQUEUED = "REQUEUED"
    """Its node was lost or needed its room, and `requeue` gives it another attempt."""
    RESTARTED = "RESTARTED"
    """It finished, and `restart` starts it again."""
    DELETED_OUTSIDE = "DELETED_OUTSIDE"
    """Removed in the cluster by someone else."""
    VOLUME_LOST = "VOLUME_LOST"
    STOPPED_BY_USER = "STOPPED_BY_USER"
    GPUS_IDLE = "GPUS_IDLE"
    """Its GPUs did nothing for longer than `idle_timeout`."""
    ANOTHER_NODE_ENDED = "ANOTHER_NODE_ENDED"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    NODE_LOST = "NODE_LOST"
    DELETED_BY_USER = "DELETED_BY_USER"
    RETENTION = "RETENTION"
    TTL = "TTL"


_S = State
ENDED = frozenset({_S.EXITED, _S.CRASHED, _S.STOPPED, _S.UNKNOWN, _S.STUCK, _S.DELETED})
_ANY_END = ENDED - {_S.DELETED, _S.EXITED}
WAITING = frozenset({_S.INSERTED, _S.DENIED, _S.QUEUED})

_BEFORE_RUNNING = frozenset(State) - {_S.INSERTED, _S.DELETED}
"""A cluster places, pulls and starts in an order of its own, and may take a place back."""
_ON_THE_WAY = {_S.ASSIGNED, _S.PULLING, _S.REQUESTED_PULLING, _S.LAUNCHING, _S.REQUESTED_LAUNCH, _S.LAUNCHED}

MOVES: dict[State, frozenset[State]] = {
    **dict.fromkeys(WAITING | _ON_THE_WAY, _BEFORE_RUNNING),
    _S.RUNNING: frozenset({_S.QUEUED, _S.REQUESTED_CANCEL, _S.EXITED}) | _ANY_END,
    _S.REQUESTED_CANCEL: frozenset({_S.EXITED}) | _ANY_END,
    _S.UNKNOWN: _BEFORE_RUNNING | {_S.DELETED},
    **dict.fromkeys((_S.EXITED, _S.CRASHED, _S.STOPPED, _S.STUCK), frozenset({_S.QUEUED, _S.DELETED})),
    _S.DELETED: frozenset(),
}

SHORT: dict[State, str] = (
    dict.fromkeys(WAITING | _ON_THE_WAY, "pending")
    | dict.fromkeys((_S.RUNNING, _S.REQUESTED_CANCEL), "running")
    | {_S.EXITED: "completed", _S.CRASHED: "failed", _S.STUCK: "failed"}
    | {_S.STOPPED: "stopped", _S.UNKNOWN: "unknown", _S.DELETED: "deleted"}
)
"""The word k8s-cli has for each state."""


class IllegalMove(RuntimeError):
    """A state change that is not in the table: a defect of ours, never of a user."""


def check_move(old: State, new: State) -> None:
    if new not in MOVES[old]:
        raise IllegalMove(f"{old} → {new}")
