"""What is wrong with a text of documents: every problem of it, and all in it that its sender may not do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.dialects.documents import Document, identity
from penstock.domain.audit import Deed
from penstock.errors import Forbidden, Invalid, Problem


@dataclass(frozen=True)
class Findings:
    source: str
    documents: int
    """So many are in it."""
    problems: list[Problem] = field(default_factory=list)
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
        """One sentence for all of it. Who may not do it is told that and no more."""
        said = f"{self.source} cannot be applied; nothing was changed."
        if self.refused and self.documents == 1:
            return self.refused[0][2]
        if self.refused:
            return Forbidden(said, problems=[_problem(document, error) for document, _, error in self.refused])
        return Invalid(said, problems=self.problems) if self.problems else None


def _problem(document: Document, error: Forbidden) -> Problem:
    _, _, _, (where, named) = identity(document)
    return Problem(error.message, where=where, field=named, hint=error.hint)
