"""Permissions: who may do which verb on which kind in which group. The default is to deny."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

EVERYTHING: Final = "pwm.all"
"""As a policy: every verb on every kind. As a group: all of them."""
SHARED_GROUP = "pwm.resource"
"""The group whose nodes, storages and datasets are there for all its members."""


class Kind(StrEnum):
    Workload = "Workload"
    Volume = "Volume"
    Node = "Node"
    GPU = "GPU"
    CPU = "CPU"
    Storage = "Storage"
    Group = "Group"
    User = "User"
    Token = "Token"
    Audit = "Audit"
    Server = "Server"


class Verb(StrEnum):
    get = "get"
    create = "create"
    update = "update"
    delete = "delete"
    stop = "stop"
    logs = "logs"
    inspect = "inspect"
    """See all that the engine knows of it, and what it uses now."""
    exec = "exec"
    """Start a program inside or reach one: a shell in a job or on a volume, a port."""
    use = "use"
    """Run on a node, keep volumes on a storage."""
    public = "public"
    """Asks for no identity: the answer holds nothing that belongs to anyone."""


def refusal(verb: Verb, kind: Kind, where: str | None = None) -> str:
    """Say what somebody may not do: `You may not read logs in group vision.`"""
    what = ACTIONS.get((verb, kind)) or f"{VERBS.get(verb, verb)} {THINGS.get(kind) or f'{kind.lower()}s'}"
    return f"You may not {what} {where or ('on this server' if kind in SERVER_KINDS else 'in any of your groups')}."


VERBS = {Verb.get: "see", Verb.update: "change"}
THINGS = {Kind.GPU: "GPUs", Kind.CPU: "CPUs", Kind.Audit: "the audit", Kind.Server: "the server"}
ACTIONS = {
    (Verb.logs, Kind.Workload): "read logs",
    (Verb.exec, Kind.Workload): "run programs in workloads",
    (Verb.exec, Kind.Volume): "open shells on volumes",
    (Verb.use, Kind.Node): "run workloads on nodes",
    (Verb.use, Kind.Storage): "keep volumes on storages",
    (Verb.get, Kind.Audit): "read the audit",
    (Verb.get, Kind.Server): "see anything",
    (Verb.stop, Kind.Server): "stop or restart the server",
    (Verb.inspect, Kind.Server): "read the metrics",
}


Right = tuple[Verb, Kind]
Policy = Mapping[str, Iterable[str]] | Literal["pwm.all"]

_ALL = frozenset((verb, kind) for verb in Verb for kind in Kind)

WORDS: dict[str, frozenset[Verb]] = {
    "get": frozenset({Verb.get}),
    "getOne": frozenset({Verb.get}),
    "describe": frozenset({Verb.get, Verb.logs, Verb.inspect}),
    "apply": frozenset({Verb.create, Verb.update}),
    "delete": frozenset({Verb.delete}),
    "cancel": frozenset({Verb.stop}),
    "stop": frozenset({Verb.stop}),
    "shell": frozenset({Verb.exec}),
    "logs": frozenset({Verb.logs}),
    "inspect": frozenset({Verb.inspect}),
    "top": frozenset({Verb.inspect}),
    "upload": frozenset({Verb.update}),
    "download": frozenset({Verb.get}),
    "token": frozenset(),
    "use": frozenset({Verb.use}),
    EVERYTHING: frozenset(Verb),
}
"""The verbs that each word of a policy gives: PWM's words, and those of the code it describes."""

IMPLIED: dict[Right, frozenset[Right]] = {
    (Verb.get, Kind.Node): frozenset({(Verb.get, Kind.GPU), (Verb.get, Kind.CPU)}),
    (Verb.get, Kind.GPU): frozenset({(Verb.get, Kind.Node), (Verb.use, Kind.Node)}),
    (Verb.get, Kind.CPU): frozenset({(Verb.get, Kind.Node), (Verb.use, Kind.Node)}),
    (Verb.get, Kind.Storage): frozenset({(Verb.use, Kind.Storage), (Verb.get, Kind.Volume)}),
    (Verb.exec, Kind.Workload): frozenset({(Verb.get, Kind.Workload)}),
}
"""Rights that come with another: who sees GPUs may run on them, who sees a storage may use it and see what is on it.
PWM's sample user has just these words, and runs every example with them."""

SERVER_KINDS = frozenset({Kind.User, Kind.Group, Kind.Token, Kind.Audit, Kind.Server})
"""Kinds that belong to the whole server: only a policy in the group `pwm.all` gives rights on them."""

