"""Keep users and groups, their rights, and the first admin.

Until the first user is written down everyone has a group of their own name and the one who runs the server is the
admin. From then on policies alone decide. What they say is kept worked out in memory; every change of it goes through
here, so it holds from the next request on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import NoReturn

from penstock.domain.model import now
from penstock.domain.names import USER, shorten
from penstock.domain.policy import EVERYTHING, NOBODY, SERVER_ACCOUNT, SHARED_GROUP, WORDS, Kind, Rights, Verb, refusal
from penstock.domain.users import LARGEST_UID, Caller, Group, Membership, Proof, User
from penstock.errors import Conflict, Forbidden, Invalid, NotFound, PenstockError, Problem, Unauthenticated
from penstock.services import audit
from penstock.store.database import Database
from penstock.store.session import Store

SHOWN = 10
"""How many things that stand in the way are named."""
NO_GROUP = ""
"""Users and groups belong to none."""
NO_ADMIN = "Nobody would be an admin any more."
ANOTHER_ADMIN = f"Give another active user the policy {EVERYTHING} in the group {EVERYTHING} first."


class People:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._users: dict[str, User] = {}
        self._groups: dict[str, Group] = {}
        self._rights: dict[str, Rights] = {}
        """By user."""
        self._revoked: set[str] = set()
        """Tokens that were taken back since the start, for connections that were opened with them."""
        self._changed = asyncio.Event()

    async def open(self) -> None:
        """Read who there is and what they may."""
        users, groups = await self._db.read(
            lambda tx: (tx.registered.all(Kind.User), tx.registered.all(Kind.Group)),
        )
        self._users = {user.name: user for user in map(User.model_validate_json, users)}
        self._groups = {group.name: group for group in map(Group.model_validate_json, groups)}
        self._rights = {}
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # who asks

    def known(self, caller: Caller) -> Caller:
        """Return the caller with the rights that the policies give them."""
        if not self._users:
            return caller
        user, keeper = self._users.get(caller.user), caller.runs_server and caller.proof is Proof.socket
        if user is None:
            return replace(caller, written=SERVER_ACCOUNT if keeper else NOBODY)
        if not user.active:
            raise Forbidden(f"{user.name} is deactivated.", hint="An admin of this server can activate the user again.")
        rights = self._rights_of(user)
        if caller.proof is Proof.header:
            rights = rights.by_name()
        if keeper:
            rights = replace(rights, personal=rights.personal | SERVER_ACCOUNT.personal)
        uid = caller.uid if caller.proof is Proof.socket or user.uid is None else user.uid
        return replace(caller, written=rights, uid=uid)

    def renewed(self, caller: Caller) -> Caller:
        """Return a caller who was let in before with the rights they have now."""
        if caller.token in self._revoked or (caller.until and caller.until <= now()):
            raise Unauthenticated("The token is not valid any more: expired or revoked.")
        found = self.known(replace(caller, written=None, chosen=None, everything=False))
        found = self.in_group(found, caller.chosen) if caller.chosen else found
        return replace(found, everything=caller.everything)

    def require_still(self, caller: Caller, verb: Verb, kind: Kind, group: str) -> None:
        """Raise unless the caller still may do this in this group."""
        if not self.renewed(caller).rights.may(verb, kind, group):
            raise Forbidden(refusal(verb, kind, "any more"))

    def revoked(self, token: str) -> None:
        """Note that a token is taken back: connections that were opened with it end, too."""
        self._revoked.add(token)
        self._tell()

    def _rights_of(self, user: User) -> Rights:
        if user.name not in self._rights:
            self._rights[user.name] = Rights.of(user.name, [(each.name, each.policy) for each in user.groups])
        return self._rights[user.name]

    async def until_refused(
        self, caller: Caller, verb: Verb, kind: Kind, group: str, require: Callable[[Caller], Awaitable[None]]
    ) -> NoReturn:
        """Wait until the caller may not do this any more, or `require` raises for the rights they have by then, and
        raise that."""
        while True:
            changed = self._changed
            self.require_still(caller, verb, kind, group)
            await require(self.renewed(caller))
            with suppress(TimeoutError):
                async with asyncio.timeout((caller.until - now()).total_seconds() if caller.until else None):
                    await changed.wait()

    async def while_allowed(
        self, stream: AsyncGenerator[bytes, None], caller: Caller, verb: Verb, kind: Kind, group: str
    ) -> AsyncGenerator[bytes, None]:
        """Pass a stream on for as long as its reader may read it."""
        async with aclosing(stream) as chunks:
            async for chunk in chunks:
                try:
                    self.require_still(caller, verb, kind, group)
                except PenstockError:
                    return
                yield chunk

    def in_group(self, caller: Caller, group: str, coming: Collection[str] = ()) -> Caller:
        """Return the caller in this group; one that is not theirs reads like one that is not there. `coming` are groups
        that are about to be written down. As long as there are none, each name is a group of whoever has it."""
        always = (SHARED_GROUP, caller.user)
        there = any(group in known for known in (self._groups, always, caller.rights.given, coming))
        there = there or (not self._users and _name_problem(group, "group") is None)
        theirs = group in caller.rights.given or bool(caller.rights.everywhere)
        if not there or not theirs:
            raise NotFound(f"Group {shorten(group)} not found")
        return replace(caller, chosen=group)

    # what is asked of those who do not ask now

    @property
    def change(self) -> asyncio.Event:
        """The event that the next change of rights sets."""
        return self._changed

    def barred(self, name: str) -> str | None:
        """Return why nothing of this user starts any more."""
        user = self._users.get(name)
        if not self._users or (user and user.active):
            return None
        return f"{name} is deactivated" if user else f"{name} is not a user of this server any more"

    def rights(self, name: str) -> Rights | None:
        user = self._users.get(name)
        if user is None:
            return NOBODY if self._users else None
        return self._rights_of(user)

    def node_groups(self, name: str) -> frozenset[str] | None:
        """Return the groups on whose nodes a user's work may run; None: on everyone's, as long as no user is written
        down."""
        user = self._users.get(name)
        if user is None:
            return frozenset() if self._users else None
        rights = self._rights_of(user)
        if (Verb.use, Kind.Node) in rights.everywhere:
            return frozenset({EVERYTHING})
        return frozenset(rights.where(Verb.use, Kind.Node))

    def all_groups(self) -> list[Group]:
        return list(self._groups.values())

    # who there is

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    def users(self, caller: Caller) -> list[User]:
        if caller.everywhere(Verb.get, Kind.User):
            return sorted(self._users.values(), key=lambda user: user.name)
        return [user for user in (self._users.get(caller.user),) if user]

    def groups(self, caller: Caller) -> list[Group]:
        names = set(caller.rights.given)
        if caller.everywhere(Verb.get, Kind.Group):
            names |= self._groups.keys()
        return [self._groups.get(name) or Group(name=name) for name in sorted(names)]

    def group(self, name: str) -> Group | None:
        return self._groups.get(name)

    def one_user(self, caller: Caller, name: str) -> User:
        for user in self.users(caller):
            if user.name == name:
                return user
        raise NotFound(f"User {shorten(name)} not found")

    def one_group(self, caller: Caller, name: str) -> Group:
        for group in self.groups(caller):
            if group.name == name:
                return group
        raise NotFound(f"Group {shorten(name)} not found")

    # changing

    async def begin(self, caller: Caller, name: str) -> User:
        if self._users:
            raise Conflict("This server already has an admin.", hint="penstock adm users lists who there is")
        if not caller.admin:
            raise Forbidden("Only whoever runs this server can make its first admin.")
        if not USER.match(name):
            problem = Problem(f"'{shorten(name)}' is not a user name", field="user")
            raise Invalid("The user cannot be made.", problems=[problem])
        mine = Membership(name=name, policy=EVERYTHING), Membership(name=EVERYTHING, policy=EVERYTHING)
        uid = caller.uid if name == caller.user else None
        admin = User(name=name, groups=mine, uid=uid)

        def write(tx: Store) -> None:
            if tx.registered.all(Kind.User):
                raise Conflict("This server already has an admin.")
            _put(tx, Group(name=SHARED_GROUP))
            _put(tx, Group(name=name))
            _put(tx, admin)
            tx.tokens.remove_of_others(name)  # later such a name may be somebody else's
            audit.note(tx, caller, Verb.create, Kind.User, name=name, detail="the first admin")

        await self._write(write)
        return admin

    async def put_user(self, caller: Caller, user: User) -> bool:
        """Write a user down and return whether they were there before."""
        self.refuse_unruly(caller)
        self.refuse_wrong(user)
        known = self._users.get(user.name)

        def write(tx: Store) -> None:
            _put(tx, user)
            _refuse_without_admin(tx)
            audit.note(tx, caller, Verb.update if known else Verb.create, Kind.User, name=user.name)

        await self._write(write)
        return known is not None

    async def put_group(self, caller: Caller, group: Group) -> bool:
        self.refuse_unruly(caller)
        if problem := _name_problem(group.name, "name"):
            raise Invalid("The group cannot be saved.", problems=[problem])
        known = group.name in self._groups

        def write(tx: Store) -> None:
            _put(tx, group)
            audit.note(tx, caller, Verb.update if known else Verb.create, Kind.Group, group=group.name, name=group.name)

        await self._write(write)
        return known

    async def remove_user(self, caller: Caller, name: str) -> None:
        """Remove a user and their tokens. What they made stays, and what runs goes on."""
        self.refuse_unruly(caller)

        def write(tx: Store) -> None:
            if not tx.registered.remove(Kind.User, NO_GROUP, name):
                raise NotFound(f"User {shorten(name)} not found")
            _refuse_without_admin(tx)
            tx.tokens.remove_of(name)
            tx.submissions.remove_of(name)
            audit.note(tx, caller, Verb.delete, Kind.User, name=name)

        await self._write(write)

    async def remove_group(self, caller: Caller, name: str) -> None:
        self.refuse_unruly(caller)

        def write(tx: Store) -> None:
            if tx.registered.get(Kind.Group, NO_GROUP, name) is None:
                raise NotFound(f"Group {shorten(name)} not found")
            members = [user.name for user in _users(tx) if any(each.name == name for each in user.groups)]
            if members:
                raise Conflict(
                    f"Group {name} has members: {', '.join(sorted(members)[:SHOWN])}.",
                    hint="Take them out of it first: penstock adm user apply -f FILE",
                )
            _refuse_inhabited(tx, name)
            tx.registered.remove(Kind.Group, NO_GROUP, name)
            audit.note(tx, caller, Verb.delete, Kind.Group, group=name, name=name)

        await self._write(write)

    async def _write(self, change: Callable[[Store], None]) -> None:
        await self._db.write(change)
        await self.open()

    def refuse_unruly(self, caller: Caller) -> None:
        """Refuse callers without all rights to change users and groups, and all changes before there is an admin."""
        if not self._users:
            hint = "penstock adm init makes the first admin, once"
            raise Conflict("This server has no admin yet.", hint=hint)
        if not caller.admin:
            raise Forbidden("Only an admin may change users, groups and policies.")

    def refuse_wrong(self, user: User, coming: frozenset[str] = frozenset(), others: Iterable[User] = ()) -> None:
        """Refuse a user with all that is wrong; `coming` are groups and `others` users that are about to be written
        down."""
        problems = [problem for problem in (_name_problem(user.name, "name"),) if problem]
        for number, each in enumerate(user.groups):
            where = f"groups.{number}"
            if each.name not in {*self._groups, *coming, EVERYTHING, SHARED_GROUP}:
                hint = "write a Group document for it"
                problems.append(Problem(f"there is no group '{shorten(each.name)}'", field=f"{where}.name", hint=hint))
            problems += [] if isinstance(each.policy, str) else policy_problems(each.policy, f"{where}.policy")
        if user.uid is not None and not 0 <= user.uid <= LARGEST_UID:
            problems.append(Problem(f"must be a whole number from 0 to {LARGEST_UID:,}, not {user.uid}", field="uid"))
        there = {**self._users, **{other.name: other for other in others}}
        for other in there.values():
            if user.uid is not None and other.uid == user.uid and other.name != user.name:
                hint = "an account is one user's; take it out of their document first"
                problems.append(Problem(f"{user.uid} is the account of user {other.name}", field="uid", hint=hint))
        if problems:
            raise Invalid("The user cannot be saved.", problems=problems)

    def leave_no_admin(self, coming: Iterable[User]) -> bool:
        """Would there be no admin once all of these are written down?"""
        return not any(map(is_admin, (self._users | {user.name: user for user in coming}).values()))


def is_admin(user: User) -> bool:
    return user.active and Rights.of(user.name, [(each.name, each.policy) for each in user.groups]).admin


def _refuse_without_admin(tx: Store) -> None:
    """Refuse a change that would leave no admin: nobody could ever give the right back."""
    if not any(map(is_admin, _users(tx))):
        raise Conflict(NO_ADMIN, hint=ANOTHER_ADMIN)


def _name_problem(name: str, field: str) -> Problem | None:
    if name == EVERYTHING:
        return Problem(f"{EVERYTHING} means all groups and is none", field=field)
    return None if USER.match(name) else Problem(f"'{shorten(name)}' is not a name", field=field)


def policy_problems(policy: Mapping[str, Sequence[str]], field: str) -> list[Problem]:
    """Return the kinds and verbs of a policy that do not exist."""
    kinds, verbs = ", ".join(Kind), ", ".join(WORDS)
    found = [
        Problem(f"'{shorten(kind)}' is not a kind", field=f"{field}.{shorten(kind)}", hint=kinds)
        for kind in policy
        if kind not in Kind.__members__
    ]
    return found + [
        Problem(f"'{shorten(word)}' is not a verb", field=f"{field}.{shorten(kind)}", hint=verbs)
        for kind, words in policy.items()
        for word in words
        if word not in WORDS
    ]


def _refuse_inhabited(tx: Store, group: str) -> None:
    """Refuse to remove a group that has something. It could be reached by its id only, and would be shown to a later
    group of that name; what belongs to it could not be seen or taken out by anyone."""
    jobs = [f"{each.name} ({each.id})" for each in tx.workloads.active() if each.group == group]
    listed, _ = tx.workloads.page([group], limit=SHOWN + len(jobs))
    known = [f"{json.loads(row.summary)['name']} ({row.id})" for row in listed]
    ended = [each for each in known if each not in jobs]
    volumes = [f"{each.name} ({each.id})" for each in tx.volumes.of_group(group)]
    belongs = [
        ("workloads that have not ended", jobs, f"penstock stop NAME -g {group}"),
        ("workloads that have ended", ended, f"penstock delete wk NAME -g {group}"),
        ("volumes", volumes, f"penstock delete vol NAME -g {group}"),
        ("nodes", tx.registered.names(Kind.Node, group), "penstock delete node NAME"),
        ("storages", tx.registered.names(Kind.Storage, group), "penstock delete storage NAME"),
    ]
    has = [f"{what}: {', '.join(names[:SHOWN])}" for what, names, _ in belongs if names]
    if has:
        first = ", then ".join(ends for _, names, ends in belongs if names)
        raise Conflict(f"Group {group} has {'; and '.join(has)}.", hint=f"First {first}")


def _users(tx: Store) -> list[User]:
    return [User.model_validate_json(text) for text in tx.registered.all(Kind.User)]


def _put(tx: Store, thing: User | Group) -> None:
    kind = Kind.User if isinstance(thing, User) else Kind.Group
    tx.registered.put(kind, NO_GROUP, thing.name, thing.model_dump_json())
