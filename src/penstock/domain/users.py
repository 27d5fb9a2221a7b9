"""User: who is asking, how we know, and as whom their work runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

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


EVERYTHING = "pwm.all"
"""As a policy: every verb on every kind. As a group: all of them."""
SHARED_GROUP = "pwm.resource"
"""What belongs to it is there for all its members: nodes, storages, datasets."""


class Membership(Model):
    """What a user may do in one group, in the words it was written in: kind → verbs, or `pwm.all`."""

    name: str
    policy: dict[str, tuple[str, ...]] | Literal["pwm.all"]


class User(Model):
    name: str
    groups: tuple[Membership, ...] = ()
    """The first is where what they make belongs, unless they say otherwise."""
    active: bool = True
    uid: int | None = None
    """The Unix account that is this user, where work runs as the caller's own."""


class Limits(Model):
    """What may run or be held at once; None is no limit. Beyond it a job waits, a volume is refused."""

    gpus: int | None = None
    cpus_milli: int | None = None
    workloads: int | None = None
    volume_bytes: int | None = None


class Group(Model):
    name: str
    limits: Limits = Limits()
    """Of all its members together."""
    limits_each: Limits = Limits()
    """Of each of them."""
    max_duration: int | None = None
    """Seconds of a workload that says none."""
    idle_timeout: int | None = None
    """Seconds GPUs may do nothing before their holder is told."""
    stop_idle: bool = False
    """And stopped."""


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
