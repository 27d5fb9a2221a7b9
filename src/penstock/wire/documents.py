"""Answers: things as documents that `apply` takes again."""

from __future__ import annotations

from penstock.domain.model import Model
from penstock.wire.pages import Page


class DocumentView(Model):
    kind: str
    name: str
    group: str | None = None
    """Whose it is; users and groups are in none."""
    text: str
    """The document."""


class DocumentPage(Page):
    items: tuple[DocumentView, ...]
