"""Report how a run is and how it ended, from what was last seen of its containers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from penstock.domain.model import now
from penstock.domain.quantities import show_bytes, show_duration
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import Launch, Presence, Report
from penstock.engines.docker.api.objects import Seen
from penstock.engines.docker.nfs import is_about_mounts, mount_words
from penstock.engines.docker.outages import BY_DOCKER, Outage
from penstock.engines.shared.exit_codes import NEVER_STARTED, describe
from penstock.engines.shared.minder import FAILURES

NOT_EXECUTABLE_CODE, NOT_FOUND_CODE, TIME_CODE = 126, 127, 124
BY_SIGNAL = (130, 137, 143)
"""Ended by INT, KILL or TERM."""
_PROGRAM = re.compile(r'exec: \\?"(.*?)\\?":')
_LEFT_OVER = re.compile(r"\btask \w+: already exists")
"""Of a start in which Docker was killed."""
_PASSED_ON = re.compile(
    r"^(?:failed to create (?:shim )?task(?: for container)?|OCI runtime create failed|runc create failed|unknown"
    r"|unable to start container process|container_linux\.go:\d+|starting container process caused"
    r"|error during container init|process_linux\.go:\d+|container init caused)[:,]? "
)


@dataclass(frozen=True)
class Ending:
    state: State
    reason: Reason
    message: str | None = None
    exit_code: int | None = None
    doubtful: bool = False
    """Someone ended it, and if that was Docker, which is being shut down, it will be seen in a moment."""


@dataclass(frozen=True)
class Wanted:
    """What was done to a run that its containers do not know."""

    stopped: bool = False
    full: Mapping[int, str] = field(default_factory=dict)
    """Part → what it held too much of."""
    outages: Mapping[str, Sequence[Outage]] = field(default_factory=dict)
    """Host → when its Docker was not there, by the host's clock."""
    without: str | None = None
    """A node that has no container, for which the others were ended."""


def units(parts: Mapping[int, Seen], wanted: Wanted) -> dict[int, Unit]:
    """Of the containers that were started, or could not be."""
    first = None if any(seen.is_array for seen in parts.values()) else _first_failure(parts, wanted)
    return {part: _unit(seen, wanted, first) for part, seen in sorted(parts.items()) if seen.began or seen.over}


def doubtful(parts: Mapping[int, Seen], wanted: Wanted) -> list[Seen]:
    """Those whose end may still get another reason."""
    first = None if any(seen.is_array for seen in parts.values()) else _first_failure(parts, wanted)
    over = [seen for seen in parts.values() if seen.over and not wanted.without and _own(seen, wanted).doubtful]
    return [seen for seen in over if not (first and first[0].part != seen.part and _after(seen, first[0]))]


def never_started(attempt: int, part: int, *, array: bool, at: datetime) -> Unit:
    return Unit(
        attempt=attempt,
        index=part if array else 0,
        rank=0 if array else part,
        state=State.STOPPED,
        reason=Reason.STOPPED_BY_USER,
        message=NEVER_STARTED if array else None,
        ended_at=at,
    )


def was_stopped(seen: Seen) -> bool:
    """It reads as if someone told it to, who is not here any more to say so; or nobody can read how it ended."""
    by_signal = seen.note.code is None and seen.exit_code in BY_SIGNAL
    return seen.note.ended == "stop" or by_signal or seen.unknown_code


def never_ran(launch: Launch) -> Report:
    """Of one that was stopped before it began."""
    array = launch.spec.array is not None
    parts = launch.indexes or range(launch.spec.nodes)
    return Report(
        presence=Presence.ended,
        units=tuple(never_started(launch.attempt, part, array=array, at=now()) for part in parts),
    )


def ends_others(seen: Seen, wanted: Wanted) -> bool:
    """It failed, and its peers have nothing to go on with."""
    return seen.over and _own(seen, wanted).state is not State.EXITED


