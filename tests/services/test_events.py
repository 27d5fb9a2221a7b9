"""Events in the order they happened, from clocks of different precision."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.services.workloads.events import _in_order
from penstock.wire.pages import Event


def event(at: str, reason: str) -> Event:
    moment = datetime.fromisoformat(f"2026-01-01T12:00:{at}").replace(tzinfo=UTC)
    return Event(at=moment, kind="Normal", reason=reason, about="job", message="")


def test_what_a_cluster_says_in_whole_seconds_comes_after_what_began_it_and_before_what_followed():
    ours = [event("42.300", "SUBMITTED"), event("42.950", "STARTED"), event("44.100", "FINISHED")]
    theirs = [
        event("42", "SuccessfulCreate"),
        event("42.320", "Scheduled"),
        event("42", "Pulled"),
        event("42", "Started"),
        event("44", "Completed"),
    ]
    found = [each.reason for each in _in_order(ours, theirs, [ours[0].at])]
    assert found == [
        "SUBMITTED",
        "SuccessfulCreate",
        "Scheduled",
        "Pulled",
        "Started",
        "STARTED",
        "Completed",
        "FINISHED",
    ]


def test_what_happened_before_something_began_stays_before_it():
    ours = [event("10.500", "SUBMITTED"), event("20.400", "RETRY")]
    theirs = [event("10", "Started"), event("19", "BackoffLimitExceeded"), event("20", "SuccessfulCreate")]
    found = [each.reason for each in _in_order(ours, theirs, [each.at for each in ours])]
    assert found == ["SUBMITTED", "Started", "BackoffLimitExceeded", "RETRY", "SuccessfulCreate"]
