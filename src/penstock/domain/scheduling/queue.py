"""Order the queue by priority, then fairly between groups, then first come first served.

Among equal priorities the group goes first that holds the smallest share of what there is, counted by the resource it
holds most of. Groups with equal shares, and the jobs of one group, go in the order in which they came.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from datetime import datetime
from heapq import merge

from penstock.domain.scheduling.demand import Ask, QueuedJob
from penstock.domain.scheduling.limits import Amount, UserUsage

Came = tuple[datetime, str]
"""The order in which jobs came: since when, and the id."""
Out = Mapping[tuple[int, str], Collection[str]]
"""Ids of jobs that cannot have a turn, for a limit or for want of a node; by priority downwards and group."""


def came(job: QueuedJob) -> Came:
    return job.since, job.id


class JobShape:
    """The jobs that ask for the same of the nodes, whoever's they are."""

    __slots__ = ("ask", "durations", "fits_ever")

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.durations: Counter[int | None] = Counter()
        self.fits_ever: tuple[int, bool] = (0, True)
        """Whether the nodes could run it, and in which generation of them that was found."""


class Lane:
    """Jobs of one kind and one user that last as long: where the first must wait, so must the others."""

    __slots__ = ("came", "jobs", "kind", "lasts")

    def __init__(self, kind: JobShape, lasts: int) -> None:
        self.kind = kind
        self.lasts = lasts
        self.jobs: list[QueuedJob] = []

    def add(self, job: QueuedJob) -> None:
        insort(self.jobs, job, key=came)
        self.came = came(self.jobs[0])

    def remove(self, job: QueuedJob) -> None:
        del self.jobs[bisect_left(self.jobs, came(job), key=came)]
        if self.jobs:
            self.came = came(self.jobs[0])


class Row:
    """Jobs of one group and priority as they came, with what the first of them would have: none, one, two and so on."""

    def __init__(self, jobs: list[QueuedJob]) -> None:
        self.jobs = jobs
        self._sums = [Amount()]

    def changed(self, place: int) -> None:
        """Note that the jobs are others from this one on."""
        del self._sums[place + 1 :]

    def turn(self, place: int, held: Amount, total: Amount) -> float:
        while len(self._sums) <= place:
            following = self._sums[-1].copy()
            following.expect(self.jobs[len(self._sums) - 1].ask)
            self._sums.append(following)
        return held.plus(self._sums[place]).share_of(total)

    def before(self, turn: tuple[float, Came], held: Amount, total: Amount) -> int:
        """Return how many of these have their turn before this one: the more of them have started, the later is the
        next."""
        places = range(len(self.jobs))
        return bisect_left(places, turn, key=lambda place: (self.turn(place, held, total), came(self.jobs[place])))


class WaitingJobs:
    """The jobs of one group and priority."""

    def __init__(self) -> None:
        self.jobs: list[QueuedJob] = []
        """As they came."""
        self._row = Row(self.jobs)
        self.lines: dict[JobShape, dict[tuple[str, int | None], Lane]] = {}
        """By user and max_duration."""

    def each_line(self) -> Iterator[Lane]:
        for alike in self.lines.values():
            yield from alike.values()

    def but(self, out: Container[str] | None) -> list[QueuedJob]:
        return [job for job in self.jobs if job.id not in out] if out else self.jobs

    def row(self, out: Container[str] | None) -> Row:
        return Row(self.but(out)) if out else self._row

    def add(self, kind: JobShape, job: QueuedJob) -> None:
        place = bisect_left(self.jobs, came(job), key=came)
        self.jobs.insert(place, job)
        self._row.changed(place)
        alike = self.lines.setdefault(kind, {})
        line = alike.get((job.user, job.max_duration))
        if line is None:
            line = alike[job.user, job.max_duration] = Lane(kind, job.lasts)
        line.add(job)

    def remove(self, kind: JobShape, job: QueuedJob) -> None:
        place = bisect_left(self.jobs, came(job), key=came)
        del self.jobs[place]
        self._row.changed(place)
        alike = self.lines[kind]
        line = alike[job.user, job.max_duration]
        line.remove(job)
        if not line.jobs:
            del alike[job.user, job.max_duration]
        if not alike:
            del self.lines[kind]


class Queue:
    def __init__(self) -> None:
        self.jobs: dict[str, QueuedJob] = {}
        self.waiting: dict[tuple[int, str], WaitingJobs] = {}
        """By priority downwards and group."""
        self._kinds: dict[Ask, JobShape] = {}
        self._kind_of: dict[str, JobShape] = {}
        self._key: Callable[[Ask], Ask] = lambda ask: ask

    def add(self, job: QueuedJob) -> None:
        self.jobs[job.id] = job
        ask = self._key(job.ask)
        kind = self._kinds.get(ask)
        if kind is None:
            kind = self._kinds[ask] = JobShape(ask)
        self._kind_of[job.id] = kind
        kind.durations[job.max_duration] += 1
        self.waiting.setdefault((-job.priority, job.group), WaitingJobs()).add(kind, job)

    def remove(self, workload_id: str) -> None:
        job = self.jobs.pop(workload_id)
        kind = self._kind_of.pop(workload_id)
        waiting = self.waiting[-job.priority, job.group]
        waiting.remove(kind, job)
        if not waiting.jobs:
            del self.waiting[-job.priority, job.group]
        kind.durations[job.max_duration] -= 1
        if not kind.durations[job.max_duration]:
            del kind.durations[job.max_duration]
        if not kind.durations:
            del self._kinds[kind.ask]

    def sort_by(self, key: Callable[[Ask], Ask]) -> None:
        """Sort all jobs anew: which asks are the same depends on the nodes there are."""
        jobs = list(self.jobs.values())
        self.jobs, self.waiting, self._kinds = {}, {}, {}
        self._key = key
        for job in jobs:
            self.add(job)

    def order(self, usage: UserUsage, total: Amount, out: Out) -> Iterator[QueuedJob]:
        """Yield all but `out` in order, as if each had its turn and started."""
        for priority in sorted({priority for priority, _ in self.waiting}):
            turns = [
                _turns(found.but(out.get((each, group))), usage.of(group), total)
                for (each, group), found in self.waiting.items()
                if each == priority
            ]
            yield from (job for _, _, job in merge(*turns))

    def before(self, job: QueuedJob, usage: UserUsage, total: Amount, out: Out) -> int:
        """Return how many would have their turn before a job that is not among them.

        This is asked for each that comes, however many there are: none is gone through that need not be.
        """
        own = self.waiting.get((-job.priority, job.group), WaitingJobs())
        row = own.row(out.get((-job.priority, job.group)))
        mine = row.turn(bisect_left(row.jobs, came(job), key=came), usage.of(job.group), total), came(job)
        found = 0
        for (priority, group), waiting in self.waiting.items():
            kept_out = out.get((priority, group))
            if priority < -job.priority:
                found += len(waiting.jobs) - len(kept_out or ())
            elif priority == -job.priority:
                found += waiting.row(kept_out).before(mine, usage.of(group), total)
        return found


def _turns(jobs: Iterable[QueuedJob], held: Amount, total: Amount) -> Iterator[tuple[float, Came, QueuedJob]]:
    """Yield the turns of one group and priority: each job has its turn the later, the more those before it have."""
    held = held.copy()
    for job in jobs:
        yield held.share_of(total), came(job), job
        held.expect(job.ask)
