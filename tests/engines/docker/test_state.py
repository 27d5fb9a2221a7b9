"""How a run ended, from what was seen of its containers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.domain.states import Reason, State
from penstock.engines.base import Presence, Run, Step
from penstock.engines.docker.api.objects import ContainerRecord, read_time
from penstock.engines.docker.names import Label
from penstock.engines.docker.state import (
    DockerRunSnapshot,
    HostState,
    believe_note,
    due_in,
    has_failed,
    pending,
    report,
    units,
)
from penstock.engines.shared.minder import Note
from penstock.errors import Unavailable
from tests.engines.launches import a_launch, an_array

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def seen(part: int = 0, *, minutes: float = 1, labels: dict[str, str] | None = None, **fields: Any) -> ContainerRecord:
    given = {
        "id": f"id-{part}",
        "name": "name",
        "host": "lab-1",
        "run": Run("abcdefgh"),
        "part": part,
        "labels": {Label.HAS_BASH: "true"} | (labels or {}),
        "status": "exited",
        "exit_code": 0,
        "error": "",
        "out_of_memory": False,
        "memory_limit": 0,
        "created_at": NOON,
        "started_at": NOON,
        "ended_at": NOON + timedelta(minutes=minutes),
        "tty": False,
        "note": Note(code=0),
        "witness": "first",
    }
    return ContainerRecord(**(given | fields))


def snapshot(*containers: ContainerRecord, **fields: Any) -> DockerRunSnapshot:
    given = {
        "run": Run("abcdefgh"),
        "containers": {each.part: each for each in containers},
        "hosts": {"lab-1": HostState(docker="first")},
        "now": NOON + timedelta(hours=1),
    }
    return DockerRunSnapshot(**(given | fields))


def end_of(one: ContainerRecord, **fields: Any) -> tuple[State, Reason | None, int | None]:
    unit = units(snapshot(one, **fields))[one.part]
    return unit.state, unit.reason, unit.exit_code


def plain(**fields: Any) -> ContainerRecord:
    """A program without a minder, which leaves no note."""
    found = seen(note=Note(), **fields)
    del found.labels[Label.HAS_BASH]
    return found


@pytest.mark.parametrize(
    ("code", "witness", "believed"),
    [(255, "first", 0), (255, "", 0), (125, "first", 0), (137, "", 0), (137, "first", 137), (3, "first", 3)],
)
def test_where_docker_lost_track_of_a_container_its_note_counts(code: int, witness: str, believed: int) -> None:
    """Docker says 255 where it found nothing of what ran, 125 of one that someone started again."""
    assert believe_note(seen(exit_code=code, witness=witness)).exit_code == believed


def test_a_program_that_ended_by_itself_before_a_stop_came_has_its_own_end() -> None:
    assert end_of(seen(exit_code=7, note=Note(code=7)), stopped=True) == (State.CRASHED, Reason.PROGRAM_FAILED, 7)
    assert end_of(seen(exit_code=143, note=Note(code=143, ended="stop")), stopped=True)[0] is State.STOPPED


def test_without_a_note_the_end_of_one_that_was_told_to_stop_is_that_stop() -> None:
    assert end_of(plain(exit_code=143), stopped=True) == (State.STOPPED, Reason.STOPPED_BY_USER, 143)
    assert end_of(plain(exit_code=143)) == (State.CRASHED, Reason.PROGRAM_FAILED, 143)


RESTARTED = {"lab-1": HostState(docker="second")}


def test_without_a_note_what_was_told_to_end_before_docker_restarted_ended_with_it() -> None:
    for code in (137, 143, 255):
        assert end_of(plain(exit_code=code), hosts=RESTARTED) == (State.CRASHED, Reason.NODE_LOST, code)
        assert end_of(plain(exit_code=code, witness=""), hosts=RESTARTED) == (State.CRASHED, Reason.NODE_LOST, code)
    told = seen(exit_code=0, note=Note(code=0, ended="stop"))
    assert end_of(told, hosts=RESTARTED)[1] is Reason.NODE_LOST
    when_it_began = {"lab-1": HostState(docker="first", docker_since=NOON + timedelta(seconds=59))}
    assert end_of(told, hosts=when_it_began)[1] is Reason.NODE_LOST
    long_before = {"lab-1": HostState(docker="first", docker_since=NOON + timedelta(seconds=5))}
    assert end_of(told, hosts=long_before)[1] is Reason.DELETED_OUTSIDE  # with live-restore


def test_without_a_note_a_code_counts_only_if_docker_saw_it() -> None:
    assert end_of(plain(exit_code=1), hosts=RESTARTED) == (State.CRASHED, Reason.PROGRAM_FAILED, 1)
    assert end_of(plain(exit_code=0, witness=""), hosts=RESTARTED) == (State.CRASHED, Reason.NODE_LOST, None)


def test_a_note_counts_whether_or_not_docker_saw_the_end() -> None:
    assert end_of(seen(exit_code=3, note=Note(code=3), witness="")) == (State.CRASHED, Reason.PROGRAM_FAILED, 3)
    assert end_of(seen(witness=""), hosts=RESTARTED)[0] is State.EXITED


def test_a_program_that_ran_longer_than_it_may_is_over_its_time() -> None:
    limit = {Label.MAX_DURATION: "60"}
    assert end_of(plain(exit_code=143, labels=limit)) == (State.CRASHED, Reason.TIME_LIMIT, 143)
    assert end_of(plain(exit_code=0, labels=limit)) == (State.CRASHED, Reason.TIME_LIMIT, 124)
    assert end_of(plain(exit_code=0, labels=limit, minutes=0.5))[0] is State.EXITED


def test_the_first_node_that_failed_is_the_reason_and_the_others_were_stopped() -> None:
    first = seen(1, exit_code=5, note=Note(code=5))
    told = seen(0, exit_code=143, note=Note(code=143, ended="stop"), minutes=2)
    found = units(snapshot(told, first))
    assert (found[0].state, found[0].reason) == (State.STOPPED, Reason.ANOTHER_NODE_ENDED)
    assert found[0].message == "Node 1 ended with code 5."
    assert found[1].reason is Reason.PROGRAM_FAILED


def test_indexes_of_an_array_do_not_end_each_other() -> None:
    array = {Label.ARRAY: "true"}
    failed, other = seen(0, exit_code=5, note=Note(code=5), labels=array), seen(1, labels=array, minutes=2)
    found = units(snapshot(failed, other))
    assert [(unit.index, unit.rank, unit.state) for unit in found.values()] == [
        (0, 0, State.CRASHED),
        (1, 0, State.EXITED),
    ]


def test_one_that_was_only_created_has_no_unit() -> None:
    assert units(snapshot(seen(status="created", started_at=None, ended_at=None))) == {}


def test_times_as_docker_writes_them() -> None:
    assert read_time("0001-01-01T00:00:00Z") is None
    assert read_time("") is None
    assert read_time("2026-11-16T12:00:00.123456789Z") == NOON + timedelta(microseconds=123456)
    assert read_time("2026-11-16T13:00:00+01:00") == NOON


def test_an_end_from_outside_is_pending_until_it_is_clear_whether_docker_goes_down() -> None:
    told = seen(exit_code=143, note=Note(code=143, ended="stop"))
    soon = {"now": NOON + timedelta(seconds=65)}
    assert pending(snapshot(told, **soon)) == [told]
    assert due_in(snapshot(told, **soon)) == 15
    assert report(snapshot(told, **soon)).units[0].state is State.RUNNING
    assert pending(snapshot(told)) == []
    assert report(snapshot(told)).units[0].reason is Reason.DELETED_OUTSIDE
    assert pending(snapshot(told, hosts={"lab-1": HostState("it is away", docker="first")})) == [told]
    assert pending(snapshot(told, stopped=True, **soon)) == []
    assert pending(snapshot(told, hosts=RESTARTED, **soon)) == []
    failed = seen(1, exit_code=5, note=Note(code=5), minutes=0.5)
    assert pending(snapshot(told, failed, **soon)) == []  # it was we who ended it, for the other


def test_an_end_is_judged_once_it_is_known_whether_docker_saw_it() -> None:
    over = plain(witness=None)
    assert pending(snapshot(over)) == [over]
    assert due_in(snapshot(over)) is None
    assert report(snapshot(over)).presence is Presence.running


# -- the whole run -----------------------------------------------------------------------------------------------------


def running(part: int = 0, **fields: Any) -> ContainerRecord:
    return seen(part, status="running", ended_at=None, note=Note(), **fields)


def test_what_nobody_started_is_absent_and_what_is_being_started_waits() -> None:
    assert report(snapshot()).presence is Presence.absent
    doing = Step(state=State.PULLING, reason=Reason.PULLING_IMAGE, message="half of it is there")
    found = report(snapshot(starting=doing, steps=(doing,)))
    assert (found.presence, found.state, found.message) == (Presence.waiting, State.PULLING, "half of it is there")
    assert found.steps == (doing,)


def test_once_it_runs_its_steps_end_with_its_start() -> None:
    doing = Step(state=State.PULLING, reason=Reason.PULLING_IMAGE)
    found = report(snapshot(running(), steps=(doing,)))
    assert [step.state for step in found.steps] == [State.PULLING, State.LAUNCHED]


def test_nothing_is_said_of_a_run_whose_host_does_not_answer() -> None:
    away = {"lab-1": HostState("Docker on lab-1 cannot be reached")}
    with pytest.raises(Unavailable, match="it may be running there"):
        report(snapshot(hosts=away, run=Run("abcdefgh", hosts=("lab-1",))))
    found = report(snapshot(running(), hosts=away))
    assert (found.presence, found.state, found.reason) == (Presence.running, State.UNKNOWN, Reason.NODE_LOST)
    assert report(snapshot(run=Run("abcdefgh", hosts=("gone",)))).presence is Presence.lost


def test_an_array_runs_on_while_indexes_are_left_and_has_ended_with_the_last() -> None:
    launch = an_array("true", 2, 1)
    first, second = (seen(part, labels={Label.ARRAY: "true"}) for part in (0, 1))
    assert report(snapshot(first, launch=launch)).presence is Presence.running
    assert report(snapshot(first, second, launch=launch)).presence is Presence.ended
    stopped = report(snapshot(first, launch=launch, stopped=True))
    assert stopped.presence is Presence.ended
    assert [(unit.state, unit.message) for unit in stopped.units] == [
        (State.EXITED, None),
        (State.STOPPED, "never started"),
    ]


def test_the_rest_of_an_array_waits_while_its_hosts_are_in_maintenance() -> None:
    launch = an_array("true", 3, 1, hosts=("lab-1",))
    maintained = {"lab-1": HostState(maintenance=True)}
    found = report(snapshot(seen(labels={Label.ARRAY: "true"}), launch=launch, hosts=maintained))
    assert found.message == "lab-1 is in maintenance: 2 of its indexes wait until that is over"


def test_a_node_that_failed_ends_also_one_that_never_began() -> None:
    launch = a_launch("true", nodes=2)
    failed = snapshot(seen(exit_code=5, note=Note(code=5)), launch=launch)
    assert has_failed(failed)
    found = report(failed)
    assert found.presence is Presence.ended
    assert [unit.reason for unit in found.units] == [Reason.PROGRAM_FAILED, Reason.ANOTHER_NODE_ENDED]
    assert not has_failed(snapshot(seen(), launch=launch))
    assert report(snapshot(seen(), launch=launch)).presence is Presence.running


def test_what_was_stopped_before_it_began_has_ended() -> None:
    found = report(snapshot(launch=a_launch("true", nodes=2), stopped=True, cancelled_at=NOON))
    assert [(unit.rank, unit.state, unit.ended_at) for unit in found.units] == [
        (0, State.STOPPED, NOON),
        (1, State.STOPPED, NOON),
    ]
