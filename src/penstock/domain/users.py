"""Users: who is asking, how we know, and which account their work runs as."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from penstock.domain.model import Model, Whole
from penstock.domain.policy import EVERYTHING, OF_NO_GROUP, SHARED_GROUP, Kind, Rights, Verb, refusal
from penstock.errors import Forbidden

__all__ = ["EVERYTHING", "SHARED_GROUP", "Account", "Caller", "Group", "Limits", "Membership", "Proof", "User"]


LARGEST_UID = 2**32 - 2


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


class Membership(Model):
    """What a user may do in one group, in the words it was written in: kind → verbs, or `pwm.all`."""

    name: str
    policy: dict[str, tuple[str, ...]] | Literal["pwm.all"]


class User(Model):
    name: str
    groups: tuple[Membership, ...] = ()
    """The first is where what they make belongs, unless they say otherwise."""
    active: bool = True
    uid: Whole | None = None
    """The Unix account that is this user, where work runs as the caller's own."""


class Limits(Model):
    """What may run or be held at once; None is no limit. Beyond it a job waits, a volume is refused."""

    gpus: Whole | None = None
    cpus_milli: Whole | None = None
    workloads: Whole | None = None
    volume_bytes: Whole | None = None


class Group(Model):
    name: str
    limits: Limits = Limits()
    """Of all its members together."""
    limits_each: Limits = Limits()
    """Of each of them."""
    max_priority: Whole = Field(default=0, ge=0, le=1000)
    """The highest its workloads may have; lower than others any may be."""
    max_duration: Whole | None = None
    """Seconds of a workload that says none."""
    idle_timeout: Whole | None = None
    """Seconds GPUs may do nothing before their holder is told."""
    stop_idle: bool = False
    """And stopped."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The one who asks, and what they may. Each user has a group of their own name; unless a policy says otherwise,
    that is the group of what they make."""

    user: str
    proof: Proof
    uid: int | None = None
    gid: int | None = None
    runs_server: bool = False
    """The uid that runs the server, proven by kernel or token: the admin before any user is written down."""
    written: Rights | None = None
    """What the policies say; None: there are none yet."""
    until: datetime | None = None
    """When what proves it ends: nothing they make to prove it again lasts longer."""
    token: str | None = None
    """The id of the token that proves it."""
    chosen: str | None = None
    """The one group this request is about."""
    everything: bool = False
    """Is it about all groups they may see, not only about theirs?"""
    rights: Rights = field(init=False, compare=False)

    def __post_init__(self) -> None:
        believed = self.proof is not Proof.header
        rights = self.written or Rights.own(self.user, admin=self.runs_server and believed, tokens=believed)
        object.__setattr__(self, "rights", rights)

    @property
    def group(self) -> str:
        """Where what they make now belongs."""
        return self.chosen or self.rights.home

    @property
    def admin(self) -> bool:
        return self.rights.admin

    def may(self, verb: Verb, kind: Kind, group: str | None = None) -> bool:
        """In this group, else in the chosen one, else in any; what belongs to no group is asked of none."""
        return self.rights.may(verb, kind, None if kind in OF_NO_GROUP else group or self.chosen)

    def require(self, verb: Verb, kind: Kind, group: str | None = None) -> None:
        """Forbidden, if they may not in this group or, where none is named, in the one they make things in."""
        where = group or self.group
        if not self.rights.may(verb, kind, where):
            raise Forbidden(refusal(verb, kind, f"in group {where}"))

    def refusal(self, verb: Verb, kind: Kind) -> str:
        """Say that they may not, in the chosen group or, if none was chosen, in any."""
        return refusal(verb, kind, f"in group {self.chosen}" if self.chosen and kind not in OF_NO_GROUP else None)

    def reaches(self, verb: Verb, kind: Kind, group: str) -> bool:
        """Is this request about things of that group, and may they do this to them?"""
        return self.chosen in (None, group) and self.rights.may(verb, kind, group)

    def everywhere(self, verb: Verb, kind: Kind) -> bool:
        return (verb, kind) in self.rights.everywhere

    def where(self, verb: Verb, kind: Kind) -> tuple[str, ...]:
        """The groups of theirs this request may reach."""
        if self.chosen is None:
            return self.rights.where(verb, kind)
        return (self.chosen,) if self.rights.may(verb, kind, self.chosen) else ()

    def listed(self, kind: Kind) -> tuple[str, ...] | None:
        """The groups a list shows; None is all there are."""
        all_groups = self.everything and self.chosen is None and self.everywhere(Verb.get, kind)
        return None if all_groups else self.where(Verb.get, kind)
