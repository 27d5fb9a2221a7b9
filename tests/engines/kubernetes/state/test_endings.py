"""Endings from what was seen, in the orders in which a cluster may show it: objects as a real one wrote them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import Presence, Report, Run
from penstock.engines.kubernetes import names
from penstock.engines.kubernetes.api.objects import Job, Pod
from penstock.engines.kubernetes.state.jobs import list_parts, read_indexes, select_current_pods
from penstock.engines.kubernetes.state.pods import (
    Intervention,
    PodRecord,
    judge_end,
    mark_gone,
    merge_records,
    record_pod,
)
from penstock.engines.kubernetes.state.report import LogProgress, Snapshot, Wait, WaitReason, compute_report

START = datetime(2026, 11, 16, 0, 52, tzinfo=UTC)
RUN = Run("abcd2345")


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def running(started: float = 0) -> dict[str, Any]:
    return {"running": {"startedAt": at(started)}}


def ended(
    code: int, finished: float = 5, reason: str = "Error", message: str = "", started: float = 0
) -> dict[str, Any]:
    said = {"exitCode": code, "reason": reason, "message": message}
    return {"terminated": said | {"startedAt": at(started), "finishedAt": at(finished)}}


def a_pod(part: int = 0, state: dict[str, Any] | None = None, phase: str = "Running", **more: Any) -> Pod:
    """`more`: version, deleted (seconds), reason, message, disrupted, uid, created, node."""
    metadata = {
        "name": f"try-abcd2345-{part}-x7k2p",
        "namespace": "jobs",
        "uid": more.get("uid", f"uid-{part}"),
        "resourceVersion": str(more.get("version", 1)),
        "creationTimestamp": at(more.get("created", -2)),
        "labels": {
            names.MANAGED: names.PENSTOCK,
            names.TASK_ID: "abcd2345",
            names.ATTEMPT: "1",
            names.INDEX: str(part),
        },
    }
    if "deleted" in more:
        metadata["deletionTimestamp"] = at(more["deleted"])
    status: dict[str, Any] = {"phase": phase, "reason": more.get("reason", ""), "message": more.get("message", "")}
    if state:
        status["containerStatuses"] = [{"name": "task", "state": state}]
    if "disrupted" in more:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": more["disrupted"]}]
    container = {
        "name": "task",
        "resources": {"limits": {"memory": "64Mi"}},
        "volumeMounts": [{"name": "scratch-0", "mountPath": "/scratch"}],
    }
    spec = {"nodeName": more.get("node", "node-1"), "containers": [container]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def a_job(nodes: int = 1, conditions: tuple[str, ...] = (), **more: Any) -> Job:
    metadata = {
        "name": "try-abcd2345",
        "namespace": "jobs",
        "labels": {names.MANAGED: names.PENSTOCK, names.TASK_ID: "abcd2345", names.ATTEMPT: "1"},
        "annotations": more.get("annotations", {}),
    }
    found = [{"type": name, "status": "True", "lastTransitionTime": at(more.get("since", 10))} for name in conditions]
    spec = {"completions": nodes, "parallelism": nodes, "suspend": more.get("suspend", False)}
    if more.get("array"):
        spec["backoffLimitPerIndex"] = 0
    status = {"conditions": found, **more.get("status", {})}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Job)


def seen(*pods: Pod, gone: bool = False) -> PodRecord:
    """After these versions of a pod, one by one."""
    found: PodRecord | None = None
    for pod in pods:
        found = merge_records(found, record_pod(pod))
    assert found
    return mark_gone(found, START + timedelta(seconds=20)) if gone else found


def reported(job: Job | None, *units: PodRecord, **more: Any) -> Report:
    known = {unit.part: unit for unit in units}
    jobs = [job] if job else []
    no_room = Wait(WaitReason(State.QUEUED, Reason.NO_AVAILABLE_RESOURCES, "there is no room"), job or Job())
    snapshot = Snapshot(
        run=RUN,
        jobs=jobs,
        pods=select_current_pods(jobs, known),
        now=START + timedelta(seconds=60),
        **{"waits": dict.fromkeys(list_parts(jobs, known).parts, no_room)} | more,
    )
    return compute_report(snapshot)


def reasons(found: Report) -> list[Reason | None]:
    return [unit.reason for unit in found.units]


def only(found: Report) -> Unit:
    assert found.presence is Presence.ended
    return found.units[0]


# one pod


def test_an_end_is_not_judged_before_the_pod_itself_has_ended() -> None:
    """The kubelet shows the container's end first, and only then that it was because the time was over."""
    first = seen(a_pod(state=ended(0)))
    assert reported(a_job(), first).presence is Presence.running
    last = seen(a_pod(state=ended(0)), a_pod(state=ended(0), phase="Failed", reason="DeadlineExceeded"))
    unit = only(reported(a_job(annotations={names.MAX_DURATION: "3"}), last))
    assert (unit.reason, unit.exit_code) == (Reason.TIME_LIMIT, 124)
    assert unit.message == "It ran longer than max_duration (3s)."


