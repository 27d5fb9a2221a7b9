"""Answers about users, groups and the audit."""

from __future__ import annotations

from penstock.domain.audit import AuditEntry
from penstock.domain.model import Model
from penstock.domain.users import Group, User
from penstock.wire.pages import Page


class FirstAdmin(Model):
    user: str
    token: str
    """Shown this once; only its hash is kept."""


class UserPage(Page):
    items: tuple[User, ...]


class GroupPage(Page):
    items: tuple[Group, ...]


class AuditPage(Page):
    items: tuple[AuditEntry, ...]
