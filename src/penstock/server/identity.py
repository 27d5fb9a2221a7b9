"""Identify the caller of a request and check the table of permissions."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Annotated, NamedTuple

from fastapi import Depends
from fastapi.requests import HTTPConnection

from penstock.domain.names import USER, shorten
from penstock.domain.policy import EVERYTHING, Kind, Verb
from penstock.domain.users import Caller, Proof
from penstock.errors import Forbidden, Invalid, NotFound, Problem, Unauthenticated
from penstock.server.parts import Parts
from penstock.server.peers import Peer, is_own_process
from penstock.server.permissions import NEEDS
from penstock.services.people.accounts import user_name

REMEDIES = (
    "Send a token (penstock token create) as 'Authorization: Bearer …', "
    "or start the server with 'penstock server start --auth header' to have X-User accepted."
)
ANOTHER = (
    "Ask an admin for another: penstock adm token create USER; on the server's own machine: penstock token create."
)


async def identify(request: HTTPConnection) -> Caller:
    """Identify the caller by the kernel, a token or (in header mode) X-User. With a body, the gate did it already."""
    if known := request.scope["state"].get("caller"):
        caller: Caller = known
        return caller
    parts: Parts = request.app.state.parts
    peer: Peer = request.scope["state"].get("peer") or Peer()
    bearer = request.headers.get("authorization")
    if bearer is not None:
        return await _by_token(parts, bearer)
    named = request.headers.get("x-user")
    if parts.settings.auth == "header" and named is not None:
        return await _by_header(request, peer, named)
    if peer.uid is not None:
        name, runs_server = user_name(peer.uid), peer.uid == os.geteuid()
        return Caller(user=name, proof=Proof.socket, uid=peer.uid, gid=peer.gid, runs_server=runs_server)
    if named is not None:
        raise Unauthenticated("X-User is not accepted: this server requires a token.", hint=REMEDIES)
    hint = "Send your name in X-User." if parts.settings.auth == "header" else REMEDIES
    raise Unauthenticated("You are not signed in.", hint=hint)


async def _by_token(parts: Parts, bearer: str) -> Caller:
    scheme, _, secret = bearer.partition(" ")
    token = await parts.tokens.holder(secret.strip()) if scheme.lower() == "bearer" else None
    if token is None:
        raise Unauthenticated("The token is not valid: unknown, expired or revoked.", hint=ANOTHER)
    uid = token.uid if token.uid is not None and user_name(token.uid) == token.user else None  # it may be another's now
    runs_server = uid == os.geteuid()
    return Caller(
        user=token.user, proof=Proof.token, uid=uid, runs_server=runs_server, until=token.expires_at, token=token.id
    )


async def _by_header(request: HTTPConnection, peer: Peer, named: str) -> Caller:
    """Trust X-User only from a process of the server's own user that is not a job."""
    believed = await asyncio.to_thread(is_own_process, peer) if peer.uid is None else peer.uid == os.geteuid()
    if not believed:
        raise Unauthenticated("X-User is accepted only from this server's own user, never from inside a job.")
    if not USER.match(named):
        problem = Problem(f"'{shorten(named)}' is not a user name", field="X-User")
        raise Invalid("The user name cannot be used.", problems=[problem])
    return Caller(user=named, proof=Proof.header)


class AuthorizedCall(NamedTuple):
    """An authorized caller, and the parts of the server."""

    caller: Caller
    parts: Parts


async def permitted(request: HTTPConnection) -> AuthorizedCall:
    """Identify the caller and check the table of permissions. Every route that is not public depends on this."""
    verb, kind = NEEDS[request.scope.get("method", "GET"), request.scope["route"].path_format]  # a WebSocket has none
    parts: Parts = request.app.state.parts
    caller = await identify(request)
    request.scope["state"]["asked"] = (caller, verb, kind)
    caller = parts.people.known(caller)
    if chosen := request.query_params.get("group"):
        looks = request.scope.get("method", "GET") == "GET"
        caller = _of_all(caller) if looks and chosen == EVERYTHING else parts.people.in_group(caller, chosen)
    request.scope["state"]["asked"] = (caller, verb, kind)
    if not caller.may(verb, kind):
        raise Forbidden(caller.refusal(verb, kind), hint=_who_decides(caller))
    return AuthorizedCall(caller, parts)


def _of_all(caller: Caller) -> Caller:
    """Return the caller with a view of all groups, which needs rights in all; nothing is created there."""
    if not caller.rights.everywhere:
        raise NotFound(f"Group {EVERYTHING} not found")
    return of_everything(caller)


def of_everything(caller: Caller) -> Caller:
    """Return the caller with a view of everything they may see."""
    return replace(caller, everything=True)


def _who_decides(caller: Caller) -> str | None:
    return None if caller.written is None else "An admin of this server gives rights: penstock adm user apply -f FILE"


def require_membership(caller: Caller) -> None:
    """Require membership in a group: facts about the server and its machine are not for everyone it knows."""
    if not caller.rights.given and not caller.may(Verb.stop, Kind.Server):
        raise Forbidden("You are not a member of any group on this server.", hint=_who_decides(caller))


def require_all_groups(caller: Caller, kind: Kind, verb: Verb = Verb.get) -> None:
    if not caller.everywhere(verb, kind):
        hint = "In header mode nobody is an admin." if caller.proof is Proof.header else None
        raise Forbidden("Only an admin may see or change what belongs to others.", hint=hint)


Authorized = Annotated[AuthorizedCall, Depends(permitted)]
