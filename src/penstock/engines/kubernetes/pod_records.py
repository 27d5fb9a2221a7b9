"""Keep the last known state of every unit's pod, in files beside the logs that the next server reads."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from penstock.domain.model import now
from penstock.engines.base import Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.api.objects import Pod
from penstock.engines.kubernetes.state.jobs import is_array
from penstock.engines.kubernetes.state.pods import PodRecord, mark_gone, merge_records, record_pod

log = logging.getLogger(__name__)

FILE = "units"


class PodRecords:
    """The records of all runs, kept up to date by the watch of pods."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster, self.directory = cluster, directory
        self._runs: dict[Run, RunPods] = {}
        self._compared: set[Run] = set()
        """Runs whose records were compared with the pods there are."""
        self._removed: set[Run] = set()
        """Removed runs whose last pods are still there."""
        self._listeners: list[Callable[[Run, PodRecord], None]] = []

    def open(self) -> None:
        """After the cluster's own `open`, and when all who listen have subscribed."""
        self._cluster.pods.subscribe(self._pod_changed)
        for pod in list(self._cluster.pods.all()):
            self._pod_changed(None, pod)

    def subscribe(self, listener: Callable[[Run, PodRecord], None]) -> None:
        self._listeners.append(listener)

    def run_dir(self, run: Run) -> Path:
        return self.directory / f"{run.workload_id}-{run.attempt}"

    def of(self, run: Run) -> Mapping[int, PodRecord]:
        """The newest pod of each part. Those that vanished while no server ran are recorded as gone now."""
        if run in self._removed:
            return {}
        if run not in self._runs and not self._cluster.jobs_of(run) and not self.run_dir(run).exists():
            return {}
        pods = self._pods_of(run)
        if run not in self._compared and self._cluster.read:
            self._compared.add(run)
            for record in list(pods.units.values()):
                if not record.over and self.pod(record) is None:
                    pods.lose(record.part, record.uid, now())
        return pods.units

    def pod(self, record: PodRecord) -> Pod | None:
        """The pod itself, if it is still there."""
        pod = self._cluster.pods.get(record.pod, record.namespace)
        return pod if pod and pod.uid == record.uid else None

    def remove(self, run: Run) -> None:
        """Forget a run; its pods may be there for a while."""
        self._runs.pop(run, None)
        self._compared.discard(run)
        if self._cluster.pods_of(run):
            self._removed.add(run)

    def _pods_of(self, run: Run) -> RunPods:
        if run not in self._runs:
            self._runs[run] = RunPods(self.run_dir(run))
        return self._runs[run]

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        run = names.run_of(pod) if pod else None
        if pod is None or run is None or not self._cluster.is_at_home(pod):
            return
        if run in self._removed:
            if not self._cluster.pods_of(run):
                self._removed.discard(run)
            return
        job = self._cluster.job_of(pod)
        pods = self._pods_of(run)
        record = pods.see(record_pod(pod, array=job is not None and is_array(job)))
        if after is None:
            pods.lose(record.part, pod.uid, now())
        for listener in self._listeners:
            listener(run, pods.units[record.part])


class RunPods:
    """The pod records of one run, and their file."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / FILE
        self.units: dict[int, PodRecord] = {}
        for seen in _read(self._path):
            self.units[seen.part] = merge_records(self.units.get(seen.part), seen)

    def see(self, seen: PodRecord) -> PodRecord:
        return self._set(merge_records(self.units.get(seen.part), seen))

    def lose(self, part: int, uid: str, at: datetime) -> None:
        known = self.units.get(part)
        if known and known.uid == uid:
            self._set(mark_gone(known, at))

    def _set(self, seen: PodRecord) -> PodRecord:
        known = self.units.get(seen.part)
        self.units[seen.part] = seen
        if (seen.ran or seen.over or seen.deleting) and (known is None or _lasting(known) != _lasting(seen)):
            _append(self._path, seen)
        return seen


def _lasting(record: PodRecord) -> tuple[object, ...]:
    """What is written down when it changes."""
    return (record.uid, record.started_at, record.exit_code, record.deleting, record.over, record.reason)


def _append(path: Path, seen: PodRecord) -> None:
    """Not yet on the disk for good when this returns; what must be is brought there with the end of the log."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)
        return
    try:
        os.write(fd, b"\n" + msgspec.json.encode(seen) + b"\n")  # a full disk may have left half a line before it
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)
    finally:
        os.close(fd)


def _read(path: Path) -> list[PodRecord]:
    """Whole lines only: the last one may be half written."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=PodRecord))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return found
