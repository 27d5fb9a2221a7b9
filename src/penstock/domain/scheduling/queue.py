"""Who waits, and whose turn it is: by priority, then fair between groups, then first come first served.

Among equal priorities the group goes first that holds the smallest share of what there is, counted by the resource it
holds most of. Groups with equal shares, and the jobs of one group, go in the order in which they came.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from heapq import heapify, heappop, heapreplace

from penstock.domain.scheduling.asks import Ask, Job
from penstock.domain.scheduling.limits import Amount, Usage

Came = tuple[datetime, str]
"""First come, first served: since when, and the id."""


def came(job: Job) -> Came:
    return job.since, job.id


class Kind:
    """All that ask for the same of the nodes, whoever they are."""

    __slots__ = ("ask", "durations")

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.durations: Counter[int | None] = Counter()


class Line:
    """Jobs of one kind and one user that last as long: where the first must wait, so must the others."""

    __slots__ = ("came", "jobs", "kind", "lasts")

    def __init__(self, kind: Kind, lasts: int) -> None:
        self.kind = kind
        self.lasts = lasts
        self.jobs: list[Job] = []

    def add(self, job: Job) -> None:
        insort(self.jobs, job, key=came)
        self.came = came(self.jobs[0])

    def remove(self, job: Job) -> None:
        del self.jobs[bisect_left(self.jobs, came(job), key=came)]
        if self.jobs:
            self.came = came(self.jobs[0])


class Waiting:
    """The jobs of one group and priority."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        """As they came."""
        self.lines: dict[Kind, dict[tuple[str, int | None], Line]] = {}
        """By user and max_duration."""

    def add(self, kind: Kind, job: Job) -> None:
        insort(self.jobs, job, key=came)
        alike = self.lines.setdefault(kind, {})
        line = alike.get((job.user, job.max_duration))
        if line is None:
            line = alike[job.user, job.max_duration] = Line(kind, job.lasts)
        line.add(job)

    def remove(self, kind: Kind, job: Job) -> None:
        del self.jobs[bisect_left(self.jobs, came(job), key=came)]
        alike = self.lines[kind]
        line = alike[job.user, job.max_duration]
        line.remove(job)
        if not line.jobs:
            del alike[job.user, job.max_duration]
        if not alike:
            del self.lines[kind]


class Queue:
    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.waiting: dict[tuple[int, str], Waiting] = {}
        """By priority downwards and group."""
        self._kinds: dict[Ask, Kind] = {}
        self._kind_of: dict[str, Kind] = {}
        self._key: Callable[[Ask], Ask] = lambda ask: ask

    def add(self, job: Job) -> None:
        self.jobs[job.id] = job
        ask = self._key(job.ask)
        kind = self._kinds.get(ask)
        if kind is None:
            kind = self._kinds[ask] = Kind(ask)
        self._kind_of[job.id] = kind
        kind.durations[job.max_duration] += 1
        self.waiting.setdefault((-job.priority, job.group), Waiting()).add(kind, job)

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
        """What is the same to ask for depends on the nodes there are."""
        jobs = list(self.jobs.values())
        self.jobs, self.waiting, self._kinds = {}, {}, {}
        self._key = key
        for job in jobs:
            self.add(job)

    def order(self, usage: Usage, total: Amount) -> Iterator[Job]:
        """All of them, as if each had its turn and started."""
        for priority in sorted({priority for priority, _ in self.waiting}):
            waiting = {group: iter(found.jobs) for (each, group), found in self.waiting.items() if each == priority}
            held = {group: usage.of(group).copy() for group in waiting}
            firsts = ((group, next(jobs)) for group, jobs in waiting.items())
            heap = [(held[group].share_of(total), *came(job), group, job) for group, job in firsts]
            heapify(heap)
            while heap:
                *_, group, job = heap[0]
                yield job
                held[group].expect(job.ask)
                following = next(waiting[group], None)
                if following:
                    heapreplace(heap, (held[group].share_of(total), *came(following), group, following))
                else:
                    heappop(heap)
