"""Start what a run still lacks, until it runs or never will.

An index or a node whose container someone removed while no server looked is not started again: it may have run. All
containers that start together are made before the first of them starts, so that one which is missing although another
of them began has been there. Of a run that is missing as a whole Docker may remember that it ran (`events`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from penstock.background import Backoff
from penstock.domain.model import now
from penstock.domain.quantities import show_duration
from penstock.domain.states import Reason, State
from penstock.domain.workloads import Unit
from penstock.engines.base import HeldUp, Launch, Run, Step
from penstock.engines.docker import names
from penstock.engines.docker.api.errors import SERVER_ERROR, DockerError, DockerUnreachable, is_disk_full, translate
from penstock.engines.docker.api.objects import ContainerRecord
from penstock.engines.docker.hosts import DockerHosts
from penstock.engines.docker.images import PullFailed
from penstock.engines.docker.names import Label
from penstock.engines.docker.runs.steps import LaunchSteps, StartFailed, find_forgotten, start_in_doubt
from penstock.engines.docker.settings import ContainerSettings
from penstock.engines.docker.state import never_started
from penstock.errors import PenstockError

log = logging.getLogger(__name__)
RETRY, LONGEST_RETRY = 0.5, 10.0
PULL_PAUSE, LONGEST_PULL_PAUSE = 5.0, 30.0
"""Seconds between two tries to pull an image."""
NOT_KNOWN = "nobody knows how it ended."
REMOVED = f"Someone removed its container while the server was away, so {NOT_KNOWN}"
ASKED = (State.REQUESTED_LAUNCH, State.UNKNOWN)
"""Docker was asked to start it, and may have."""


class RunStart:
    """One start of a run that is under way: what it lacks is started until all of it runs or never will."""

    def __init__(
        self,
        hosts: DockerHosts,
        steps: LaunchSteps,
        made: ContainerSettings,
        changed: Callable[[Run], None],
        active: ActiveRun,
        launch: Launch,
    ) -> None:
        self._hosts, self._steps, self._made, self._changed = hosts, steps, made, changed
        self._active, self._launch, self._run = active, launch, launch.run
        self._fresh: set[str] = set()
        """Containers it has made and not yet asked to start."""
        self.task: asyncio.Task[None] | None = None
        self.state, self.reason = State.ASSIGNED, Reason.PLACED
        self.message = f"on {', '.join(dict.fromkeys(launch.hosts))}" if launch.hosts else None
        self.held_up: HeldUp | None = None
        """Why it cannot be started now, until `advance` gives its place back."""

    def has_work(self) -> bool:
        parts = self._hosts.parts(self._run)
        return bool(self._to_start(parts) or self._removed(parts))

    async def cancel(self) -> None:
        if self.task:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self._active.start = None

    async def work(self) -> None:
        try:
            await self._until_up()
        except HeldUp as held:
            self.held_up = held
        except (DockerError, PenstockError) as error:
            await self._give_up(error)
        except Exception as error:
            log.exception("%s: a defect", self._run.workload_id)
            await self._give_up(PenstockError(f"a defect of the server: {error}"))
        finally:
            if self.held_up is None:
                self._active.start = None
            self._changed(self._run)

    def _say(self, state: State, reason: Reason, message: str) -> None:
        if state is State.PULLING and self.state is State.REQUESTED_PULLING:
            return  # asked for once more: why the try before failed is still all there is to say
        began = any(seen.began for seen in self._hosts.parts(self._run).values())
        if state is not State.UNKNOWN and state is not self.state and not began:
            self._active.steps.append(Step(state=state, reason=reason, message=message))
        if (self.state, self.message) != (state, message):
            self.state, self.reason, self.message = state, reason, message
            self._changed(self._run)

    async def _until_up(self) -> None:
        """Try again what may be better in a moment; raise what will not."""
        backoff, refused = Backoff(RETRY, LONGEST_RETRY), 0
        while True:
            wait = backoff.next()
            try:
                await self._try()
                self._active.pull_waited = 0
                return
            except DockerUnreachable as error:
                state = State.UNKNOWN if self.state in ASKED else self.state
                self._say(state, Reason.NODE_LOST, f"{error.message}; trying again")
            except PullFailed as error:
                wait = self._until_next_pull(error)
                self._say(State.REQUESTED_PULLING, Reason.PULLING_IMAGE, f"{error.message}; trying again")
            except DockerError as error:
                await self._hold_up_if_full(error)
                refused, wait = refused + 1, float(self._made.launch_pause)
                if error.status < SERVER_ERROR:
                    raise
                said = _why(error)[2]
                if refused >= self._made.launch_attempts:
                    said = f"It could not be launched in {refused} attempts. {said}"
                    raise StartFailed(State.STUCK, Reason.LAUNCH_FAILED, said, error.host) from error
                self._say(State.LAUNCHING, Reason.LAUNCH_FAILED, f"{said} Attempt {refused + 1} follows.")
            await asyncio.sleep(wait)

    async def _hold_up_if_full(self, error: DockerError) -> None:
        """Raise HeldUp where the host's disk is full and nothing of the run began: others go first that need none."""
        link = self._hosts.get(error.host)
        if link is None or not is_disk_full(error):
            return
        with suppress(DockerError):
            await link.space.look()
        link.space.doubt()
        parts = self._hosts.parts(self._run).values()
        if link.space.full and not any(seen.began for seen in parts):
            for seen in parts:
                await self._hosts.link(seen.host).remove(seen)
            raise HeldUp(Reason.NO_AVAILABLE_RESOURCES, f"{error.host} {link.space.full}", LONGEST_RETRY)

    def _until_next_pull(self, error: PullFailed) -> float:
        """Return the seconds until the image is asked for again. Raise HeldUp where nothing of the run is there yet,
        so that others can have its place meanwhile, and the error itself where asking again is of no use any more."""
        active = self._active
        left = self._made.pull_patience - active.pull_waited
        if not error.passing or left <= 0:
            raise error
        wait = min(max(active.pull_waited, PULL_PAUSE), LONGEST_PULL_PAUSE, left)
        active.pull_waited += wait
        if self._hosts.parts(self._run):
            return wait
        patience = show_duration(self._made.pull_patience)
        said = (
            f"{sentence(error.message)} It is asked again every few seconds for {patience}, and other jobs can have "
            f"its place until then. To see for yourself, on {error.host}: docker pull {error.image}"
        )
        raise HeldUp(Reason.PULLING_IMAGE, said, wait)

    async def _try(self) -> None:
        launch, there = self._launch, self._hosts.parts(self._run)
        if unseen := self._hosts.unseen(launch.hosts):
            raise DockerUnreachable(f"{unseen[0]}: parts of it may be running there", host="")
        missing = self._hosts.missing(launch.hosts)
        for part in self._removed(there):
            said = f"Its node {missing[0]} is no longer registered, so {NOT_KNOWN}" if missing else REMOVED
            self._active.failed[part] = _failed(launch, part, State.UNKNOWN, Reason.OUTCOME_UNKNOWN, said)
        if missing and set(missing) == set(launch.hosts):
            said = f"Its node {missing[0]} is no longer registered"
            if self.state in ASKED:
                raise StartFailed(State.UNKNOWN, Reason.OUTCOME_UNKNOWN, f"{said}, so {NOT_KNOWN}", missing[0])
            raise PenstockError(f"{said}.")
        await self._doubt()
        if wanted := self._to_start(there):
            await self._steps.start(launch, wanted, self._hosts_of(there), self._say, self._fresh)

    async def _doubt(self) -> None:
        """Do not start what may have run without Docker's knowing: of an array that index, of several nodes none."""
        for link in self._hosts.links():
            there = [seen for seen in link.of(self._run) if seen.prepared and seen.id not in self._fresh]
            for seen in await find_forgotten(link, [each for each in there if each.part not in self._active.failed]):
                error = start_in_doubt(seen.host)
                if self._launch.spec.array is None:
                    raise error
                self._active.failed[seen.part] = _failed(self._launch, seen.part, *_why(error))

    def _hosts_of(self, parts: Mapping[int, ContainerRecord]) -> list[str]:
        """Return the host of each place. Without any it is the first that answers, and afterwards always the same."""
        launch = self._launch
        if launch.hosts:
            found = list(launch.hosts)
        else:
            seen = next(iter(parts.values()), None)
            found = [seen.host if seen else self._hosts.first().host.name]
        return found + [found[-1]] * (max(len(launch.gpus), launch.spec.nodes) - len(found))

    async def _give_up(self, error: DockerError | PenstockError) -> None:
        """Let all that did not begin fail, and remove what was only created. In doubt that stays: without it, the next
        server would see nothing that could have run."""
        in_doubt = isinstance(error, StartFailed) and error.state is State.UNKNOWN
        for seen in self._hosts.parts(self._run).values():
            if not (seen.began or seen.gone or in_doubt):
                with suppress(DockerError):
                    await self._hosts.link(seen.host).remove(seen)
        self._active.given_up = True
        there, failed = self._hosts.parts(self._run), self._active.failed
        for part in self._launch.indexes or range(self._launch.spec.nodes):
            if part not in failed and not (part in there and there[part].began):
                failed[part] = _failed(self._launch, part, *_why(error))

    def _to_start(self, parts: Mapping[int, ContainerRecord]) -> list[tuple[int, int]]:
        """Return part and place of all that can start now: what has no container, or one that was only created."""
        launch, failed = self._launch, self._active.failed
        last = _last_made(launch, parts)
        open_ = [seen for seen in parts.values() if not seen.over and seen.part not in failed]
        waiting = [(seen.part, seen.place) for seen in open_ if seen.prepared]
        known = {*parts, *failed}
        if launch.spec.array is None:
            ranks = [(rank, rank) for rank in range(last + 1, launch.spec.nodes) if rank not in known]
            return sorted([*waiting, *ranks])
        closed = self._closed(parts)
        busy = {seen.place for seen in open_}
        busy |= {number for number, host in enumerate(launch.hosts) if host in closed}
        free = [number for number in range(max(len(launch.gpus), 1)) if number not in busy]
        left = [index for index in launch.indexes if index > last and index not in known]
        return [*waiting, *zip(left, free, strict=False)]

    def _closed(self, parts: Mapping[int, ContainerRecord]) -> list[str]:
        """Return the nodes where no further index begins: they are not registered any more, or in maintenance. A run
        that has not begun at all was placed there before that."""
        hosts = self._launch.hosts
        return [*self._hosts.missing(hosts), *(self._hosts.drained(hosts) if parts else ())]

    def _removed(self, parts: Mapping[int, ContainerRecord]) -> list[int]:
        """Return the parts that had a container which is not there any more."""
        last = _last_made(self._launch, parts)
        known = {*parts, *self._active.failed}
        every = self._launch.indexes or range(self._launch.spec.nodes)
        return [part for part in every if part <= last and part not in known]


