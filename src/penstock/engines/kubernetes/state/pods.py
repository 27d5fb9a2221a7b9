"""Record the last known state of a unit's pod, and judge from it how the unit ended.

Pods vanish, and with them how they ended. A record never loses what an earlier one knew: when the container started,
that it ended by itself before its pod was deleted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import msgspec
from msgspec.structs import replace

from penstock.domain.quantities import show_bytes, show_duration
from penstock.domain.states import Reason, State
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects import OVER, Pod, condition
from penstock.engines.kubernetes.api.resources import whole
from penstock.engines.shared.endings import TIME_CODE, UnitEnd, ended_by_itself, not_started, out_of_memory, over_time
from penstock.engines.shared.minder import read_note


class PodRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    part: int
    uid: str
    pod: str
    namespace: str = ""
    node: str = ""
    created: datetime | None = None
    phase: str = ""
    running: bool = False
    """Its container has started and not ended."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    cause: str = ""
    """Why its container ended, in Kubernetes' word: OOMKilled, Error, StartError."""
    said: str = ""
    """The container's termination message."""
    reason: str = ""
    """Why its pod ended, in Kubernetes' word: Evicted, DeadlineExceeded."""
    message: str = ""
    disrupted: str = ""
    """Who took its place away, in Kubernetes' word: PreemptionByScheduler, DeletionByTaintManager."""
    deleting: int = 0
    """The version of the object at which its deletion was first seen, before it had ended; 0 is never."""
    due: datetime | None = None
    """When a pod that is being deleted will be killed."""
    gone_at: datetime | None = None
    """When it was seen to be no longer there, if it had not ended by then."""
    memory_limit: str = ""
    max_duration: int | None = None
    paths: dict[str, str] = {}
    """Where its volumes are mounted: Kubernetes names a scratch disk that is full by its volume."""
    array: bool = False

    @property
    def over(self) -> bool:
        """Has the pod ended for good?"""
        return self.gone_at is not None or (self.phase in OVER and not self.running)

    @property
    def ran(self) -> bool:
        """Has its container begun? Then there may be a log."""
        return self.started_at is not None or (self.exit_code is not None and self.cause != "StartError")


def record_pod(pod: Pod, *, array: bool = False) -> PodRecord:
    status = pod.container(names.CONTAINER)
    state = status.state if status else None
    ended = state.terminated if state else None
    began = (state.running and state.running.started_at) or (ended and ended.started_at) if state else None
    disrupted = condition(pod.status.conditions, "DisruptionTarget")
    container = next((each for each in pod.spec.containers if each.name == names.CONTAINER), None)
    return PodRecord(
        part=names.part_of(pod),
        uid=pod.uid,
        pod=pod.name,
        namespace=pod.namespace,
        node=pod.spec.node_name,
        created=pod.metadata.creation_timestamp,
        phase=pod.status.phase,
        running=bool(state and state.running),
        started_at=began if began and began.year > 1970 else None,
        ended_at=ended.finished_at if ended and ended.finished_at and ended.finished_at.year > 1970 else None,
        exit_code=ended.exit_code if ended else None,
        cause=ended.reason if ended else "",
        said=ended.message if ended else "",
        reason=pod.status.reason,
        message=pod.status.message,
        disrupted=disrupted.reason if disrupted and disrupted.true else "",
        deleting=_version(pod) if pod.metadata.deletion_timestamp else 0,
        due=pod.metadata.deletion_timestamp,
        memory_limit=container.resources.limits.get("memory", "") if container else "",
        max_duration=pod.spec.active_deadline_seconds,
        paths={mount.name: mount.mount_path for mount in container.volume_mounts} if container else {},
        array=array,
    )


def _version(pod: Pod) -> int:
    version = pod.metadata.resource_version
    return int(version) if version.isdecimal() else 1


def merge_records(old: PodRecord | None, new: PodRecord) -> PodRecord:
    """Merge what is known of a unit with what was just seen."""
    if old is None:
        return new
    if old.uid != new.uid:
        return new if _made(new) >= _made(old) else old
    if old.gone_at or (old.over and old.exit_code is not None):
        return old
    ended_before = old.exit_code is not None and not old.deleting
    return replace(
        new,
        started_at=new.started_at or old.started_at,
        deleting=old.deleting or (0 if ended_before else new.deleting),
        disrupted=new.disrupted or old.disrupted,
    )


def _made(record: PodRecord) -> float:
    return record.created.timestamp() if record.created else 0.0


def mark_gone(old: PodRecord, at: datetime) -> PodRecord:
    return old if old.over else replace(old, running=False, gone_at=at)


# how it ended