def test_what_had_ended_before_it_was_deleted_keeps_its_own_end() -> None:
    found = seen(
        a_pod(state=ended(0), version=5),
        a_pod(state=ended(0), phase="Succeeded", deleted=30, version=9),
    )
    stopped = a_job(annotations={names.STOP: at(10)}, suspend=True, conditions=("Suspended",))
    assert only(reported(stopped, found)).state is State.EXITED


def test_what_the_program_itself_noted_is_believed_where_the_order_was_not_seen() -> None:
    note = '{"penstock":{"phase":"run","code":5,"ended":"","peak":1024}}'
    found = seen(a_pod(state=ended(5, message=note), phase="Failed", deleted=30, version=9))
    assert only(reported(a_job(), found)).reason is Reason.PROGRAM_FAILED
    told = note.replace('"ended":""', '"ended":"stop"')
    found = seen(a_pod(state=ended(5, message=told), phase="Failed", deleted=30, version=9))
    assert only(reported(a_job(), found)).reason is Reason.DELETED_OUTSIDE


def test_an_evicted_pod_may_show_nothing_of_its_container_but_its_start_is_known() -> None:
    full = "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. "
    unknown = {
        "terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}
    }
    found = seen(
        a_pod(state=running(1)),
        a_pod(state={"waiting": {"reason": "ContainerCreating"}}, phase="Failed", reason="Evicted", message=full),
        a_pod(state=unknown, phase="Failed", reason="Evicted", message=full),
    )
    unit = only(reported(a_job(), found))
    assert (unit.reason, unit.exit_code) == (Reason.DISK_LIMIT, 137)
    assert unit.message == "It holds more outside its volumes than its disk_size 20Mi."
    assert unit.started_at == START + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("message", "reason", "said"),
    [
        ('Usage of EmptyDir volume "scratch-0" exceeds the limit "20Mi". ', Reason.DISK_LIMIT, "/scratch holds more"),
        ('Container task exceeded its local ephemeral storage limit "1Gi". ', Reason.DISK_LIMIT, "disk_size 1Gi."),
        (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi.",
            Reason.EVICTED,
            "node-1 ran low on memory and took its room back.",
        ),
        (
            "The node was low on resource: ephemeral-storage. Threshold quantity: 10%, available: 9%.",
            Reason.EVICTED,
            "node-1 ran low on disk and took its room back.",
        ),
    ],
)
def test_what_the_node_says_about_an_eviction(message: str, reason: Reason, said: str) -> None:
    found = judge_end(seen(a_pod(state=ended(137), phase="Failed", reason="Evicted", message=message)), Intervention())
    assert found.reason is reason
    assert said in (found.message or "")


@pytest.mark.parametrize("word", ["OutOfcpu", "UnexpectedAdmissionError", "NodeAffinity"])
def test_a_node_that_does_not_keep_what_it_was_given(word: str) -> None:
    found = judge_end(seen(a_pod(phase="Failed", reason=word, message="Pod was rejected: no.")), Intervention())
    assert (found.state, found.reason) == (State.CRASHED, Reason.EVICTED)
    assert found.message == "node-1 did not keep it: Pod was rejected: no."


