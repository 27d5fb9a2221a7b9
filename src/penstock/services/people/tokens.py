"""Make and check tokens: opaque, random, stored as a hash, shown once."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta

from penstock.domain.model import now
from penstock.domain.names import USER, new_id, shorten
from penstock.domain.policy import Kind, Verb
from penstock.domain.quantities import NotAQuantity, parse_duration
from penstock.domain.users import Caller
from penstock.errors import Forbidden, Invalid, NotFound, Problem
from penstock.services import audit
from penstock.services.people.people import NO_GROUP, People
from penstock.store.database import Database
from penstock.store.session import Store
from penstock.store.tokens import Token
from penstock.wire.requests import NewToken
from penstock.wire.server import NewTokenView, TokenView

PREFIX = "pst_"
BOTH_VALID = timedelta(days=1)
"""How long an old token works beside the one that took its place."""


def hashed(token: str) -> str:
    """Hash a token. Random 256 bits need no salt and no slow hash."""
    return hashlib.sha256(token.encode()).hexdigest()


class Tokens:
    def __init__(self, db: Database, people: People) -> None:
        self._db = db
        self._people = people

    async def create(self, caller: Caller, asked: NewToken) -> NewTokenView:
        """Make a token for the caller; or, by an admin, for anyone, which then proves that name and no account of this
        machine."""
        user = self._for_whom(caller, asked.user, caller.admin)
        secret = PREFIX + secrets.token_urlsafe(32)
        mine = user == caller.user
        expires_at = _end(asked.expires, caller.until)
        token = Token(
            id=new_id(),
            user=user,
            uid=caller.uid if mine else None,
            runs_server=caller.runs_server and mine,
            description=asked.description,
            created_at=now(),
            expires_at=expires_at,
        )

        def add(tx: Store) -> None:
            _refuse_unknown(tx, user)
            tx.tokens.add(token, hashed(secret))
            audit.note(tx, caller, Verb.create, Kind.Token, name=user, id=token.id)

        await self._db.write(add)
        return NewTokenView(token=secret, **_view(token).model_dump())

    def _for_whom(self, caller: Caller, user: str | None, allowed: bool) -> str:
        if user is None or user == caller.user:
            return caller.user
        if not allowed:
            error = Forbidden("Only an admin may make or see tokens of others.")
            error.about = user
            raise error
        if not USER.match(user):
            problem = Problem(f"'{shorten(user)}' is not a user name", field="user")
            raise Invalid("A token cannot be made for that name.", problems=[problem])
        return user

    async def page(
        self, caller: Caller, *, user: str | None, description: str | None, limit: int, cursor: str | None
    ) -> tuple[list[TokenView], str | None]:
        whose = self._for_whom(caller, user, caller.everywhere(Verb.get, Kind.Token))
        found, after = await self._db.read(
            lambda tx: tx.tokens.page(whose, description=description, limit=limit, cursor=cursor)
        )
        return [_view(token) for token in found], after

    async def delete(self, caller: Caller, token_id: str) -> None:
        """Delete one of the caller's tokens; an admin deletes any."""
        whose = None if caller.everywhere(Verb.delete, Kind.Token) else caller.user

        def remove(tx: Store) -> None:
            token = tx.tokens.get(token_id, whose)
            if token is None:
                raise NotFound(f"Token {shorten(token_id)} not found")
            tx.tokens.remove(token_id)
            audit.note(tx, caller, Verb.delete, Kind.Token, name=token.user, id=token_id)

        await self._db.write(remove)
        self._people.revoked(token_id)

    async def rotate(self, caller: Caller, token_id: str) -> NewTokenView:
        """Replace a token by one with the same rights. The old one ends a day from now, or at its own end if that is
        sooner. Only an admin replaces those of others: whoever has a token is its user."""
        whose = None if caller.admin else caller.user
        secret = PREFIX + secrets.token_urlsafe(32)

        def change(tx: Store) -> Token:
            old = tx.tokens.get(token_id, whose)
            if old is None:
                raise NotFound(f"Token {shorten(token_id)} not found")
            end = min((end for end in (old.expires_at, caller.until) if end), default=None)
            fresh = {"id": new_id(), "created_at": now(), "last_used_at": None, "expires_at": end}
            new: Token = old.model_copy(update=fresh)
            tx.tokens.add(new, hashed(secret))
            tx.tokens.end(old.id, min(now() + BOTH_VALID, old.expires_at or datetime.max.replace(tzinfo=UTC)))
            audit.note(tx, caller, Verb.create, Kind.Token, name=new.user, id=new.id, detail=f"instead of {old.id}")
            return new

        new = await self._db.write(change)
        return NewTokenView(token=secret, **_view(new).model_dump())

    async def holder(self, secret: str) -> Token | None:
        token = await self._db.read(lambda tx: tx.tokens.by_hash(hashed(secret)))
        if token is None or (token.expires_at and token.expires_at <= now()):
            return None
        if token.last_used_at is None or now() - token.last_used_at > timedelta(minutes=1):
            await self._db.write(lambda tx: tx.tokens.touch(token.id, now()))
        return token


def _refuse_unknown(tx: Store, user: str) -> None:
    """Refuse a token for an unknown user: it would be that of whoever is given the name later. Until a user is written
    down, any name will do."""
    if tx.registered.get(Kind.User, NO_GROUP, user) is None and tx.registered.all(Kind.User):
        hint = "penstock adm users lists who there is; penstock adm user apply -f FILE writes someone down"
        raise NotFound(f"User {shorten(user)} not found", hint=hint)


def _end(asked: str | None, latest: datetime | None) -> datetime | None:
    """Return when a new token ends; one that is made with another token never outlives that one."""
    if asked is None:
        return latest
    try:
        end = now() + timedelta(seconds=parse_duration(asked))
    except NotAQuantity as error:
        problem = Problem(str(error), field="expires", hint=error.hint)
        raise Invalid("The token cannot be created.", problems=[problem]) from None
    return min(end, latest) if latest else end


def _view(token: Token) -> TokenView:
    return TokenView(**token.model_dump(exclude={"uid", "runs_server"}))