def _first_failure(parts: Mapping[int, Seen], wanted: Wanted) -> tuple[Seen, Ending] | None:
    """The node that ended the others: the first that did not succeed, and was not told to end."""
    failed = [(seen, _own(seen, wanted)) for seen in parts.values() if seen.over and not _was_told(seen, wanted)]
    failed = [(seen, end) for seen, end in failed if end.state is not State.EXITED]
    return min(failed, key=lambda pair: (pair[0].ended_at is None, pair[0].ended_at, pair[0].part), default=None)


def _unit(seen: Seen, wanted: Wanted, first: tuple[Seen, Ending] | None) -> Unit:
    fields: dict[str, Any] = {
        "attempt": seen.run.attempt,
        "index": seen.part if seen.is_array else 0,
        "rank": 0 if seen.is_array else seen.part,
        "started_at": seen.started_at,
        "peak_memory_bytes": _peak(seen),
        "container": seen.id,
    }
    if not seen.over:
        return Unit(**fields, state=State.RUNNING)
    end = _own(seen, wanted)
    if first and first[0].part != seen.part and _after(seen, first[0]) and _was_told(seen, wanted):
        end = _another(first[0], first[1], seen)
    elif wanted.without and _was_told(seen, wanted):
        end = Ending(State.STOPPED, Reason.ANOTHER_NODE_ENDED, wanted.without, seen.exit_code)
    return Unit(
        **fields,
        state=end.state,
        reason=end.reason,
        message=end.message,
        exit_code=end.exit_code,
        ended_at=seen.ended_at or seen.created_at,
    )


def _after(seen: Seen, other: Seen) -> bool:
    return other.ended_at is None or seen.ended_at is None or seen.ended_at >= other.ended_at


def _was_told(seen: Seen, wanted: Wanted) -> bool:
    """Someone told it to end: us, or someone else. What it ended with is not its own doing."""
    if not seen.began or wanted.stopped or seen.part in wanted.full or seen.note.ended == "time":
        return False
    return seen.note.ended == "stop" or (
        seen.note.code is None and seen.exit_code in BY_SIGNAL and not seen.out_of_memory
    )


def _another(first: Seen, end: Ending, seen: Seen) -> Ending:
    if first.taken_away:
        said = f"The container of node {first.part} was removed."
    elif end.reason is Reason.NODE_LOST and end.exit_code is None:
        said = f"How node {first.part} ended is not known."
    elif first.error or end.exit_code is None:
        said = f"Node {first.part} could not be started."
    else:
        said = f"Node {first.part} ended with {describe(end.exit_code)}."
    return Ending(State.STOPPED, Reason.ANOTHER_NODE_ENDED, said, seen.exit_code)


def _own(seen: Seen, wanted: Wanted) -> Ending:
    """Of one that is over, as if it were alone."""
    code, note = seen.exit_code, seen.note
    if seen.error:
        return _not_started(seen)
    if seen.part in wanted.full:
        return Ending(State.CRASHED, Reason.DISK_LIMIT, wanted.full[seen.part], code or 1)
    if note.ended == "time" or _outlived(seen):
        limit = f" ({show_duration(seen.max_duration)})" if seen.max_duration else ""
        return Ending(State.CRASHED, Reason.TIME_LIMIT, f"It ran longer than max_duration{limit}.", code or TIME_CODE)
    if wanted.stopped and (note.ended == "stop" or seen.taken_away or _by_signal_or_asked(seen)):
        known = not (seen.taken_away or seen.unknown_code)
        return Ending(State.STOPPED, Reason.STOPPED_BY_USER, None, code if known else None)
    if seen.taken_away:
        said = f"Its container was removed on {seen.host} by someone else."
        return Ending(State.CRASHED, Reason.DELETED_OUTSIDE, said)
    if seen.out_of_memory and code:
        return Ending(State.CRASHED, Reason.OUT_OF_MEMORY, _out_of_memory(seen), code)
    if outside := _ended_outside(seen, wanted):
        return outside
    return _by_itself(code, note.phase)


def _by_signal_or_asked(seen: Seen) -> bool:
    """A program without a minder does not say why it ended: while a stop is wanted, that is why."""
    return seen.note.code is None or seen.exit_code in BY_SIGNAL


