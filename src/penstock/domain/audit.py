"""Entry: one line of who did what."""

from __future__ import annotations

from penstock.domain.model import Model, Time


class Entry(Model):
    at: Time
    user: str
    verb: str
    kind: str
    group: str = ""
    name: str = ""
    id: str = ""
    result: str = "done"
    """`done` or `denied`."""
    detail: str | None = None
