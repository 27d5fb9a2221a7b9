"""Collect every problem of a text, what its sender may not do, and the order to apply it in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from penstock.dialects.document.types import NounDocument
from penstock.dialects.documents import Document, ReadResult, identity
from penstock.dialects.manifest.read import ManifestVolume
from penstock.dialects.yaml import in_order, invalid
from penstock.domain.audit import Deed
from penstock.domain.names import shorten
from penstock.errors import Forbidden, Invalid, Problem
from penstock.services.workloads.references import NOT_MADE

LOST = (
    "Volume {} not found",
    NOT_MADE,
    "Task {} not found",
    "Storage {} not found",
    "Group {} not found",
    "there is no group '{}'",
)
"""How a document says that what it needs is not there."""


@dataclass(frozen=True)
class Findings:
    source: str
    read: ReadResult
    problems: list[Problem] = field(default_factory=list)
    """The problems of documents that could be read, beside those of the text."""
    refused: list[tuple[Document, Deed, Forbidden]] = field(default_factory=list)

    @contextmanager
    def of(self, document: Document, deed: Deed) -> Iterator[None]:
        """Keep what is wrong with this document, so that the next can be looked at."""
        try:
            yield
        except Invalid as error:
            self.problems.extend(error.problems)
        except Forbidden as error:
            self.refused.append((document, deed, error))

    @property
    def error(self) -> Forbidden | Invalid | None:
        """Return one error for all that is wrong. Who may not do something is told that and what is wrong with the
        text, and no more."""
        said = f"{self.source} cannot be applied; nothing was changed."
        unread = self.read.problems
        if self.refused and len(self.read.documents) == 1 and not unread:
            return self.refused[0][2]
        if self.refused:
            refused = [_problem(document, error) for document, _, error in self.refused]
            return Forbidden(said, problems=in_order([*unread, *refused]))
        if unread:
            return invalid(self.source, [*unread, *self._certain])
        return Invalid(said, problems=in_order(self.problems)) if self.problems else None

    @property
    def _certain(self) -> list[Problem]:
        """Return the problems without those that follow from others: what is not found because the document that makes
        it is wrong."""
        lost = {said.format(shorten(name)) for name in self.read.doubtful for said in LOST}
        return [problem for problem in self.problems if problem["message"] not in lost]


def _problem(document: Document, error: Forbidden) -> Problem:
    _, _, _, (where, named) = identity(document)
    return Problem(error.message, where=where, field=named, hint=error.hint)


NAMED = 10
"""How many of a circle are named."""


def by_dependency(documents: Sequence[Document], home: str) -> tuple[list[int], list[Problem]]:
    """Return the numbers of the workloads in an order in which none waits for a later one, and the circles as problems.
    `home` is the group of those that name none."""
    waits = _waits(documents, home)
    sorter = TopologicalSorter(waits)
    with suppress(CycleError):
        sorter.prepare()
    order: list[int] = []
    ready: list[int] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heappush(ready, number)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return order, [_cycle([documents[number] for number in circle]) for circle in _circles(waits)]


def _waits(documents: Sequence[Document], home: str) -> dict[int, list[int]]:
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


def _circles(waits: Mapping[int, Collection[int]]) -> list[list[int]]:
    """Return the circles of workloads that wait for each other, each from its first in the text."""
    circles: list[list[int]] = []
    while True:
        try:
            TopologicalSorter(waits).prepare()
            return sorted(circles)
        except CycleError as error:
            circle: list[int] = error.args[1][:0:-1]
        first = circle.index(min(circle))
        circles.append(circle[first:] + circle[:first])
        waits = {number: set(others) - set(circle) for number, others in waits.items() if number not in circle}


def _cycle(circle: Sequence[Document]) -> Problem:
    names = [identity(each)[2] for each in circle]
    shown = [*names[:NAMED], *(["…"] if len(names) > NAMED else []), names[0]]
    first = circle[0]
    assert not isinstance(first, ManifestVolume | NounDocument)
    said = f"could never start: {shown[0]} waits for {', which waits for '.join(shown[1:])}"
    return first.task.problem(said, "after", hint="leave one of these out")
