"""Snapshots are read and change nothing: what they show of caches, records of pods and collected logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.model import now
from penstock.domain.states import Reason, State
from penstock.engines.base import Presence, Run
from penstock.engines.kubernetes.api.cluster import Cluster
from penstock.engines.kubernetes.logs.collect import LogCollector
from penstock.engines.kubernetes.pod_records import PodRecords
from penstock.engines.kubernetes.snapshots import Snapshots
from penstock.engines.kubernetes.state.report import WaitReason, compute_report
from penstock.settings import Settings
from tests.engines.kubernetes.state.test_endings import RUN, a_job, a_pod, running

NO_IMAGE = WaitReason(State.PULLING, Reason.PULLING_IMAGE, "no such image", Reason.PULL_FAILED)


class OneReason:
    """Stands in for what asks inventory and events: everything waits for the same."""

    def __init__(self, reason: WaitReason) -> None:
        self.reason, self.asked = reason, 0

    def why(self, *_: object) -> WaitReason:
        self.asked += 1
        return self.reason


class Reader:
    """What reads a cluster, with the caches filled by hand."""

    def __init__(self, place: Path, reason: WaitReason = NO_IMAGE) -> None:
        nobody: Any = None
        self.cluster = Cluster(nobody, "jobs")
        self.cluster._unread.clear()
        for cache in self.cluster._caches:
            cache.stale = None
        self.records = PodRecords(self.cluster, place)
        self.collector = LogCollector(nobody, self.cluster, self.records, "1Mi")
        self.reasons = OneReason(reason)
        waits: Any = self.reasons
        settings = Settings(data_dir=place, engine="kubernetes", pull_patience="1m")
        self.snapshots = Snapshots(self.cluster, self.records, self.collector, waits, settings)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.collector.threads.shutdown()


async def test_a_wait_that_cannot_end_is_given_up_when_patience_is_over_since_it_was_first_seen(reader: Reader) -> None:
    reader.cluster.jobs._put(a_job())
    first = reader.snapshots.take(RUN).waits[0].ends_at
    assert first
    assert timedelta(seconds=50) < first - now() < timedelta(seconds=61)
    await asyncio.sleep(0.01)
    assert reader.snapshots.take(RUN).waits[0].ends_at == first
    reader.reasons.reason = WaitReason(State.QUEUED, Reason.SUBMITTED)
    assert reader.snapshots.take(RUN).waits[0].ends_at is None
    reader.reasons.reason = NO_IMAGE
    again = reader.snapshots.take(RUN).waits[0].ends_at
    assert again
    assert again > first


async def test_the_indexes_without_a_pod_wait_for_the_same_and_it_is_found_out_once(reader: Reader) -> None:
    reader.cluster.jobs._put(a_job(1000, array=True))
    snapshot = reader.snapshots.take(RUN)
    assert len(snapshot.waits) == 1000
    assert reader.reasons.asked == 1


async def test_taking_a_snapshot_starts_no_collecting(reader: Reader, tmp_path: Path) -> None:
    """A pod that vanished while no server ran: its log is not complete, and somebody else has to complete it."""
    reader.records.open()
    reader.cluster.jobs._put(a_job())
    reader.cluster.pods._put(a_pod(0, running()))
    later = Reader(tmp_path)
    later.cluster.jobs._put(a_job())
    snapshot = later.snapshots.take(RUN)
    assert snapshot.pods[0].gone_at
    assert not snapshot.logs[0].stored
    assert compute_report(snapshot).presence is Presence.running
    assert later.collector.is_complete(RUN, 0) is None
    await reader.collector.close()
    await later.collector.close()


async def test_a_run_that_nobody_knows_leaves_no_trace(reader: Reader, tmp_path: Path) -> None:
    assert reader.snapshots.report(Run("nosuchid")).presence is Presence.absent
    assert not (tmp_path / "nosuchid-1").exists()


async def test_a_moment_tells_of_the_run_and_the_earliest_counts(reader: Reader) -> None:
    changes = reader.cluster.changes()
    for seconds in (3600, 0.05, 3600):
        reader.cluster.changed_at(RUN, now() + timedelta(seconds=seconds))
    assert await asyncio.wait_for(anext(changes), 5) == RUN
    reader.cluster.changed_at(RUN, now() - timedelta(seconds=1))
    assert await asyncio.wait_for(anext(changes), 5) == RUN
    await reader.cluster.close()
