"""Users: who is asking, how we know, and which account their work runs as."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from penstock.domain.model import Model, Whole
from penstock.domain.policy import SERVER_KINDS, Kind, Rights, Verb, refusal
from penstock.errors import Forbidden

LARGEST_UID = 2**32 - 2


class Proof(StrEnum):
    """The evidence of who is asking."""

    socket = "socket"
    token = "token"
    header = "header"


class Account(Model):
    """The Unix account a workload runs as and its files belong to; never 0 when a sandbox is used."""

    uid: int
    gid: int
    user: str


class Membership(Model):
    """What a user may do in one group, as it was written: kind → verbs, or `pwm.all`."""

    name: str
    policy: dict[str, tuple[str, ...]] | Literal["pwm.all"]


class User(Model):
    name: str
    groups: tuple[Membership, ...] = ()
    """What they make belongs to the first, unless they say otherwise."""
    active: bool = True
    uid: Whole | None = None
    """The Unix account of this user, where work runs as the caller's own account."""


class Limits(Model):
    """The most that may run or be held at once; None is no limit. Beyond it a job waits, a volume is refused."""

    gpus: Whole | None = None
    cpus_milli: Whole | None = None
    workloads: Whole | None = None
    volume_bytes: Whole | None = None


class Group(Model):
    name: str
    limits: Limits = Limits()
    """For all its members together."""
    limits_each: Limits = Limits()
    """For each of its members."""
    max_priority: Whole = Field(default=0, ge=0, le=1000)
    """The highest priority its workloads may have; any lower one is allowed."""
    max_duration: Whole | None = None
    """Seconds, for a workload that names none."""
    idle_timeout: Whole | None = None
    """Seconds GPUs may do nothing before their holder is told."""
    stop_idle: bool = False
    """Idle workloads are stopped, too."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The user who makes a request, and their rights. Each user has a group of their own name, to which what they make
    belongs unless a policy says otherwise."""

    user: str
    proof: Proof
    uid: int | None = None
    gid: int | None = None
    runs_server: bool = False
    """The uid that runs the server, proven by kernel or token: the admin until the first user is defined."""
    written: Rights | None = None
    """Rights that the policies give; None while there are no policies."""
    until: datetime | None = None
    """When the proof ends: no token they make lasts longer."""
    token: str | None = None
    """The id of the token they showed."""
    chosen: str | None = None
    """The one group this request is about."""
    everything: bool = False
    """The request is about all groups they may see, not only about theirs."""
    rights: Rights = field(init=False, compare=False)

    def __post_init__(self) -> None:
        believed = self.proof is not Proof.header
        rights = self.written or Rights.own(self.user, admin=self.runs_server and believed, tokens=believed)
        object.__setattr__(self, "rights", rights)

    @property
    def group(self) -> str:
        """The group of what this request makes."""
        return self.chosen or self.rights.home

    @property
    def admin(self) -> bool:
        return self.rights.admin

    def may(self, verb: Verb, kind: Kind, group: str | None = None) -> bool:
        """May they in this group, else in the chosen one, else in any? What belongs to no group is asked of none."""
        return self.rights.may(verb, kind, None if kind in SERVER_KINDS else group or self.chosen)

    def require(self, verb: Verb, kind: Kind, group: str | None = None) -> None:
        """Raise Forbidden if they may not in this group or, where none is named, in the one they make things in."""
        where = group or self.group
        if not self.rights.may(verb, kind, where):
            raise Forbidden(refusal(verb, kind, f"in group {where}"))

    def refusal(self, verb: Verb, kind: Kind) -> str:
        """Say that they may not, in the chosen group or, if none was chosen, in any."""
        return refusal(verb, kind, f"in group {self.chosen}" if self.chosen and kind not in SERVER_KINDS else None)

    def reaches(self, verb: Verb, kind: Kind, group: str) -> bool:
        """Is this request about things of that group, and may they do this to them?"""
        return self.chosen in (None, group) and self.rights.may(verb, kind, group)

    def everywhere(self, verb: Verb, kind: Kind) -> bool:
        return (verb, kind) in self.rights.everywhere

    def where(self, verb: Verb, kind: Kind) -> tuple[str, ...]:
        """Return those of their groups that this request may reach."""
        if self.chosen is None:
            return self.rights.where(verb, kind)
        return (self.chosen,) if self.rights.may(verb, kind, self.chosen) else ()

    def listed(self, kind: Kind) -> tuple[str, ...] | None:
        """Return the groups a list shows; None is all there are."""
        all_groups = self.everything and self.chosen is None and self.everywhere(Verb.get, kind)
        return None if all_groups else self.where(Verb.get, kind)
