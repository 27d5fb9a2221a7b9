"""Answers about the server, its users and groups, their tokens and the audit."""

from __future__ import annotations

from penstock.domain.audit import AuditEntry
from penstock.domain.model import Model, Time
from penstock.domain.users import Group, Proof, User
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


class Health(Model):
    status: str = "ok"
    service: str
    version: str


class Whoami(Model):
    user: str
    group: str
    admin: bool
    proof: Proof
    uid: int | None


class ServerView(Model):
    version: str
    pid: int
    mode: str
    engine: str
    socket: str
    address: str | None
    problem: str | None = None
    """Why it has no address over TCP."""
    auth: str
    data_dir: str
    started_at: Time


class Check(Model):
    """One line of `penstock doctor`."""

    name: str
    ok: bool
    detail: str
    fix: str | None = None
    required: bool = True
    node: str | None = None
    """The one it is about: told only to those who may see it."""


class CheckList(Model):
    checks: tuple[Check, ...]


class TokenView(Model):
    id: str
    user: str
    description: str
    created_at: Time
    expires_at: Time | None = None
    last_used_at: Time | None = None


class NewTokenView(TokenView):
    token: str
    """Shown this once; only its hash is kept."""


class TokenPage(Page):
    items: tuple[TokenView, ...]
