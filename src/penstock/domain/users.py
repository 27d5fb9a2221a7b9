"""User: who is asking, how we know, and as whom their work runs."""

from __future__ import annotations

from enum import StrEnum

from penstock.domain.model import Model


class Proof(StrEnum):
    """What told us who is asking."""

    socket = "socket"
    token = "token"
    header = "header"


class Account(Model):
    """The Unix account a workload runs as and its files belong to; never 0 when a sandbox is used."""

    uid: int
    gid: int
    user: str


class Caller(Model):
    """The one who asks. Each user has a group of their own name; that is the group of what they make."""

    user: str
    proof: Proof
    uid: int | None = None
    gid: int | None = None
    runs_server: bool = False
    """The uid that runs the server, proven by kernel or token: the admin before any policy is written."""

    @property
    def group(self) -> str:
        return self.user
