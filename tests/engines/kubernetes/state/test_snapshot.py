"""Reports from snapshots that are written down here: no cluster, no clock, nothing that acts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from penstock.domain.states import Reason, State
from penstock.engines.base import Presence
from penstock.engines.kubernetes.state.jobs import list_parts
from penstock.engines.kubernetes.state.report import LogProgress, Snapshot, Wait, WaitReason, compute_report
from tests.engines.kubernetes.state.test_endings import RUN, START, a_job, a_pod, ended, running, seen

NOW = START + timedelta(seconds=60)
NO_ROOM = WaitReason(State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, "there is no room")


def a_snapshot(
    job: Any, *records: Any, wait: WaitReason = NO_ROOM, ends_at: datetime | None = None, **more: Any
) -> Snapshot:
    pods = {record.part: record for record in records}
    waits = dict.fromkeys(list_parts([job], pods).parts, Wait(wait, job, ends_at=ends_at))
    return Snapshot(run=RUN, jobs=[job], pods=pods, now=NOW, waits=waits, **more)


def test_nothing_known_is_absent() -> None:
    assert compute_report(Snapshot(run=RUN, jobs=[], pods={}, now=NOW)).presence is Presence.absent


def test_what_waits_says_why() -> None:
    report = compute_report(a_snapshot(a_job()))
    assert (report.presence, report.state, report.reason) == (Presence.waiting, State.QUEUED, NO_ROOM.reason)
    assert report.message == "there is no room"


def test_a_wait_that_will_be_given_up_says_when() -> None:
    report = compute_report(a_snapshot(a_job(), ends_at=NOW))
    assert report.message == f"there is no room; if that does not change it ends at {NOW.astimezone():%H:%M:%S}"


def test_a_wait_that_is_given_up_at_once_says_only_why() -> None:
    never = WaitReason(State.PULLING, Reason.PULLING_IMAGE, "no such image", Reason.PULL_FAILED, at_once=True)
    assert compute_report(a_snapshot(a_job(), wait=never, ends_at=NOW)).message == "no such image"


def test_several_nodes_wait_until_the_last_one_has_a_place_and_say_when_the_others_give_theirs_back() -> None:
    first = seen(a_pod(0, running()))
    report = compute_report(a_snapshot(a_job(2), first, gives_back=NOW))
    assert (report.presence, report.reason) == (Presence.waiting, Reason.PARTLY_PLACED)
    assert report.message == (
        "1 of 2 nodes has a place; node 1: there is no room; "
        f"all give theirs back at {NOW.astimezone():%H:%M:%S} if that does not change"
    )


def test_an_array_runs_when_one_index_does_and_names_the_first_that_waits() -> None:
    report = compute_report(
        a_snapshot(a_job(3, array=True), seen(a_pod(0, running())), seen(a_pod(1, phase="Pending")))
    )
    assert report.presence is Presence.running
    assert [unit.index for unit in report.units] == [0]
    assert report.message == "index 1 waits: there is no room"


def test_a_run_has_ended_only_when_its_log_is_stored() -> None:
    over = seen(a_pod(0, ended(0), phase="Succeeded"))
    snapshot = a_snapshot(a_job(), over, logs={0: LogProgress(stored=False)})
    assert compute_report(snapshot).presence is Presence.running
    assert compute_report(a_snapshot(a_job(), over, logs={0: LogProgress()})).presence is Presence.ended


def test_a_cluster_that_does_not_answer_is_the_reason_while_it_waits_and_a_message_while_it_runs() -> None:
    trouble = "the cluster's API has not answered since 10:00; running jobs go on"
    waits = compute_report(a_snapshot(a_job(), trouble=trouble))
    assert (waits.reason, waits.message) == (Reason.CLUSTER_UNREACHABLE, trouble)
    runs = compute_report(a_snapshot(a_job(), seen(a_pod(0, running())), trouble=trouble))
    assert (runs.presence, runs.message) == (Presence.running, trouble)


def test_a_pod_on_a_node_that_does_not_answer_is_lost_when_its_end_was_waited_for_in_vain() -> None:
    record = seen(a_pod(0, running(), version=7, deleted=30))
    assert not a_snapshot(a_job(), record).is_lost(record)
    snapshot = a_snapshot(a_job(), record, lost_nodes=frozenset({"node-1"}))
    assert snapshot.is_lost(record)
    unit = compute_report(snapshot).units[0]
    assert (unit.state, unit.reason, unit.message) == (State.CRASHED, Reason.NODE_LOST, "Its node node-1 was lost.")
    early = seen(a_pod(0, running(), version=7, deleted=90))
    assert not a_snapshot(a_job(), early, lost_nodes=frozenset({"node-1"})).is_lost(early)


def test_a_running_pod_on_a_node_that_does_not_answer_says_so() -> None:
    record = seen(a_pod(0, running()))
    unit = compute_report(a_snapshot(a_job(), record, lost_nodes=frozenset({"node-1"}))).units[0]
    assert (unit.state, unit.message, unit.started_at) == (State.RUNNING, "Its node node-1 does not answer.", START)
