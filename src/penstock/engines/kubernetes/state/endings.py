"""Judge how a unit ended, from the last known state of its pod."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.domain.quantities import show_bytes, show_duration
from penstock.domain.states import Reason, State
from penstock.engines.kubernetes.api.resources import whole
from penstock.engines.kubernetes.state.pods import PodRecord
from penstock.engines.shared.endings import TIME_CODE, UnitEnd, ended_by_itself, not_started, out_of_memory, over_time
from penstock.engines.shared.minder import read_note

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
        return UnitEnd(State.STOPPED, Reason.STOPPED_BY_USER, _unheard(record) if lost else None, record.exit_code)
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


def _unheard(record: PodRecord) -> str:
    return f"Its node {record.node} does not answer: whether it still runs there is not known."
