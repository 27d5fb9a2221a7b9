"""What is reported of a run, from snapshots alone: no file, no process."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.domain.states import Reason, State
from penstock.engines.base import Presence, Report
from penstock.engines.local.state.report import RunSnapshot, UnitTable, report

BEGAN = {"boot_id": "b", "nodes": 2, "at": 1.0}
GO = {"event": "go", "rank": 0, "at": 2.0}
END = {
    "event": "ended",
    "rank": 0,
    "state": "CRASHED",
    "reason": "PROGRAM_FAILED",
    "message": "run ended with code 3.",
    "exit_code": 3,
    "started_at": 2.0,
    "ended_at": 3.0,
    "peak_memory_bytes": 1 << 20,
}


def reported(table: UnitTable | None = None, **known: Any) -> Report:
    return report(RunSnapshot(**known), 1, table or UnitTable(1))


def states(found: Report) -> list[tuple[int, int, State]]:
    return [(unit.index, unit.rank, unit.state) for unit in found.units]


def test_of_which_nothing_is_there_or_only_what_was_prepared_is_absent() -> None:
    assert reported(boot_id="b").presence is Presence.absent


def test_one_that_holds_its_lock_runs_even_before_it_began() -> None:
    assert reported(alive=True) == Report(presence=Presence.running)


def test_nodes_are_being_launched_until_they_went() -> None:
    found = reported(began=BEGAN, alive=True, events=(GO,))
    assert states(found) == [(0, 0, State.RUNNING), (0, 1, State.LAUNCHING)]
    assert found.units[0].reason is Reason.STARTED


def test_an_index_has_no_unit_before_it_began() -> None:
    events = ({**GO, "index": 7}, {**END, "index": 2}, {"event": "stop", "at": 4.0, "grace": 5})
    found = reported(began={"array": 10, "nodes": 0}, alive=True, events=events)
    assert states(found) == [(2, 0, State.CRASHED), (7, 0, State.RUNNING)]


def test_events_add_up_and_a_unit_that_did_not_change_stays_the_same_object() -> None:
    table = UnitTable(1)
    first = reported(table, began=BEGAN, alive=True, events=(GO, {**GO, "rank": 1}))
    again = reported(table, began=BEGAN, alive=True)
    assert all(one is other for one, other in zip(again.units, first.units, strict=True))
    second = reported(table, began=BEGAN, alive=True, events=(END,))
    assert states(second) == [(0, 0, State.CRASHED), (0, 1, State.RUNNING)]
    assert second.units[1] is first.units[1]


def test_the_result_says_all_whatever_else_is_there() -> None:
    found = reported(result=[END, {**END, "rank": 1, "started_at": None, "exit_code": None}], alive=True)
    assert found.presence is Presence.ended
    assert [(unit.exit_code, unit.peak_memory_bytes) for unit in found.units] == [(3, 1 << 20), (None, 1 << 20)]
    assert found.units[1].started_at is None


@pytest.mark.parametrize(
    ("began", "boot_id", "said"),
    [
        (BEGAN, "b", "Its supervisor was killed, and the program with it"),
        (BEGAN, "another", "The machine restarted while it ran"),
        ({}, "b", "Its supervisor was killed, and the program with it"),
    ],
    ids=["killed", "restarted", "an unreadable record"],
)
def test_one_that_began_and_holds_no_lock_is_lost(began: dict[str, Any], boot_id: str, said: str) -> None:
    found = reported(began=began, boot_id=boot_id, events=(GO,))
    assert found.presence is Presence.lost
    assert found.message
    assert found.message.startswith(said)
    assert found.units[0].state is State.RUNNING
