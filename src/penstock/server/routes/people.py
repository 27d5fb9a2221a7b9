"""Routes for users, groups, the audit and the first admin."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from penstock.domain.users import Group, User
from penstock.errors import Invalid, Problem
from penstock.server.identity import Authorized
from penstock.server.routes.messages import Cursor, Limit, Named, answer, page_of, page_of_few
from penstock.wire.pages import Deleted
from penstock.wire.requests import FirstUser, NewToken
from penstock.wire.server import AuditPage, FirstAdmin, GroupPage, UserPage

router = APIRouter(tags=["people"])


@router.post("/v1/adm/init", status_code=201, response_model=FirstAdmin)
async def make_first_admin(body: FirstUser, call: Authorized) -> Response:
    """Makes the first user, who may do everything, and gives them a token. Works once; from then on policies
    decide who may do what."""
    name = call.caller.user if body.user is None else body.user
    admin = await call.parts.people.begin(call.caller, name)
    caller = call.parts.people.known(call.caller) if name == call.caller.user else call.caller
    made = await call.parts.tokens.create(caller, NewToken(user=admin.name, description="first admin", expires=None))
    return answer(FirstAdmin(user=admin.name, token=made.token), 201)


@router.get("/v1/users", response_model=UserPage)
async def list_users(call: Authorized, query: Named) -> Response:
    """All users, for admins; others see themselves."""
    return page_of_few(call, call.parts.people.users(call.caller), query)


@router.get("/v1/users/{name}", response_model=User)
async def get_user(name: str, call: Authorized) -> Response:
    """One user with their policies."""
    return answer(call.parts.people.one_user(call.caller, name))


@router.put("/v1/users/{name}", response_model=User)
async def put_user(name: str, body: User, call: Authorized) -> Response:
    """Creates or replaces the user of this name."""
    _refuse_other(name, body.name)
    await call.parts.people.put_user(call.caller, body)
    return answer(call.parts.people.one_user(call.caller, name))


@router.delete("/v1/users/{name}", response_model=Deleted)
async def delete_user(name: str, call: Authorized) -> Response:
    """Deletes a user and revokes their tokens. What they made stays, and so does what runs."""
    await call.parts.people.remove_user(call.caller, name)
    return answer(Deleted(id=name, name=name))


@router.get("/v1/groups", response_model=GroupPage)
async def list_groups(call: Authorized, query: Named) -> Response:
    """The caller's groups; for admins, all groups."""
    return page_of_few(call, call.parts.people.groups(call.caller), query)


@router.get("/v1/groups/{name}", response_model=Group)
async def get_group(name: str, call: Authorized) -> Response:
    """One group with its limits."""
    return answer(call.parts.people.one_group(call.caller, name))


@router.put("/v1/groups/{name}", response_model=Group)
async def put_group(name: str, body: Group, call: Authorized) -> Response:
    """Creates or replaces the group of this name."""
    _refuse_other(name, body.name)
    await call.parts.people.put_group(call.caller, body)
    return answer(call.parts.people.one_group(call.caller, name))


@router.delete("/v1/groups/{name}", response_model=Deleted)
async def delete_group(name: str, call: Authorized) -> Response:
    """Deletes a group that has no members."""
    await call.parts.people.remove_group(call.caller, name)
    return answer(Deleted(id=name, name=name))


def _refuse_other(address: str, body: str) -> None:
    if address != body:
        raise Invalid("The address and the body give different names.", problems=[Problem("differs", field="name")])


@router.get("/v1/audit", response_model=AuditPage)
async def list_audit(
    call: Authorized,
    user: Annotated[str | None, Query(max_length=64, description="only what this user did")] = None,
    name: Annotated[str | None, Query(description="only what was done to things of this name")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Who did what, newest first."""
    entries, after = await call.parts.audit.page(user=user, name=name, limit=limit, cursor=cursor)
    return page_of(entries, after, call.parts.db.version)
