"""How a run ended, from what was seen of its containers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.domain.states import Reason, State
from penstock.engines.base import Run
from penstock.engines.docker import names
from penstock.engines.docker.api.objects import Seen, read_time
from penstock.engines.docker.outages import Outage, outage_before
from penstock.engines.docker.state import Wanted, doubtful, not_started, units
from penstock.engines.shared.minder import Note

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def seen(part: int = 0, *, minutes: float = 1, labels: dict[str, str] | None = None, **fields: Any) -> Seen:
    given = {
        "id": f"id-{part}",
        "name": "name",
        "host": "lab-1",
        "run": Run("abcdefgh"),
        "part": part,
        "labels": {names.HAS_BASH: "true"} | (labels or {}),
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
    }
    return Seen(**(given | fields))


def end_of(one: Seen, **wanted: Any) -> tuple[State, Reason | None, int | None]:
    unit = units({one.part: one}, Wanted(**wanted))[one.part]
    return unit.state, unit.reason, unit.exit_code


def plain(**fields: Any) -> Seen:
    """A program without a minder, which leaves no note."""
    found = seen(note=Note(), **fields)
    del found.labels[names.HAS_BASH]
    return found


def test_a_program_that_ended_by_itself_before_a_stop_came_has_its_own_end() -> None:
    assert end_of(seen(exit_code=7, note=Note(code=7)), stopped=True) == (State.CRASHED, Reason.PROGRAM_FAILED, 7)
    assert end_of(seen(exit_code=143, note=Note(code=143, ended="stop")), stopped=True)[0] is State.STOPPED


def test_without_a_note_the_end_of_one_that_was_told_to_stop_is_that_stop() -> None:
    assert end_of(plain(exit_code=143), stopped=True) == (State.STOPPED, Reason.STOPPED_BY_USER, 143)
    assert end_of(plain(exit_code=143)) == (State.CRASHED, Reason.PROGRAM_FAILED, 143)


def test_what_ended_while_docker_was_away_ended_with_it() -> None:
    away = {"lab-1": [Outage(NOON, NOON + timedelta(minutes=2))]}
    for code in (137, 143, 255):
        assert end_of(plain(exit_code=code), outages=away) == (State.CRASHED, Reason.NODE_LOST, code)
    assert end_of(plain(exit_code=1), outages=away)[1] is Reason.PROGRAM_FAILED
    assert end_of(plain(exit_code=143, minutes=3), outages=away)[1] is Reason.PROGRAM_FAILED


def test_a_program_that_ran_longer_than_it_may_is_over_its_time() -> None:
    limit = {names.MAX_DURATION: "60"}
    assert end_of(plain(exit_code=143, labels=limit)) == (State.CRASHED, Reason.TIME_LIMIT, 143)
    assert end_of(plain(exit_code=0, labels=limit)) == (State.CRASHED, Reason.TIME_LIMIT, 124)
    assert end_of(plain(exit_code=0, labels=limit, minutes=0.5))[0] is State.EXITED


def test_the_first_node_that_failed_is_the_reason_and_the_others_were_stopped() -> None:
    first = seen(1, exit_code=5, note=Note(code=5))
    told = seen(0, exit_code=143, note=Note(code=143, ended="stop"), minutes=2)
    found = units({0: told, 1: first}, Wanted())
    assert (found[0].state, found[0].reason) == (State.STOPPED, Reason.ANOTHER_NODE_ENDED)
    assert found[0].message == "Node 1 ended with code 5."
    assert found[1].reason is Reason.PROGRAM_FAILED


def test_indexes_of_an_array_do_not_end_each_other() -> None:
    array = {names.ARRAY: "true"}
    failed, other = seen(0, exit_code=5, note=Note(code=5), labels=array), seen(1, labels=array, minutes=2)
    found = units({0: failed, 1: other}, Wanted())
    assert [(unit.index, unit.rank, unit.state) for unit in found.values()] == [
        (0, 0, State.CRASHED),
        (1, 0, State.EXITED),
    ]


def test_one_that_was_only_created_has_no_unit() -> None:
    assert units({0: seen(status="created", started_at=None, ended_at=None)}, Wanted()) == {}


@pytest.mark.parametrize(
    "error",
    [
        'OCI runtime create failed: container_linux.go:380: starting container process caused: exec: "nosuch": '
        "executable file not found in $PATH: unknown",
        "failed to create task for container: failed to create shim task: OCI runtime create failed: "
        "runc create failed: unable to start container process: error during container init: "
        'exec: "nosuch": executable file not found in $PATH: unknown',
    ],
)
def test_a_program_that_is_not_there_is_named_whatever_docker_says_around_it(error: str) -> None:
    end = not_started(error, "lab-1")
    assert (end.message, end.exit_code) == ("The program nosuch was not found in the image.", 127)


def test_one_that_cannot_be_executed_says_why() -> None:
    end = not_started('runc create failed: exec: "/etc/hosts": permission denied: unknown', "lab-1")
    assert (end.message, end.exit_code) == ("The program /etc/hosts cannot be executed: permission denied.", 126)


def test_times_as_docker_writes_them() -> None:
    assert read_time("0001-01-01T00:00:00Z") is None
    assert read_time("") is None
    assert read_time("2026-11-16T12:00:00.123456789Z") == NOON + timedelta(microseconds=123456)
    assert read_time("2026-11-16T13:00:00+01:00") == NOON


def test_an_end_from_outside_is_in_doubt_until_it_is_clear_whether_docker_goes_down() -> None:
    told = seen(exit_code=143, note=Note(code=143, ended="stop"))
    assert doubtful({0: told}, Wanted()) == [told]
    assert doubtful({0: told}, Wanted(stopped=True)) == []
    assert doubtful({0: told}, Wanted(outages={"lab-1": [Outage(NOON, NOON + timedelta(minutes=2))]})) == []
    failed = seen(1, exit_code=5, note=Note(code=5), minutes=0.5)
    assert doubtful({0: told, 1: failed}, Wanted()) == []  # it was we who ended it, for the other


def test_docker_was_away_when_the_last_it_ended_were_followed_by_nothing_but_its_start() -> None:
    began = NOON + timedelta(hours=2)
    ended = plain(exit_code=143)
    by_hand = plain(exit_code=137, started_at=NOON - timedelta(hours=3), minutes=-120)
    assert outage_before(began, [ended]) == outage_before(began, [ended, by_hand])
    found = outage_before(began, [ended, by_hand])
    assert found
    assert [found.took(each) for each in (ended, by_hand)] == [True, False]
    assert outage_before(began, [plain(exit_code=0)]) is None
    later = plain(exit_code=0, started_at=NOON + timedelta(hours=1), minutes=70)
    assert outage_before(began, [ended, later]) is None  # Docker was there afterwards


def test_docker_may_need_longer_to_end_what_it_has_than_it_waits_for_it() -> None:
    """Those that were left it ends when it begins again; nothing was made in between."""
    began = NOON + timedelta(minutes=10)
    first = seen(exit_code=143, note=Note(code=143, ended="stop"), started_at=began - timedelta(minutes=5), minutes=9.2)
    left = plain(part=1, exit_code=137, minutes=10.02)
    found = outage_before(began, [first, left])
    assert found
    assert found.took(first)
    made = plain(part=2, exit_code=137, started_at=began - timedelta(seconds=40), minutes=10.02)
    found = outage_before(began, [first, left, made])
    assert found
    assert [found.took(each) for each in (first, left, made)] == [False, True, True]
