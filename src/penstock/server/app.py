"""The application: routes, the checks before them, one shape for every error, and the OpenAPI document."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError, ValidationException, WebSocketRequestValidationError
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock import __version__
from penstock.domain.audit import Deed
from penstock.domain.names import shorten
from penstock.domain.policy import Kind, Verb
from penstock.domain.users import Caller
from penstock.errors import (
    BadRequest,
    Forbidden,
    Invalid,
    NotFound,
    PenstockError,
    Problem,
    StorageFull,
    Unavailable,
)
from penstock.server.gate import Gate
from penstock.server.identity import permitted
from penstock.server.parts import Parts
from penstock.server.permissions import NEEDS
from penstock.server.routes import (
    documents,
    exec,
    inspect,
    k8s_cli,
    nodes,
    people,
    server,
    tokens,
    usage,
    volumes,
    workloads,
)
from penstock.settings import Settings
from penstock.wire.pages import ErrorBody

log = logging.getLogger(__name__)
NOWHERE, NOWHERE_HINT = "There is nothing at this address.", "GET /docs lists what there is."
DESCRIPTION = "Volumes and workloads on AI clusters. Everything under `/v1` is ours; the rest is k8s-cli's."
NOUNS = (workloads, volumes, exec, inspect, documents, nodes, server, tokens, people, usage, k8s_cli)
"""The most used first: they are tried in this order."""


def create_app(settings: Settings, parts: Parts | None = None) -> FastAPI:
    """Make the application; without `parts` it serves nothing but describes itself."""
    app = PenstockApi(
        title="Penstock",
        version=__version__,
        description=DESCRIPTION,
        responses={"default": {"model": ErrorBody, "description": "every error has this shape"}},
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.parts = parts
    for noun in NOUNS:
        _refuse_open_doors(noun.router)
        app.include_router(noun.router)
    app.router.default = _nothing_here(app.router.default)
    app.add_middleware(Gate, settings=settings)
    app.add_exception_handler(PenstockError, _known)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(WebSocketRequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(ClientDisconnect, lambda request, error: _body(BadRequest("The client went away.")))
    app.add_exception_handler(Exception, _defect)
    return app


def _refuse_open_doors(router: APIRouter) -> None:
    """Refuse to start with a route that does not check permissions as the table says, or is not in it."""
    for route in router.routes:
        assert isinstance(route, APIRoute | APIWebSocketRoute)
        asks = any(each.call is permitted for each in route.dependant.dependencies)
        for method in methods(route):
            public = NEEDS[method, route.path_format][0] is Verb.public
            if asks is public:
                raise RuntimeError(f"{method} {route.path_format} does not ask as the table of permissions says")


def methods(route: APIRoute | APIWebSocketRoute) -> set[str]:
    """Return a route's methods; a WebSocket is opened with GET, and needs the rights of that."""
    return route.methods or set() if isinstance(route, APIRoute) else {"GET"}


def _nothing_here(default: ASGIApp) -> ASGIApp:
    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # else it would be refused without a word
            raise NotFound(NOWHERE, hint=NOWHERE_HINT)
        await default(scope, receive, send)

    return nothing


def _body(error: PenstockError, status: int | None = None, headers: Mapping[str, str] | None = None) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else headers
    return JSONResponse(error.body(), status_code=status or error.status, headers=headers)


async def _known(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, PenstockError):
        return await _defect(request, error)
    if isinstance(error, Forbidden) and not error.noted and (asked := request.scope["state"].get("asked")):
        try:
            await _note(request, error.about, *asked)
        except (StorageFull, Unavailable) as failure:
            log.warning("a refusal to %s is not in the audit: %s", asked[0].user, failure)
    return _body(error)


async def _note(request: Request, about: str, caller: Caller, verb: Verb, kind: Kind) -> None:
    """Write a refusal into the audit, with the name that was given."""
    named = about or next(iter(request.path_params.values()), "")
    method = request.scope.get("method", "GET")  # a WebSocket has none
    deed = Deed(verb, kind, caller.chosen or "", shorten(named))
    await request.app.state.parts.audit.denied(caller, deed, f"{method} {shorten(request.url.path, 200)}")


async def _unreadable(request: Request, error: Exception) -> JSONResponse:
    """Answer FastAPI's validation errors in our words and our shape."""
    found: list[dict[str, Any]] = list(error.errors()) if isinstance(error, ValidationException) else []
    if any(each["type"] == "json_invalid" for each in found):
        why = str(found[0].get("ctx", {}).get("error", "it cannot be read"))[:300]
        return _body(BadRequest(f"The body is not JSON: {why}."))
    problems = [Problem(_message(each), field=".".join(map(str, each["loc"][1:])) or None) for each in found]
    return _body(Invalid("The request cannot be read.", problems=problems))


def _message(found: dict[str, Any]) -> str:
    if found["type"] == "missing":
        return "is missing"
    if found["type"] == "extra_forbidden":
        return "is not a known field"
    return str(found["msg"])[:300]


async def _refused(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error.__cause__, PenstockError):  # raised while FastAPI read the body
        return _body(error.__cause__)
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return _body(NotFound(NOWHERE, hint=NOWHERE_HINT))
    message = "This address does not accept that method." if status == 405 else "The request was refused."
    return _body(BadRequest(message), status, error.headers if isinstance(error, HTTPException) else None)


async def _defect(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    hint = "Its log says more: penstock server logs"
    return _body(PenstockError("The server ran into an internal error.", hint=hint))


GROUP = {
    "name": "group",
    "in": "query",
    "required": False,
    "description": "only this group of yours; what is made belongs to it",
    "schema": {"type": "string", "title": "Group"},
}


class PenstockApi(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Add the parameter `group`, which is read with the identity and not by FastAPI."""
        if self.openapi_schema is None:
            for path, operations in super().openapi()["paths"].items():
                for method, operation in operations.items():
                    if NEEDS[method.upper(), path][0] is not Verb.public:
                        operation.setdefault("parameters", []).append(GROUP)
        return super().openapi()
