"""What is wrong with a text of documents: every problem of it, and all in it that its sender may not do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.dialects.documents import Document, Whole, identity
from penstock.dialects.yaml import in_order, invalid
from penstock.domain.audit import Deed
from penstock.domain.names import shorten
from penstock.errors import Forbidden, Invalid, Problem
from penstock.services.resolving import NOT_MADE

LOST = (
    "Volume {} not found",
    NOT_MADE,
    "Task {} not found",
    "Storage {} not found",
    "Group {} not found",
    "there is no group '{}'",
)
"""How others say that what they need is not there."""


@dataclass(frozen=True)
class Findings:
    source: str
    read: Whole
    problems: list[Problem] = field(default_factory=list)
    """Of those that could be read, beyond the text."""
    refused: list[tuple[Document, Deed, Forbidden]] = field(default_factory=list)

    @contextmanager
    def of(self, document: Document, deed: Deed) -> Iterator[None]:
        """Keeps what is wrong with this one, so that the next can be looked at."""
        try:
            yield
        except Invalid as error:
            self.problems.extend(error.problems)
        except Forbidden as error:
            self.refused.append((document, deed, error))

    @property
    def error(self) -> Forbidden | Invalid | None:
        """One sentence for all of it. Who may not do it is told that and what is wrong with the text, and no more."""
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
        """Without what is not found because the document that makes it is not right."""
        lost = {said.format(shorten(name)) for name in self.read.doubtful for said in LOST}
        return [problem for problem in self.problems if problem["message"] not in lost]


def _problem(document: Document, error: Forbidden) -> Problem:
    _, _, _, (where, named) = identity(document)
    return Problem(error.message, where=where, field=named, hint=error.hint)
