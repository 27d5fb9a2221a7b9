"""Compute what is reported of a run from a snapshot of its directory.

The supervisor may be one of an earlier version: what it did not write down yet is taken to be what it was then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import Presence, Report

Record = dict[str, Any]
"""One entry of the files that a supervisor writes."""


@dataclass(frozen=True)
class RunSnapshot:
    """A run's directory and locks at one moment."""

    result: list[Record] | None = None
    """How each unit ended; None before the end of all. With it nothing else is needed."""
    began: Record | None = None
    """None before it began; empty if the record cannot be read."""
    alive: bool = False
    """The supervisor, or something it started, holds its lock."""
    boot_id: str = ""
    """Identifies the start of the machine; empty while the run is alive."""
    events: tuple[Record, ...] = ()
    """What has been added to `events` since the snapshot before."""


class UnitTable:
    """The units of an attempt that has not ended. An index of an array has one once it began.

    A unit that did not change stays the same object, so that an array of ten thousand is not made anew each time.
    """

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._units: dict[tuple[int, int], Unit] = {}
        self._shown: tuple[Unit, ...] = ()

    def update(self, nodes: int, events: Iterable[Record]) -> tuple[Unit, ...]:
        """Take in the events that came since the last call, and return all units in order."""
        before = len(self._units)
        for rank in range(nodes):
            if (0, rank) not in self._units:
                self._units[0, rank] = Unit(attempt=self._attempt, rank=rank, state=State.LAUNCHING)
        changed = [event for event in events if event["event"] in ("go", "ended")]
        for event in changed:
            make = _ended_unit if event["event"] == "ended" else _running_unit
            self._units[event.get("index", 0), event["rank"]] = make(event, self._attempt)
        if changed or len(self._units) != before:
            self._shown = tuple(self._units[key] for key in sorted(self._units))
        return self._shown


def report(snapshot: RunSnapshot, attempt: int, table: UnitTable) -> Report:
    if snapshot.result is not None:
        return Report(presence=Presence.ended, units=tuple(_ended_unit(record, attempt) for record in snapshot.result))
    if snapshot.began is None and not snapshot.alive:
        return Report(presence=Presence.absent)
    began = snapshot.began or {}
    units = table.update(began.get("nodes", 0), snapshot.events)
    if snapshot.alive:
        return Report(presence=Presence.running, units=units)
    return Report(presence=Presence.lost, units=units, message=_why_lost(began, snapshot.boot_id))


def _why_lost(began: Record, boot_id: str) -> str:
    if began.get("boot_id") and began["boot_id"] != boot_id:
        return "The machine restarted while it ran; the outcome is not known."
    return "Its supervisor was killed, and the program with it; the outcome is not known."


def _running_unit(event: Record, attempt: int) -> Unit:
    return Unit(
        attempt=attempt,
        index=event.get("index", 0),
        rank=event["rank"],
        state=State.RUNNING,
        reason=Reason.STARTED,
        started_at=moment(event["at"]),
    )


def _ended_unit(record: Record, attempt: int) -> Unit:
    started, ended = record["started_at"], record["ended_at"]
    return Unit(
        attempt=attempt,
        index=record.get("index", 0),
        rank=record["rank"],
        state=State(record["state"]),
        reason=Reason(record["reason"]),
        message=record["message"],
        exit_code=record["exit_code"],
        started_at=None if started is None else moment(started),
        ended_at=None if ended is None else moment(ended),
        peak_memory_bytes=record["peak_memory_bytes"],
    )


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