_SCRATCH = re.compile(r'EmptyDir volume "([^"]+)" exceeds the limit "([^"]+)"')
_IN_ALL = re.compile(r'(?:total limit of containers |local ephemeral storage limit ")([0-9.]+[A-Za-z]*)')
_LOW = re.compile(r"The node was low on resource: ([\w-]+)")
_RESOURCES = {"ephemeral-storage": "disk", "inodes": "disk (files)", "pids": "processes"}
_TAKEN = {
    "PreemptionByScheduler": "Something of higher priority took its place on {node}.",
    "EvictionByEvictionAPI": "It had to leave {node}, which is being emptied.",
}
_LOST = ("DeletionByTaintManager", "DeletionByPodGC")


@dataclass(frozen=True)
class Intervention:
    """What was done to a run from outside, that its pods do not know."""

    stopped: bool = False
    verdict: UnitEnd | None = None
    job_deleted: bool = False
    max_duration: int | None = None


def is_own(record: PodRecord) -> bool:
    """Did it end by itself, before it was taken away? Its own note says so where the order was not seen."""
    if record.exit_code is None or record.reason or record.cause == "ContainerStatusUnknown":
        return False
    note = read_note(record.said)
    return note.ended != "time" and (not record.deleting or (note.code is not None and not note.ended))


def judge_end(record: PodRecord, asked: Intervention, lost: bool = False) -> UnitEnd:
    """Judge a unit whose pod is over, or which is `lost` with its node. Whether another unit ended it is not asked."""
    if is_own(record):
        return _own(record)
    if timed_out(record):
        return _time_limit(record, asked)
    if record.reason:
        return _ended_by_node(record)
    if asked.stopped:
        said = f"Its node {record.node} does not answer: whether it still runs there is not known."
        return UnitEnd(State.STOPPED, Reason.STOPPED_BY_USER, said if lost else None, record.exit_code)
    if asked.verdict:
        return asked.verdict
    if lost or record.disrupted in _LOST:
        return UnitEnd(State.CRASHED, Reason.NODE_LOST, f"Its node {record.node} was lost.", record.exit_code)
    if record.disrupted:
        said = _TAKEN.get(record.disrupted, "{node} took its room back.").format(node=record.node or "Its node")
        return UnitEnd(State.CRASHED, Reason.EVICTED, said, record.exit_code)
    what = "Its Job was deleted" if asked.job_deleted else "Its pod was deleted"
    return UnitEnd(State.CRASHED, Reason.DELETED_OUTSIDE, f"{what} in the cluster.", record.exit_code)


def timed_out(record: PodRecord) -> bool:
    return record.reason == "DeadlineExceeded" or (
        record.exit_code is not None and read_note(record.said).ended == "time"
    )


def find_peak(record: PodRecord) -> int | None:
    """Return its peak of memory; what was killed for its memory used all that it was allowed."""
    limit = whole(record.memory_limit) if record.cause == "OOMKilled" else 0
    return read_note(record.said).peak or limit or None


def _own(record: PodRecord) -> UnitEnd:
    code = record.exit_code or 0
    if record.cause in ("StartError", "ContainerCannotRun"):
        return not_started(record.said, code=record.exit_code)
    if code and record.cause == "OOMKilled":
        limit = whole(record.memory_limit) if record.memory_limit else 0
        return out_of_memory(record.node, limit, find_peak(record), code)
    return ended_by_itself(code, read_note(record.said).phase)


def _size(text: str) -> str:
    return show_bytes(whole(text))


def _time_limit(record: PodRecord, asked: Intervention) -> UnitEnd:
    limit = asked.max_duration or record.max_duration
    if record.ran:
        return over_time(limit, record.exit_code)
    shown = f" ({show_duration(limit)})" if limit else ""
    said = f"Its max_duration{shown} was over before it ran."
    return UnitEnd(State.CRASHED, Reason.TIME_LIMIT, said, record.exit_code or TIME_CODE)


def _ended_by_node(record: PodRecord) -> UnitEnd:
    code = record.exit_code or 1
    if full := _disk_limit(record):
        return UnitEnd(State.CRASHED, Reason.DISK_LIMIT, full, code)
    if low := _LOW.search(record.message):
        what = _RESOURCES.get(low[1], low[1])
        return UnitEnd(State.CRASHED, Reason.EVICTED, f"{record.node} ran low on {what} and took its room back.", code)
    if record.reason in ("NodeLost", "Unknown"):
        return UnitEnd(State.CRASHED, Reason.NODE_LOST, f"Its node {record.node} was lost.", code)
    if record.reason in ("Terminated", "NodeShutdown", "Shutdown"):
        return UnitEnd(State.CRASHED, Reason.EVICTED, f"{record.node} was shut down.", code)
    said = f"{record.node or 'Its node'} did not keep it: {record.message.strip().rstrip('.') or record.reason}."
    return UnitEnd(State.CRASHED, Reason.EVICTED, said, code)


def _disk_limit(record: PodRecord) -> str | None:
    if scratch := _SCRATCH.search(record.message):
        return f"{record.paths.get(scratch[1], scratch[1])} holds more than its size {_size(scratch[2])}."
    if in_all := _IN_ALL.search(record.message):
        return f"It holds more outside its volumes than its disk_size {_size(in_all[1])}."
    return None
