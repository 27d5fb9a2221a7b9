"""Audit entries: who did what, and the result."""

from __future__ import annotations

from typing import NamedTuple

from penstock.domain.model import Model, Time
from penstock.domain.policy import Kind, Verb


class Deed(NamedTuple):
    verb: Verb
    kind: Kind
    group: str = ""
    name: str = ""


class AuditEntry(Model):
    at: Time
    user: str
    verb: str
    kind: str
    group: str = ""
    name: str = ""
    id: str = ""
    result: str = "done"
    """`done`, `denied`, or `failed` after it was begun."""
    detail: str | None = None
