"""Routes for tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from penstock.server.identity import Authorized
from penstock.server.routes.messages import Cursor, Limit, answer, page_of
from penstock.wire.pages import Deleted
from penstock.wire.requests import NewToken
from penstock.wire.server import NewTokenView, TokenPage

router = APIRouter(tags=["tokens"])


@router.post("/v1/tokens", status_code=201, response_model=NewTokenView)
async def create_token(body: NewToken, call: Authorized) -> Response:
    """Creates a token for the caller or, by an admin, for `user`; it is shown only once."""
    return answer(await call.parts.tokens.create(call.caller, body), 201)


@router.get("/v1/tokens", response_model=TokenPage)
async def list_tokens(
    call: Authorized,
    user: Annotated[str | None, Query(max_length=64, description="whose, for admins")] = None,
    description: str | None = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """The caller's tokens, without their secrets."""
    tokens, after = await call.parts.tokens.page(
        call.caller, user=user, description=description, limit=limit, cursor=cursor
    )
    return page_of(tokens, after, call.parts.db.version)


@router.post("/v1/tokens/{token_id}/rotate", status_code=201, response_model=NewTokenView)
async def rotate_token(token_id: str, call: Authorized) -> Response:
    """Replaces a token. The old one works for another day, so that nobody is locked out."""
    return answer(await call.parts.tokens.rotate(call.caller, token_id), 201)


@router.delete("/v1/tokens/{token_id}", response_model=Deleted)
async def delete_token(token_id: str, call: Authorized) -> Response:
    """Revokes a token at once; an admin may revoke anyone's."""
    await call.parts.tokens.delete(call.caller, token_id)
    return answer(Deleted(id=token_id, name=token_id))
