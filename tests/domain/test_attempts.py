"""Whether another attempt follows an end, which, when, and of which indexes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.domain.attempts import LONGEST_WAIT, Outcome, next_attempt, outcome
from penstock.domain.states import Reason, State
from penstock.domain.users import Account
from penstock.domain.workloads import UNLIMITED, Array, Spec, Unit, Wants, Workload

MOMENT = datetime(2026, 11, 15, 21, 31, 15, tzinfo=UTC)
FAILED = Outcome(State.CRASHED, Reason.PROGRAM_FAILED, "run ended with code 3.", 3)
EVICTED = Outcome(State.CRASHED, Reason.EVICTED, "its node needed the memory", None)
LOST = Outcome(State.UNKNOWN, Reason.NODE_LOST, "its node went away", None)
DONE = Outcome(State.EXITED, Reason.FINISHED, None, 0)


def a_workload(*, attempt=1, retried=0, requeued=0, wants=Wants.RUN, **spec) -> Workload:
    return Workload(
        id="abcd2345",
        name="train",
        group="ann",
        user="ann",
        account=Account(uid=1, gid=1, user="ann"),
        spec=Spec(run="x", **spec),
        attempt=attempt,
        retried=retried,
        requeued=requeued,
        wants=wants,
        created_at=MOMENT,
        updated_at=MOMENT,
    )


def a_unit(state=State.CRASHED, reason=Reason.PROGRAM_FAILED, index=0, seconds=1, message="run ended with code 3."):
    ended = MOMENT + timedelta(seconds=seconds)
    return Unit(index=index, rank=0, state=state, reason=reason, message=message, started_at=MOMENT, ended_at=ended)


def test_without_retries_the_first_end_is_the_last():
    assert next_attempt(a_workload(), FAILED, [a_unit()]) is None
    assert next_attempt(a_workload(), EVICTED, [a_unit()]) is None


def test_a_failure_with_retries_left_is_tried_again_and_says_which_attempt_of_how_many():
    after = next_attempt(a_workload(retries=3), FAILED, [a_unit()])
    assert (after.reason, after.message) == (Reason.RETRY, "attempt 2 of 4: run ended with code 3.")
    assert (after.wait, after.retried, after.indexes) == (1, 1, ())


def test_the_last_attempt_is_the_last():
    after = next_attempt(a_workload(retries=3, attempt=3, retried=2), FAILED, [a_unit()])
    assert after.message.startswith("attempt 4 of 4: ")
    assert next_attempt(a_workload(retries=3, attempt=4, retried=3), FAILED, [a_unit()]) is None


def test_each_wait_is_twice_the_one_before_until_the_longest():
    waits = [
        next_attempt(a_workload(retries=UNLIMITED, retried=n, attempt=n + 1), FAILED, [a_unit()]).wait
        for n in range(12)
    ]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, *[LONGEST_WAIT] * 3]


def test_one_that_ran_long_before_it_failed_does_not_wait_longer_each_time():
    assert next_attempt(a_workload(retries=UNLIMITED, retried=9), FAILED, [a_unit(seconds=3600)]).wait == 1


def test_without_a_limit_none_is_named():
    after = next_attempt(a_workload(retries=UNLIMITED, attempt=41, retried=40), FAILED, [a_unit()])
    assert after.message == "attempt 42: run ended with code 3."


@pytest.mark.parametrize(
    "reason", [Reason.SETUP_FAILED, Reason.OUT_OF_MEMORY, Reason.TIME_LIMIT, Reason.DISK_LIMIT, Reason.PROGRAM_FAILED]
)
def test_whatever_the_program_brought_on_itself_is_a_retry(reason):
    end = Outcome(State.CRASHED, reason, "it said why")
    assert next_attempt(a_workload(retries=1), end, [a_unit(reason=reason)]).reason is Reason.RETRY
    assert next_attempt(a_workload(requeue=1), end, [a_unit(reason=reason)]) is None


@pytest.mark.parametrize("end", [EVICTED, LOST])
def test_what_its_place_did_to_it_is_a_requeue_at_once(end):
    after = next_attempt(a_workload(requeue=2), end, [])
    assert (after.reason, after.wait, after.requeued, after.retried) == (Reason.REQUEUED, 0, 1, 0)
    assert after.message == f"attempt 2 of 3: {end.message}"
    assert next_attempt(a_workload(retries=5), end, []) is None
    assert next_attempt(a_workload(requeue=2, requeued=2), end, []) is None


@pytest.mark.parametrize(
    "reason", [Reason.LAUNCH_FAILED, Reason.PULL_FAILED, Reason.VOLUME_LOST, Reason.OUTCOME_UNKNOWN]
)
def test_what_would_fail_again_or_may_have_worked_is_not_tried_again(reason):
    end = Outcome(State.CRASHED, reason, "it said why")
    assert next_attempt(a_workload(retries=5, requeue=5), end, []) is None


@pytest.mark.parametrize("end", [EVICTED, LOST])
def test_the_servers_number_of_requeues_is_for_what_says_none(end):
    given = a_workload().model_copy(update={"requeue": 2})
    assert next_attempt(given, end, []).message == f"attempt 2 of 3: {end.message}"
    assert next_attempt(given.model_copy(update={"requeued": 2}), end, []) is None
    own = a_workload(requeue=0).model_copy(update={"requeue": 2})
    assert next_attempt(own, end, []) is None


def test_both_are_counted_apart():
    workload = a_workload(retries=1, requeue=1, attempt=2, requeued=1)
    after = next_attempt(workload, FAILED, [a_unit()])
    assert (after.message, after.retried, after.requeued) == ("attempt 3 of 3: run ended with code 3.", 1, 1)


@pytest.mark.parametrize("wants", [Wants.STOP, Wants.DELETE])
def test_a_stop_wins_over_everything(wants):
    workload = a_workload(retries=UNLIMITED, requeue=UNLIMITED, restart=True, wants=wants)
    for end in (FAILED, EVICTED, DONE):
        assert next_attempt(workload, end, [a_unit()]) is None


def test_what_restarts_always_goes_on_after_a_success_and_after_a_failure():
    workload = a_workload(restart=True)
    after = next_attempt(workload, DONE, [a_unit(State.EXITED, Reason.FINISHED)])
    assert (after.reason, after.message) == (
        Reason.RESTARTED,
        "attempt 2: it finished and is to start again",
    )
    assert next_attempt(workload, FAILED, [a_unit()]).reason is Reason.RETRY
    assert next_attempt(a_workload(retries=3), DONE, [a_unit(State.EXITED)]) is None


class TestArray:
    """Of an array only what failed runs again."""

    def units(self, *failed: int, reason=Reason.PROGRAM_FAILED, count=4) -> list[Unit]:
        good = [a_unit(State.EXITED, Reason.FINISHED, index=n) for n in range(count) if n not in failed]
        return [*good, *(a_unit(reason=reason, index=n) for n in failed)]

    def after(self, units: list[Unit], **fields):
        workload = a_workload(array=Array(count=4), **fields)
        return next_attempt(workload, outcome(units, workload.spec.array), units)

    def test_only_the_failed_indexes_run_again(self):
        after = self.after(self.units(1, 3), retries=2)
        assert (after.indexes, after.reason, after.retried) == ((1, 3), Reason.RETRY, 1)
        assert after.message == ("attempt 2 of 3: 2 of 4 indexes failed; first: index 1: run ended with code 3.")

    def test_an_index_whose_kind_of_failure_has_no_attempt_left_is_left_out(self):
        units = [*self.units(1), a_unit(reason=Reason.EVICTED, index=2, message="evicted")]
        assert self.after(units, requeue=1).indexes == (2,)
        assert self.after(units, requeue=1).reason is Reason.REQUEUED
        both = self.after(units, requeue=1, retries=1)
        assert (both.indexes, both.retried, both.requeued) == ((1, 2), 1, 1)

    def test_all_completed_is_the_end(self):
        assert self.after(self.units(), retries=2) is None
