"""Compute the report about a run from a snapshot of its containers.

There is one rule about ends that nobody saw: where the minder left no note of how the program ended, and Docker was
restarted since it started, the node was lost with it. Otherwise the note counts, or Docker's own exit code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import Launch, Presence, Report, Run, Step
from penstock.engines.docker import names
from penstock.engines.docker.api.objects import LOST_TRACK, ContainerRecord
from penstock.engines.docker.names import Label
from penstock.engines.docker.spec import AGAIN_CODE
from penstock.engines.shared.endings import UnitEnd, ended_by_itself, not_started, out_of_memory, over_time
from penstock.engines.shared.exit_codes import NEVER_STARTED, describe
from penstock.errors import Unavailable

OUTSIDE_PATIENCE = 20.0
"""Seconds: Docker ends its containers up to a quarter of a minute before it ends itself."""
BY_SIGNAL = (130, 137, 143)
"""Codes of what was ended by INT, KILL or TERM."""
BY_DOCKER = (*BY_SIGNAL, LOST_TRACK)
"""Codes of what ended with Docker."""
BEGINNING = timedelta(seconds=10)
"""So far into its start Docker may end what it finds running, where live-restore is off."""
_LEFT_OVER = re.compile(r"\btask \w+: already exists")
"""What Docker says about a start during which it was killed."""
BESIDE = {"reason": Reason.ANOTHER_NODE_ENDED, "message": "Another node had ended before it started."}
STILL_RUNNING = {"state": State.RUNNING, "reason": None, "message": None, "exit_code": None, "ended_at": None}


@dataclass(frozen=True)
class HostState:
    """What counts of a registered host when a run is judged."""

    trouble: str | None = None
    """Why it does not answer; None: it does."""
    maintenance: bool = False
    clock_ahead: timedelta = timedelta()
    """How far its clock is ahead of ours."""
    docker: str = ""
    """Identifies its Docker from one start of it to the next."""
    docker_since: datetime | None = None
    """When its Docker started, by its own clock, where that is known."""


@dataclass(frozen=True)
class DockerRunSnapshot:
    """All that a report is computed from."""

    run: Run
    containers: Mapping[int, ContainerRecord]
    """The container that counts of each part."""
    hosts: Mapping[str, HostState]
    """The registered hosts by name."""
    now: datetime
    launch: Launch | None = None
    starting: Step | None = None
    """How far a start has come that is under way."""
    steps: tuple[Step, ...] = ()
    """What it went through until it began."""
    failed: Mapping[int, Unit] = field(default_factory=dict)
    """Parts that have no container and never will."""
    over_disk: Mapping[int, str] = field(default_factory=dict)
    """Parts that were ended because they held too much on a disk, and of what."""
    stopped: bool = False
    cancelled_at: datetime | None = None
    """When it was stopped, if nothing of it had begun."""

    @property
    def array(self) -> bool:
        if self.launch:
            return self.launch.spec.array is not None
        return any(seen.is_array for seen in self.containers.values())

    @property
    def total(self) -> int:
        return total_of(self.launch, self.containers)

    @property
    def without(self) -> str | None:
        """The sentence about a node that never had a container, for which the others were ended."""
        lacking = [unit for unit in self.failed.values() if self.launch and self.launch.spec.array is None]
        return f"Node {lacking[0].rank} has no container." if lacking else None


def troubles(hosts: Mapping[str, HostState], names: Iterable[str]) -> list[str]:
    """Say of those of these hosts that do not answer why not; without names, of all."""
    wanted = set(names) or set(hosts)
    return [host.trouble for name, host in hosts.items() if name in wanted and host.trouble]


def total_of(launch: Launch | None, containers: Mapping[int, ContainerRecord]) -> int:
    """How many parts the attempt has."""
    if launch:
        return len(launch.indexes) if launch.spec.array else launch.spec.nodes
    return max((names.number(seen.labels, Label.PARTS, 1) for seen in containers.values()), default=1)


# -- the run -----------------------------------------------------------------------------------------------------------


def report(snapshot: DockerRunSnapshot) -> Report:
    """Raise Unavailable where its hosts do not answer and nothing is known of it."""
    found = _report(snapshot)
    steps = snapshot.steps
    if steps and any(unit.started_at for unit in found.units):
        steps = (*steps, Step(state=State.LAUNCHED, reason=Reason.STARTED, message="Docker has started it"))
    return found.model_copy(update={"steps": steps})


def _report(snapshot: DockerRunSnapshot) -> Report:
    if snapshot.cancelled_at:
        return Report(presence=Presence.ended, units=tuple(_unstarted(snapshot, snapshot.cancelled_at).values()))
    found = units(snapshot) | dict(snapshot.failed)
    if not found:
        return _not_begun(snapshot)
    for seen in pending(snapshot):
        found[seen.part] = found[seen.part].model_copy(update=STILL_RUNNING)
    ended = all(unit.ended_at for unit in found.values())
    drained = _drained(snapshot, found)
    if ended and snapshot.starting is None:
        if snapshot.stopped:
            found = _unstarted(snapshot, snapshot.now) | found
        elif not snapshot.array and has_failed(snapshot):
            beside = {part: unit.model_copy(update=BESIDE) for part, unit in _unstarted(snapshot, snapshot.now).items()}
            found = beside | found
    listed = tuple(found[part] for part in sorted(found))
    if ended and len(listed) >= snapshot.total:
        return Report(presence=Presence.ended, units=listed)
    return _running(snapshot, listed, drained)


def _running(snapshot: DockerRunSnapshot, listed: tuple[Unit, ...], said: str | None) -> Report:
    """Where a host does not answer the run is in doubt, and says so; nothing is started in its place."""
    containers = snapshot.containers.values()
    away = troubles(snapshot.hosts, {seen.host for seen in containers if not seen.over})
    if not away or not any(seen.runs for seen in containers):
        return Report(presence=Presence.running, units=listed, message=said)
    said = f"{away[0]}: it may still be running, and its node is asked again every few seconds"
    return Report(presence=Presence.running, units=listed, message=said, state=State.UNKNOWN, reason=Reason.NODE_LOST)


def _drained(snapshot: DockerRunSnapshot, found: Mapping[int, Unit]) -> str | None:
    """Say why the rest of an array does not begin, where no node takes any more of it."""
    launch, hosts = snapshot.launch, snapshot.hosts
    left = [index for index in launch.indexes if index not in found] if launch else []
    drained = [name for name in dict.fromkeys(launch.hosts if launch else ()) if name in hosts]
    if launch is None or not left or not drained or not all(hosts[name].maintenance for name in drained):
        return None
    is_ = "is" if len(drained) == 1 else "are"
    return f"{', '.join(drained)} {is_} in maintenance: {len(left)} of its indexes wait until that is over"


def _not_begun(snapshot: DockerRunSnapshot) -> Report:
    run, doing = snapshot.run, snapshot.starting
    if doing:
        return Report(presence=Presence.waiting, state=doing.state, reason=doing.reason, message=doing.message)
    if missing := [name for name in run.hosts if name not in snapshot.hosts]:
        said = f"Its node {missing[0]} is no longer registered, so nobody knows how it ended."
        return Report(presence=Presence.lost, message=said)
    if away := troubles(snapshot.hosts, run.hosts):
        raise Unavailable(f"{away[0]}: it may be running there, and its node is asked again.")
    return Report(presence=Presence.absent)


def _unstarted(snapshot: DockerRunSnapshot, at: datetime) -> dict[int, Unit]:
    """Every part as it would be if its turn had never come."""
    launch = snapshot.launch
    parts = (launch.indexes or range(launch.spec.nodes)) if launch else range(snapshot.total)
    return {part: never_started(snapshot.run.attempt, part, array=snapshot.array, at=at) for part in parts}


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


# -- what is due ---------------------------------------------------------------------------------------------------


def pending(snapshot: DockerRunSnapshot) -> list[ContainerRecord]:
    """Containers whose end is not judged yet: somebody ended them a moment ago, and if that was Docker, which is being
    shut down, it will be seen soon."""
    first = _first_failure(snapshot)
    found = []
    for seen in snapshot.containers.values():
        host = snapshot.hosts.get(seen.host)
        doubted = _from_outside(seen, snapshot) and not _ended_with(seen, first)
        soon = host is not None and (host.trouble or _patience_left(seen, host, snapshot.now) > 0)
        if seen.unwitnessed or (doubted and soon):
            found.append(seen)
    return found


def due_in(snapshot: DockerRunSnapshot) -> float | None:
    """Seconds until the report changes by itself; None: it does not."""
    hosts, doubted = snapshot.hosts, pending(snapshot)
    left = [_patience_left(seen, hosts[seen.host], snapshot.now) for seen in doubted if seen.host in hosts]
    return min((min(each, OUTSIDE_PATIENCE) for each in left if each > 0), default=None)


def _patience_left(seen: ContainerRecord, host: HostState, now: datetime) -> float:
    theirs = now + host.clock_ahead
    return OUTSIDE_PATIENCE - (theirs - (seen.ended_at or theirs)).total_seconds()


def has_failed(snapshot: DockerRunSnapshot) -> bool:
    """Is one of its nodes to blame, so that its peers have nothing to go on with?"""
    over = [seen for seen in snapshot.containers.values() if seen.over]
    return bool(snapshot.failed) or any(_own(seen, snapshot).state is not State.EXITED for seen in over)


# -- its units -----------------------------------------------------------------------------------------------------


def units(snapshot: DockerRunSnapshot) -> dict[int, Unit]:
    """A unit for each container that was started, or could not be."""
    first = _first_failure(snapshot)
    known = sorted(snapshot.containers.items())
    return {part: _unit(seen, snapshot, first) for part, seen in known if seen.began or seen.over}


def _first_failure(snapshot: DockerRunSnapshot) -> tuple[ContainerRecord, UnitEnd] | None:
    """The node that ended the others: the first that did not succeed, and was not told to end."""
    containers = snapshot.containers.values()
    if any(seen.is_array for seen in containers):
        return None
    failed = [(seen, _own(seen, snapshot)) for seen in containers if seen.over and not _was_told(seen, snapshot)]
    failed = [(seen, end) for seen, end in failed if end.state is not State.EXITED]
    return min(failed, key=lambda pair: (pair[0].ended_at is None, pair[0].ended_at, pair[0].part), default=None)


def _unit(seen: ContainerRecord, snapshot: DockerRunSnapshot, first: tuple[ContainerRecord, UnitEnd] | None) -> Unit:
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
    end = _own(seen, snapshot)
    if first and _ended_with(seen, first) and _was_told(seen, snapshot):
        end = UnitEnd(State.STOPPED, Reason.ANOTHER_NODE_ENDED, _what_ended_it(*first), seen.exit_code)
    elif snapshot.without and _was_told(seen, snapshot):
        end = UnitEnd(State.STOPPED, Reason.ANOTHER_NODE_ENDED, snapshot.without, seen.exit_code)
    return Unit(
        **fields,
        state=end.state,
        reason=end.reason,
        message=end.message,
        exit_code=end.exit_code,
        ended_at=seen.ended_at or seen.created_at,
    )


def _ended_with(seen: ContainerRecord, first: tuple[ContainerRecord, UnitEnd] | None) -> bool:
    """Did it end after the node that failed first?"""
    if first is None or first[0].part == seen.part:
        return False
    return first[0].ended_at is None or seen.ended_at is None or seen.ended_at >= first[0].ended_at


def _was_told(seen: ContainerRecord, snapshot: DockerRunSnapshot) -> bool:
    """Did someone tell it to end, we or another? What it ended with is not its own doing then."""
    if not seen.began or snapshot.stopped or seen.part in snapshot.over_disk or seen.note.ended == "time":
        return False
    return seen.note.ended == "stop" or (
        seen.note.code is None and seen.exit_code in BY_SIGNAL and not seen.out_of_memory
    )


def _what_ended_it(first: ContainerRecord, end: UnitEnd) -> str:
    if first.taken_away:
        return f"The container of node {first.part} was removed."
    if end.reason is Reason.NODE_LOST and end.exit_code is None:
        return f"Nobody knows how node {first.part} ended."
    if first.error or end.exit_code is None:
        return f"Node {first.part} could not be started."
    return f"Node {first.part} ended with {describe(end.exit_code)}."


# -- how one container ended -------------------------------------------------------------------------------------------


def believe_note(seen: ContainerRecord) -> ContainerRecord:
    """Believe the minder's note where Docker did not see the end, lost track of the container, or someone started it
    again."""
    if seen.note.code is None or (seen.witness != "" and seen.exit_code not in (AGAIN_CODE, LOST_TRACK)):
        return seen
    return replace(seen, exit_code=seen.note.code)


def _own(seen: ContainerRecord, snapshot: DockerRunSnapshot) -> UnitEnd:
    """Judge a container that is over as if it were alone."""
    code, note = seen.exit_code, seen.note
    if seen.error:
        if _LEFT_OVER.search(seen.error):
            return UnitEnd(State.CRASHED, Reason.NODE_LOST, f"Docker on {seen.host} was restarted while it started it.")
        return not_started(seen.error, f" on {seen.host}")
    if seen.part in snapshot.over_disk:
        return UnitEnd(State.CRASHED, Reason.DISK_LIMIT, snapshot.over_disk[seen.part], code or 1)
    if note.ended == "time" or _outlived(seen):
        return over_time(seen.max_duration, code)
    if snapshot.stopped and (note.ended == "stop" or seen.taken_away or note.code is None or code in BY_SIGNAL):
        known = not (seen.taken_away or seen.unknown_code)
        return UnitEnd(State.STOPPED, Reason.STOPPED_BY_USER, None, code if known else None)
    if seen.taken_away:
        said = f"Its container was removed on {seen.host} by someone else."
        return UnitEnd(State.CRASHED, Reason.DELETED_OUTSIDE, said)
    if seen.out_of_memory and code:
        return out_of_memory(seen.host, seen.memory_limit, _peak(seen), code)
    if _restarted_since(seen, snapshot) and (seen.unknown_code or _reads_as_told(seen)):
        return _lost_with_docker(seen)
    if note.ended == "stop":
        said = f"Someone else stopped it on {seen.host}, or Docker there was shut down."
        return UnitEnd(State.CRASHED, Reason.DELETED_OUTSIDE, said, code)
    if seen.has_bash and _reads_as_told(seen):  # its minder would have left a note, whatever became of the program
        said = f"Its container was killed on {seen.host}: the host or its Docker was restarted, or someone killed it."
        return UnitEnd(State.CRASHED, Reason.NODE_LOST, said, code)
    return ended_by_itself(code, note.phase)


def _lost_with_docker(seen: ContainerRecord) -> UnitEnd:
    if _reads_as_told(seen):
        said = f"Docker on {seen.host} was restarted, which ended it."
        return UnitEnd(State.CRASHED, Reason.NODE_LOST, said, seen.exit_code)
    return UnitEnd(
        State.CRASHED, Reason.NODE_LOST, f"Docker on {seen.host} was restarted and does not know how it ended."
    )


def _restarted_since(seen: ContainerRecord, snapshot: DockerRunSnapshot) -> bool:
    """Was its Docker restarted since this container started? With live-restore it may have run on after that."""
    host = snapshot.hosts.get(seen.host)
    if seen.witness == "" or host is None or seen.witness is None:
        return seen.witness == ""
    if seen.witness != host.docker:
        return True
    began, started, ended = host.docker_since, seen.started_at, seen.ended_at
    return bool(began and started and ended and started < began and ended <= began + BEGINNING)


def _reads_as_told(seen: ContainerRecord) -> bool:
    """Does it read as if Docker, or someone beside us, had ended it?"""
    return seen.note.ended == "stop" or (seen.note.code is None and seen.exit_code in BY_DOCKER)


def _from_outside(seen: ContainerRecord, snapshot: DockerRunSnapshot) -> bool:
    """Did someone end it whom we do not know, so that it may yet turn out to have been Docker?"""
    if not seen.over or seen.error or seen.taken_away or snapshot.stopped or snapshot.without:
        return False
    if seen.part in snapshot.over_disk or _outlived(seen) or (seen.out_of_memory and seen.exit_code):
        return False
    return _reads_as_told(seen) and not _restarted_since(seen, snapshot)


def was_stopped(seen: ContainerRecord) -> bool:
    """Does it read as if a server that is gone had stopped it, or can nobody read how it ended?"""
    by_signal = seen.note.code is None and seen.exit_code in BY_SIGNAL
    return seen.note.ended == "stop" or by_signal or seen.unknown_code


def _outlived(seen: ContainerRecord) -> bool:
    """Did a program without a minder run its full time? It is the engine that ends it then."""
    if seen.has_bash or not seen.max_duration or not seen.started_at or not seen.ended_at:
        return False
    return seen.ended_at - seen.started_at >= timedelta(seconds=seen.max_duration)


def _peak(seen: ContainerRecord) -> int | None:
    return seen.note.peak or max(seen.peak, seen.memory_limit if seen.out_of_memory else 0) or None
