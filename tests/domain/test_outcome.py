"""How units add up: of several nodes, of an array, of an array in several attempts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.domain.attempts import latest, outcome, progress
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Array, Progress, Unit

MOMENT = datetime(2026, 11, 15, 21, 31, 15, tzinfo=UTC)


def unit(rank=0, state=State.EXITED, *, index=0, attempt=1, code=0, after=0, **more) -> Unit:
    ended = MOMENT + timedelta(seconds=after)
    return Unit(attempt=attempt, index=index, rank=rank, state=state, exit_code=code, ended_at=ended, **more)


def failed(index=0, rank=0, *, attempt=1, code=1, after=0, reason=Reason.PROGRAM_FAILED) -> Unit:
    said = f"run ended with code {code}."
    return unit(rank, State.CRASHED, index=index, attempt=attempt, code=code, after=after, reason=reason, message=said)


def test_all_that_exited_is_an_exit():
    end = outcome([unit(0), unit(1)])
    assert (end.state, end.reason, end.message, end.exit_code) == (State.EXITED, Reason.FINISHED, None, 0)


def test_of_several_nodes_the_first_failure_in_time_is_shown():
    end = outcome([failed(rank=0, code=9, after=2), failed(rank=1, code=3, after=1)])
    assert (end.state, end.message, end.exit_code) == (State.CRASHED, "node 1: run ended with code 3.", 3)


def test_of_an_array_it_is_said_how_many_failed_and_the_first_of_them():
    units = [failed(7, code=4), unit(index=0), failed(3, code=1), *(unit(index=i) for i in range(8, 100))]
    end = outcome(units, Array(count=100))
    assert (end.state, end.reason, end.exit_code) == (State.CRASHED, Reason.PROGRAM_FAILED, 1)
    assert end.message == "2 of 100 indexes failed; first: index 3: run ended with code 1."


def test_an_array_completes_only_with_every_index():
    assert outcome([unit(index=0), unit(index=1)], Array(count=2)).state is State.EXITED
    end = outcome([unit(index=0)], Array(count=2))
    assert (end.state, end.message) == (State.STOPPED, "1 of 2 indexes completed")


def test_an_array_a_person_stopped_is_stopped_whatever_had_failed_by_then():
    stopped = unit(index=2, state=State.STOPPED, code=None, reason=Reason.STOPPED_BY_USER)
    end = outcome([unit(index=0), failed(1), stopped], Array(count=4))
    assert (end.state, end.reason) == (State.STOPPED, Reason.STOPPED_BY_USER)
    assert end.message == "1 of 4 indexes completed, 1 failed"


def test_what_is_not_known_of_an_array_is_said():
    doubt = unit(index=1, state=State.UNKNOWN, code=None, message="its supervisor was killed")
    end = outcome([unit(index=0), doubt], Array(count=2))
    assert end.state is State.UNKNOWN
    assert end.message == "the outcome of 1 of 2 indexes is not known; first: index 1: its supervisor was killed"


def test_the_newest_attempt_of_each_index_counts():
    units = [unit(index=0), failed(1), failed(2), failed(2, attempt=2), unit(index=1, attempt=2)]
    newest = latest(units)
    assert [(each.index, each.attempt, each.state) for each in newest] == [
        (0, 1, State.EXITED),
        (1, 2, State.EXITED),
        (2, 2, State.CRASHED),
    ]
    assert outcome(newest, Array(count=3)).message == "1 of 3 indexes failed; first: index 2: run ended with code 1."


def test_how_far_an_array_has_come_is_counted():
    running = unit(index=2, state=State.RUNNING, code=None)
    assert progress([unit(index=0), failed(1), running]) == Progress(completed=1, failed=1, running=1)


def test_what_could_not_be_launched_is_given_up_and_not_failed():
    stuck = [
        unit(index=index, rank=rank, state=State.STUCK, code=None, reason=Reason.LAUNCH_FAILED, message="no room")
        for index, rank in ((0, 1), (1, 0))
    ]
    assert outcome([stuck[0]]).state is State.STUCK
    end = outcome([unit(index=0), stuck[1]], Array(count=2))
    assert (end.state, end.message) == (State.STUCK, "1 of 2 indexes failed; first: index 1: no room")
    assert progress([unit(index=0), stuck[1]]) == Progress(completed=1, failed=1)