def test_a_pod_that_vanished_while_it_ran_was_deleted() -> None:
    found = seen(a_pod(state=running()), a_pod(state=running(), deleted=1, version=7), gone=True)
    unit = only(reported(a_job(conditions=("FailureTarget", "Failed")), found))
    assert (unit.reason, unit.message) == (Reason.DELETED_OUTSIDE, "Its pod was deleted in the cluster.")
    assert unit.exit_code is None
    assert unit.ended_at == START + timedelta(seconds=20)


def test_out_of_memory_without_a_note_had_all_it_was_allowed() -> None:
    found = seen(a_pod(state=ended(137, reason="OOMKilled"), phase="Failed"))
    unit = only(reported(a_job(), found))
    assert unit.message == "It went over its memory limit of 64Mi; it used up to 64Mi."
    assert unit.peak_memory_bytes == 64 << 20


def test_a_program_that_survives_a_child_killed_for_memory_is_no_failure() -> None:
    found = seen(a_pod(state=ended(0, reason="OOMKilled"), phase="Succeeded"))
    assert only(reported(a_job(), found)).state is State.EXITED


# several


def test_the_first_of_those_taken_away_is_the_reason() -> None:
    """Kubernetes deletes the others a moment after it, in the same second."""
    pods = [(a_pod(0, running(), deleted=9, version=995)), (a_pod(1, running(), deleted=9, version=986))]
    units = [seen(a_pod(pod_part, running()), pod, gone=True) for pod_part, pod in enumerate(pods)]
    found = reported(a_job(2, ("FailureTarget", "Failed")), *units)
    assert reasons(found) == [Reason.ANOTHER_NODE_ENDED, Reason.DELETED_OUTSIDE]


def test_one_that_failed_by_itself_is_the_reason_whoever_was_deleted_first() -> None:
    failed = seen(a_pod(2, ended(5), phase="Failed"))
    others = [
        seen(a_pod(part, running()), a_pod(part, ended(137), phase="Failed", deleted=9, version=90 + part))
        for part in (0, 1)
    ]
    found = reported(a_job(3, ("FailureTarget", "Failed")), failed, *others)
    assert reasons(found) == [Reason.ANOTHER_NODE_ENDED, Reason.ANOTHER_NODE_ENDED, Reason.PROGRAM_FAILED]
    assert found.units[0].message == "Node 2 ended with code 5; the others were stopped."


def test_nodes_have_begun_when_all_have() -> None:
    first, second = seen(a_pod(0, running())), seen(a_pod(1, phase="Pending", node=""))
    waits = reported(a_job(2), first, second)
    assert (waits.presence, waits.reason) == (Presence.waiting, Reason.PARTLY_PLACED)
    assert waits.message == "1 of 2 nodes has a place; node 1: there is no room"
    assert reported(a_job(2), first, seen(a_pod(1, running()))).presence is Presence.running


def test_a_node_that_does_not_answer_is_said_and_lost_only_when_the_cluster_gives_it_up() -> None:
    quiet = seen(a_pod(state=running()))
    still = reported(a_job(), quiet, lost_nodes=frozenset({"node-1"}))
    assert still.presence is Presence.running
    assert still.units[0].message == "Its node node-1 does not answer."
    given_up = seen(a_pod(state=running()), a_pod(state=running(), deleted=90, disrupted="DeletionByTaintManager"))
    assert reported(a_job(), given_up).presence is Presence.running
    unit = only(reported(a_job(), given_up, lost_nodes=frozenset({"node-1"})))
    assert (unit.reason, unit.message) == (Reason.NODE_LOST, "Its node node-1 was lost.")


def test_a_stop_of_what_is_on_a_lost_node_ends_when_its_grace_is_over_and_says_what_is_not_known() -> None:
    found = seen(a_pod(state=running()), a_pod(state=running(), deleted=30, version=7))
    stopped = a_job(annotations={names.STOP: at(10)}, suspend=True)
    unit = only(reported(stopped, found, lost_nodes=frozenset({"node-1"})))
    assert (unit.state, unit.reason) == (State.STOPPED, Reason.STOPPED_BY_USER)
    assert unit.message == "Its node node-1 does not answer: whether it still runs there is not known."