INFRASTRUCTURE_RIGHTS = frozenset(
    (verb, kind) for verb in (Verb.create, Verb.update, Verb.delete) for kind in (Kind.Node, Kind.Storage)
)
"""Rights that only a policy in the group `pwm.all` gives, whichever group the object is in: a node is reached with the
server's own keys, and a storage can contain another one, so whoever defines one could reach anything."""

OWN_TOKENS = frozenset((verb, Kind.Token) for verb in (Verb.get, Verb.create, Verb.delete))

PERSONAL_RIGHTS = OWN_TOKENS | {(Verb.get, Kind.Server)}
"""Rights of every known user, in no group in particular: their own tokens, and what this server is."""

SHARED_RIGHTS = frozenset(
    {
        *((Verb.get, kind) for kind in (Kind.Node, Kind.GPU, Kind.CPU, Kind.Storage, Kind.Volume)),
        (Verb.use, Kind.Node),
        (Verb.use, Kind.Storage),
    }
)
"""Rights of everyone in the shared group, until the first user is defined."""

OWN_GROUP_RIGHTS = frozenset(
    {
        *((verb, Kind.Workload) for verb in Verb if verb not in (Verb.public, Verb.use)),
        *((verb, Kind.Volume) for verb in (Verb.get, Verb.create, Verb.update, Verb.delete, Verb.exec)),
        *((Verb.get, kind) for kind in (Kind.Node, Kind.GPU, Kind.CPU, Kind.Storage)),
    }
)
"""Rights of everyone in the group of their own name, until the first user is defined."""


@dataclass(frozen=True, slots=True, eq=False)
class Rights:
    """The rights of one user, computed once: each question is a lookup in a set."""

    home: str
    """The group of what they make, unless they say otherwise."""
    given: Mapping[str, frozenset[Right]]
    """The rights in each group, in the order of their memberships."""
    everywhere: frozenset[Right] = frozenset()
    personal: frozenset[Right] = frozenset()
    """Rights in no group at all."""
    _where: dict[Right, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def own(cls, user: str, *, admin: bool, tokens: bool) -> Rights:
        """Return the rights of anyone on a server where no user is defined yet."""
        rights = cls(
            user, {user: OWN_GROUP_RIGHTS, SHARED_GROUP: SHARED_RIGHTS}, _ALL if admin else frozenset(), PERSONAL_RIGHTS
        )
        return rights if tokens else rights.by_name()

    @classmethod
    def of(cls, user: str, memberships: Iterable[tuple[str, Policy]]) -> Rights:
        given: dict[str, frozenset[Right]] = {}
        for group, policy in memberships:
            given[group] = given.get(group, frozenset()) | rights_of_policy(policy)
        everywhere = given.pop(EVERYTHING, frozenset())
        given = {group: _inside_a_group(rights) for group, rights in given.items()}
        home = next(iter(given), user)
        if everywhere:
            given.setdefault(home, frozenset())
        return cls(home, given, everywhere, PERSONAL_RIGHTS)

    def by_name(self) -> Rights:
        """Return the rights of someone known only by name: theirs, but none to make a token, which would prove more."""
        return Rights(self.home, self.given, personal=self.personal - OWN_TOKENS)

    @property
    def admin(self) -> bool:
        return self.everywhere >= _ALL

    def may(self, verb: Verb, kind: Kind, group: str | None = None) -> bool:
        """May they in this group or, where none is named, in any?"""
        right = verb, kind
        if right in self.everywhere:
            return True
        if group is not None:
            return right in self.given.get(group, frozenset())
        return right in self.personal or bool(self.where(verb, kind))

    def where(self, verb: Verb, kind: Kind) -> tuple[str, ...]:
        right = verb, kind
        known = self._where.get(right)
        if known is None:
            known = tuple(group for group, rights in self.given.items() if right in rights or right in self.everywhere)
            self._where[right] = known
        return known


NOBODY = Rights("", {})
SERVER_ACCOUNT = Rights("", {}, personal=frozenset({(Verb.get, Kind.Server), (Verb.stop, Kind.Server)}))
"""Rights of the account that runs the server, whoever is defined: it could end the process, too."""


def _inside_a_group(rights: frozenset[Right]) -> frozenset[Right]:
    return frozenset(right for right in rights if right[1] not in SERVER_KINDS) - INFRASTRUCTURE_RIGHTS


def rights_of_policy(policy: Policy) -> frozenset[Right]:
    """Return a policy's words as rights. Unknown words give nothing: they were refused when the policy was written."""
    if isinstance(policy, str):
        return _ALL if policy == EVERYTHING else frozenset()
    found = {
        (verb, Kind(kind))
        for kind, words in policy.items()
        if kind in Kind.__members__
        for word in words
        for verb in WORDS.get(word, ())
    }
    while more := {right for each in found for right in IMPLIED.get(each, ())} - found:
        found |= more
    return frozenset(found)
