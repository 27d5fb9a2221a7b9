"""In which order the workloads of a text are made: after those of it that they wait for, else as they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from penstock.dialects.document.types import NounDocument
from penstock.dialects.documents import Document, identity
from penstock.dialects.manifest.read import ManifestVolume
from penstock.errors import Problem

NAMED = 10
"""So many of a circle are named."""


def by_dependency(documents: Sequence[Document], home: str) -> tuple[list[int], list[Problem]]:
    """Numbers of the workloads, without those that would wait for themselves; these are problems. `home` is the group
    of those that name none."""
    waits = _waits(documents, home)
    left = {number: len(others) for number, others in waits.items()}
    followers: dict[int, list[int]] = {number: [] for number in waits}
    for number, others in waits.items():
        for other in others:
            followers[other].append(number)
    ready = [number for number, count in left.items() if not count]
    heapify(ready)
    order = []
    while ready:
        order.append(number := heappop(ready))
        del left[number]
        for follower in followers[number]:
            left[follower] -= 1
            if not left[follower]:
                heappush(ready, follower)
    circles = _circles({number: next(other for other in waits[number] if other in left) for number in left})
    return order, [_cycle([documents[number] for number in circle]) for circle in circles]


def _waits(documents: Sequence[Document], home: str) -> dict[int, list[int]]:
    """Number of each workload → those of the text that it waits for."""
    jobs = {n: each for n, each in enumerate(documents) if not isinstance(each, ManifestVolume | NounDocument)}
    known = {identity(job, home)[1:3]: number for number, job in jobs.items()}
    return {
        number: [
            known[there]
            for ref in dict.fromkeys(job.task.spec.after)
            if (there := (identity(job, home)[1], ref)) in known
        ]
        for number, job in jobs.items()
    }


def _circles(waits: Mapping[int, int]) -> list[list[int]]:
    """Of those of which each waits for another of them."""
    seen: set[int] = set()
    circles = []
    for start in waits:
        way: dict[int, int] = {}
        at = start
        while at not in seen:
            seen.add(at)
            way[at] = len(way)
            at = waits[at]
        if at in way:
            circles.append(list(way)[way[at] :])
    return circles


def _cycle(circle: Sequence[Document]) -> Problem:
    names = [identity(each)[2] for each in circle]
    shown = [*names[:NAMED], *(["…"] if len(names) > NAMED else []), names[0]]
    first = circle[0]
    assert not isinstance(first, ManifestVolume | NounDocument)
    said = f"could never start: {shown[0]} waits for {', which waits for '.join(shown[1:])}"
    return Problem(
        said, where=first.task.where("after"), field=first.task.field("after"), hint="leave one of these out"
    )