# all of it


def test_an_end_waits_for_the_log() -> None:
    found = seen(a_pod(state=ended(0), phase="Succeeded"))
    waiting = reported(a_job(), found, logs={0: LogProgress(stored=False)})
    assert (waiting.presence, waiting.units[0].state) == (Presence.running, State.EXITED)


def test_the_end_is_as_exact_as_the_log_knows() -> None:
    found = seen(a_pod(state=ended(0, finished=5), phase="Succeeded"))
    later = START + timedelta(seconds=5.7)
    assert only(reported(a_job(), found, logs={0: LogProgress(printed=later)})).ended_at == later
    much_later = START + timedelta(seconds=50)
    within_the_second = START + timedelta(seconds=5.999)
    assert only(reported(a_job(), found, logs={0: LogProgress(printed=much_later)})).ended_at == within_the_second


def test_what_a_stop_left_is_not_ended_while_kubernetes_may_still_make_pods() -> None:
    job = a_job(annotations={names.STOP: at(1)}, suspend=True)
    assert reported(job).presence is Presence.waiting
    done = a_job(annotations={names.STOP: at(1)}, suspend=True, conditions=("Suspended",))
    assert only(reported(done)).state is State.STOPPED


def test_pods_a_suspended_job_took_away_are_not_its_end() -> None:
    found = seen(a_pod(state=running()), a_pod(state=running(), deleted=5, version=7), gone=True)
    suspended = a_job(suspend=True, conditions=("Suspended",), since=4)
    assert reported(suspended, found).presence is Presence.waiting
    resumed = a_job(status={"conditions": [{"type": "Suspended", "status": "False", "lastTransitionTime": at(9)}]})
    assert reported(resumed, found).presence is Presence.waiting
    fresh = seen(a_pod(state=running(12), uid="another", created=10))
    assert reported(resumed, merge_records(found, fresh)).presence is Presence.running


def test_a_verdict_is_the_end_of_what_it_is_about() -> None:
    text = '{"state": "CRASHED", "reason": "PULL_FAILED", "message": "The image is not there."}'
    whole = a_job(2, annotations={names.VERDICT: text}, suspend=True, conditions=("Suspended",))
    found = reported(whole, seen(a_pod(0, phase="Pending"), a_pod(0, phase="Pending", deleted=1, version=3), gone=True))
    assert reasons(found) == [Reason.PULL_FAILED] * 2
    part = a_job(2, annotations={f"{names.VERDICT}-1": text}, array=True)
    pods = (
        seen(a_pod(0, running())),
        seen(a_pod(1, phase="Pending"), a_pod(1, phase="Pending", deleted=1, version=3), gone=True),
    )
    found = reported(part, *pods)
    assert found.presence is Presence.running
    assert [(unit.index, unit.state) for unit in found.units] == [(0, State.RUNNING), (1, State.CRASHED)]


@pytest.mark.parametrize("garbage", ["", "{", "[]", '{"reason": "NOT_ONE", "message": ""}'])
def test_a_verdict_that_cannot_be_read_is_still_one(garbage: str) -> None:
    job = a_job(annotations={names.VERDICT: garbage}, suspend=True, conditions=("Suspended",))
    assert only(reported(job)).reason is Reason.LAUNCH_FAILED


def test_while_the_cluster_does_not_answer_what_waits_says_so_and_what_runs_runs() -> None:
    trouble = "the cluster's API has not answered since 12:01; running jobs go on"
    waits = reported(a_job(), trouble=trouble)
    assert (waits.reason, waits.message) == (Reason.CLUSTER_UNREACHABLE, trouble)
    assert reported(a_job(), seen(a_pod(state=running())), trouble=trouble).presence is Presence.running


def test_kubernetes_short_form_of_indexes() -> None:
    assert read_indexes("0,3-5,9") == {0, 3, 4, 5, 9}
    assert read_indexes("") == set()
