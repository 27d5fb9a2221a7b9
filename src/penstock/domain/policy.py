"""Who may do which verb on which kind. Deny is the default; every route asks `allowed` through one table."""

from __future__ import annotations

from enum import StrEnum

from penstock.domain.users import Caller, Proof


class Kind(StrEnum):
    Workload = "Workload"
    Volume = "Volume"
    Node = "Node"
    Storage = "Storage"
    Token = "Token"
    Server = "Server"
    User = "User"


class Verb(StrEnum):
    get = "get"
    create = "create"
    update = "update"
    delete = "delete"
    stop = "stop"
    logs = "logs"
    exec = "exec"
    """Start a program inside: a shell in a job, or on a volume."""
    all_groups = "all_groups"
    """See or stop what belongs to others: an admin's verb."""
    public = "public"
    """Answers nothing that belongs to anyone: no identity is asked for."""


ADMIN_VERBS = frozenset({Verb.all_groups})
OWN_GROUP: dict[Kind, frozenset[Verb]] = {
    Kind.Workload: frozenset({Verb.get, Verb.create, Verb.delete, Verb.stop, Verb.logs, Verb.exec}),
    Kind.Volume: frozenset({Verb.get, Verb.create, Verb.update, Verb.delete, Verb.exec}),
    Kind.Node: frozenset({Verb.get}),
    Kind.Storage: frozenset({Verb.get}),
    Kind.Token: frozenset({Verb.get, Verb.create, Verb.delete}),
    Kind.Server: frozenset({Verb.get}),
    Kind.User: frozenset({Verb.get}),
}
"""What everyone may do in the group of their own name, until policies are written."""


def allowed(caller: Caller, verb: Verb, kind: Kind) -> bool:
    """May the caller do this in their own group (or, for admin verbs, at all)?"""
    if verb in ADMIN_VERBS:
        return is_admin(caller)
    if kind is Kind.Token and caller.proof is Proof.header:
        return False  # a name somebody wrote must not outlive the server it was written to
    return verb in OWN_GROUP[kind]


def is_admin(caller: Caller) -> bool:
    """The uid that runs the server. A name somebody merely wrote in a header never is."""
    return caller.runs_server and caller.proof is not Proof.header
