"""The table of states, as a whole."""

from __future__ import annotations

import pytest

from penstock.domain.states import ENDED, MOVES, SHORT, WAITING, IllegalMove, State, check_move

PLACED = set(State) - WAITING - ENDED


def reachable(start: State) -> set[State]:
    seen, rest = set(), [start]
    while rest:
        state = rest.pop()
        if state not in seen:
            seen.add(state)
            rest.extend(MOVES[state])
    return seen


def test_every_state_has_its_moves_and_its_short_word():
    assert set(MOVES) == set(SHORT) == set(State)
    assert set(SHORT.values()) == {"pending", "running", "completed", "failed", "stopped", "unknown", "deleted"}


def test_every_state_can_be_reached_and_every_one_can_end_and_be_deleted():
    assert reachable(State.INSERTED) == set(State)
    for state in State:
        assert State.DELETED in reachable(state)


def test_what_is_alive_can_always_be_stopped():
    for state in WAITING:
        assert State.STOPPED in MOVES[state]
    for state in PLACED - {State.REQUESTED_CANCEL}:
        assert State.REQUESTED_CANCEL in MOVES[state]


def test_what_has_ended_stays_ended_unless_it_gets_another_attempt_or_its_outcome_was_unknown():
    for state in ENDED - {State.UNKNOWN, State.DELETED}:
        assert MOVES[state] == {State.QUEUED, State.DELETED}
    assert MOVES[State.DELETED] == frozenset()
    assert {State.QUEUED, State.EXITED, State.RUNNING} <= MOVES[State.UNKNOWN]


def test_only_what_an_engine_may_have_taken_over_can_exit():
    before = {state for state in State if State.EXITED in MOVES[state]}
    assert before == PLACED | {State.UNKNOWN, State.INSERTED, State.DENIED, State.QUEUED}


def test_a_move_the_table_does_not_know_is_a_defect():
    check_move(State.RUNNING, State.EXITED)
    with pytest.raises(IllegalMove, match="EXITED → RUNNING"):
        check_move(State.EXITED, State.RUNNING)


@pytest.mark.parametrize("state", State)
def test_only_what_waits_is_on_its_way_or_in_doubt_may_be_entered_again(state):
    again = {State.DENIED, State.QUEUED, State.UNKNOWN} | PLACED - {State.RUNNING, State.REQUESTED_CANCEL}
    assert (state in MOVES[state]) == (state in again)
