"""Read what happened to a run, in order, from the files of its supervisor."""

from __future__ import annotations

from pathlib import Path

from penstock.domain.quantities import show_duration
from penstock.engines.base import Event
from penstock.engines.local.state.report import Record, moment
from penstock.engines.local.state.snapshot import read_began, read_events, read_result

SHOWN = 1000
"""The most events that are shown; of a long array these are the newest."""
NORMAL, WARNING = "Normal", "Warning"
LIMITS = {"time": "TimeLimit", "disk": "DiskLimit"}


def run_events(run_dir: Path) -> list[Event]:
    """Return its beginning, each start and end, a stop that was asked for, and limits that were hit."""
    began = read_began(run_dir) or {}
    lines, _ = read_events(run_dir)
    told = {(line.get("index", 0), line["rank"]) for line in lines if line["event"] == "ended"}
    units = read_result(run_dir) or []
    untold = [unit for unit in units if (unit.get("index", 0), unit["rank"]) not in told]
    found = [event for line in lines if (event := _event(line, began))]
    found += _never_started([unit for unit in untold if not unit["started_at"]])
    found.sort(key=lambda event: event.at)
    return [*_began(began), *_newest(found)]


def _began(began: Record) -> list[Event]:
    if "at" not in began:
        return []
    return [Event(at=moment(began["at"]), kind=NORMAL, reason="Began", about="job", message="Its supervisor began.")]


def _about(record: Record, began: Record) -> str:
    """Name the unit; the only one is the job itself."""
    if began.get("array") is not None:
        return f"index {record['index']}"
    return f"node {record['rank']}" if began.get("nodes", 0) > 1 else "job"


def _event(line: Record, began: Record) -> Event | None:
    what = line["event"]
    if what == "ended":
        return _ended(line, began)
    at = moment(line["at"])
    if what == "go":
        return Event(at=at, kind=NORMAL, reason="Started", about=_about(line, began), message="It started.")
    if what == "stop":
        said = f"A stop was asked for: TERM, and KILL after {show_duration(line['grace'])}."
        return Event(at=at, kind=NORMAL, reason="StopAsked", about="job", message=said)
    if what == "limit":
        reason = LIMITS.get(line["limit"], "Limit")
        return Event(at=at, kind=WARNING, reason=reason, about=_about(line, began), message=line["message"])
    return None


def _ended(record: Record, began: Record) -> Event:
    state, code = record["state"], record["exit_code"]
    said = record["message"] or (f"It ended with code {code}." if state == "EXITED" else "It was stopped.")
    return Event(
        at=moment(record["ended_at"]),
        kind=WARNING if state == "CRASHED" else NORMAL,
        reason=state.capitalize(),
        about=_about(record, began),
        message=said,
    )


def _never_started(units: list[Record]) -> list[Event]:
    if not units:
        return []
    said = f"{len(units):,} never started." if len(units) > 1 else "It never started."
    at = moment(units[0]["ended_at"])
    return [Event(at=at, kind=NORMAL, reason="Stopped", about="job", message=said, count=len(units))]


def _newest(found: list[Event]) -> list[Event]:
    over = len(found) - SHOWN
    if over <= 0:
        return found
    said = f"{over:,} earlier events are not shown."
    first = Event(at=found[0].at, kind=NORMAL, reason="LeftOut", about="job", message=said, count=over)
    return [first, *found[over:]]