def _last_made(launch: Launch, parts: Mapping[int, ContainerRecord]) -> int:
    """Return the last part that had a container when the newest of those that began did; -1: none."""
    if launch.spec.array is None:
        return launch.spec.nodes - 1 if any(seen.began for seen in parts.values()) else -1
    return max((names.number(seen.labels, Label.UP_TO, seen.part) for seen in parts.values() if seen.began), default=-1)


def _failed(launch: Launch, part: int, state: State, reason: Reason, message: str) -> Unit:
    unit = never_started(launch.attempt, part, array=launch.spec.array is not None, at=now())
    return unit.model_copy(update={"state": state, "reason": reason, "message": message})


def sentence(words: str) -> str:
    return words[:1].upper() + words[1:].rstrip(".") + "."


def _why(error: DockerError | PenstockError) -> tuple[State, Reason, str]:
    if isinstance(error, StartFailed):
        return error.state, error.reason, error.message
    if isinstance(error, PullFailed):
        return State.CRASHED, Reason.PULL_FAILED, sentence(error.message)
    ours = translate(error) if isinstance(error, DockerError) else error
    said = f"{ours.message} {ours.hint or ''}".strip()
    return State.CRASHED, Reason.LAUNCH_FAILED, said


@dataclass
class ActiveRun:
    launch: Launch | None = None
    start: RunStart | None = None
    steps: list[Step] = field(default_factory=list)
    """What it went through until it began."""
    grace: int | None = None
    """Told to stop, with so many seconds."""
    failed: dict[int, Unit] = field(default_factory=dict)
    """Parts that have no container, and why."""
    pull_waited: float = 0
    """Seconds it has waited between tries to pull its image."""
    given_up: bool = False
    """What has no container by now will never have one."""
    cancelled_at: datetime | None = None
    """When it was stopped before it began."""
    over_disk: dict[int, str] = field(default_factory=dict)
    """Parts that held too much on a disk."""
    told: set[str] = field(default_factory=set)
    """Containers that were told to end."""
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
