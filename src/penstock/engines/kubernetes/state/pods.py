"""Record the last known state of a unit's pod: pods vanish, and with them how they ended.

A record never loses what an earlier one knew: when the container started, that it ended by itself before its pod was
deleted.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects import OVER, Pod, condition


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