def _by_itself(code: int, phase: str) -> Ending:
    if not code:
        return Ending(State.EXITED, Reason.FINISHED, None, 0)
    if phase in FAILURES:
        return Ending(State.CRASHED, Reason.LAUNCH_FAILED, FAILURES[phase], code)
    if phase == "setup":
        said = f"setup ended with {describe(code)}; run did not start."
        return Ending(State.CRASHED, Reason.SETUP_FAILED, said, code)
    return Ending(State.CRASHED, Reason.PROGRAM_FAILED, f"run ended with {describe(code)}.", code)


def _ended_outside(seen: Seen, wanted: Wanted) -> Ending | None:
    """Docker ends its containers when it is stopped itself, and says no more than with what code."""
    told = seen.note.ended == "stop" or (seen.note.code is None and seen.exit_code in BY_DOCKER)
    if told and any(outage.took(seen) for outage in wanted.outages.get(seen.host, ())):
        said = f"Docker on {seen.host} was restarted, which ended it."
        return Ending(State.CRASHED, Reason.NODE_LOST, said, seen.exit_code)
    if seen.unknown_code:
        said = f"Docker on {seen.host} was restarted and does not know how it ended."
        return Ending(State.CRASHED, Reason.NODE_LOST, said)
    if not told:
        return None
    if seen.note.ended == "stop":
        said = f"It was told to end on {seen.host} by someone else, or Docker there was shut down."
        return Ending(State.CRASHED, Reason.DELETED_OUTSIDE, said, seen.exit_code, doubtful=True)
    if seen.has_bash:  # its minder would have left a note, whatever became of the program
        said = f"It was killed as a whole: {seen.host} or Docker there was restarted, or someone killed it."
        return Ending(State.CRASHED, Reason.NODE_LOST, said, seen.exit_code, doubtful=True)
    return replace(_by_itself(seen.exit_code, seen.note.phase), doubtful=True)


def _outlived(seen: Seen) -> bool:
    """Of a program without a minder: it is the engine that ends it when its time is over."""
    if seen.has_bash or not seen.max_duration or not seen.started_at or not seen.ended_at:
        return False
    return seen.ended_at - seen.started_at >= timedelta(seconds=seen.max_duration)


def _peak(seen: Seen) -> int | None:
    return seen.note.peak or max(seen.peak, seen.memory_limit if seen.out_of_memory else 0) or None


def _out_of_memory(seen: Seen) -> str:
    if not seen.memory_limit:
        return f"Its node {seen.host} ran out of memory."
    peak = _peak(seen)
    used = f"; it used up to {peak / (1 << 20):.0f}Mi" if peak else ""
    return f"It went over its memory limit of {show_bytes(seen.memory_limit)}{used}."


def _not_started(seen: Seen) -> Ending:
    return not_started(seen.error, seen.host)


def not_started(error: str, host: str) -> Ending:
    """With the code a shell would have ended with."""
    if _LEFT_OVER.search(error):
        return Ending(State.CRASHED, Reason.NODE_LOST, f"Docker on {host} was restarted while it started it.")
    program = _PROGRAM.search(error)
    if program and any(words in error for words in ("not found in $PATH", "no such file or directory")):
        said = f"The program {program[1]} was not found in the image."
        return Ending(State.CRASHED, Reason.LAUNCH_FAILED, said, NOT_FOUND_CODE)
    if program:
        why = plain(error).removesuffix(": unknown").rpartition(": ")[2]
        said = f"The program {program[1]} cannot be executed: {why}."
        return Ending(State.CRASHED, Reason.LAUNCH_FAILED, said, NOT_EXECUTABLE_CODE)
    if is_about_mounts(error):
        return Ending(
            State.CRASHED, Reason.LAUNCH_FAILED, f"A volume cannot be mounted on {host}: {mount_words(error)}."
        )
    return Ending(State.CRASHED, Reason.LAUNCH_FAILED, f"Its container could not be started on {host}: {plain(error)}.")


def plain(message: str) -> str:
    """What the engine says, without the names of all who passed it on."""
    while found := _PASSED_ON.match(message):
        message = message[found.end() :]
    return message.removesuffix(": unknown").rstrip(".")
