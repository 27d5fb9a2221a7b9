"""Check every request before a route sees it: Host header, kind and size of the body, and the sender."""

from __future__ import annotations

import json

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.domain.quantities import parse_bytes
from penstock.errors import BadRequest, Forbidden, PenstockError, TooLarge, WrongMediaType
from penstock.server.identity import identify
from penstock.settings import Settings

UPLOAD = "/v1/uploads"
WHOLE_FILES = frozenset({"/v1/apply", "/v1/stop", "/v1/delete", "/v1/convert"})
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Gate:
    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = {*LOOPBACK, settings.host.lower(), *(host.lower() for host in settings.allowed_hosts)}
        said = {"body_limit": settings.body_limit, "documents_limit": settings.documents_limit}
        self._limits = {setting: (parse_bytes(limit), limit) for setting, limit in said.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        refused = self._refuse(scope, headers)
        if refused is None and scope["type"] == "websocket":
            refused = _refuse_origin(headers)
        elif refused is None and _has_body(headers):
            refused = await _refuse_stranger(scope)
        if refused is not None:
            await _answer(refused, scope, send)
            return
        if scope["type"] == "websocket" or scope["path"] == UPLOAD or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
        else:
            await self._app(scope, self._counted(_limit_of(scope), receive), send)

    def _refuse(self, scope: Scope, headers: dict[bytes, bytes]) -> PenstockError | None:
        """Check the body's kind and size, and Host: DNS rebinding makes browsers send requests under another name."""
        peer = scope["state"].get("peer")
        if (peer is None or peer.uid is None) and not self._is_ours(headers.get(b"host", b"").decode("latin-1")):
            return BadRequest("The Host header does not name this server.", hint="See the setting allowed_hosts.")
        if scope["path"] == UPLOAD or not _has_body(headers):
            return None
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._limits[_limit_of(scope)][0]:
            return self._too_large(_limit_of(scope))
        if not headers.get(b"content-type", b"").split(b";")[0].strip().lower().endswith(b"json"):
            return WrongMediaType("The body must be JSON.", hint="Send it with 'Content-Type: application/json'.")
        return None

    def _is_ours(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdigit() else host
        return name.lower() in self._hosts

    def _too_large(self, setting: str) -> TooLarge:
        return TooLarge(f"The body is larger than {self._limits[setting][1]}.", hint=f"See the setting {setting}.")

    def _counted(self, setting: str, receive: Receive) -> Receive:
        """Count the bytes of a body that does not announce its length."""
        seen, (limit, _) = 0, self._limits[setting]

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise self._too_large(setting)
            return message

        return counted


def _limit_of(scope: Scope) -> str:
    """Return the name of the setting that limits the body."""
    return "documents_limit" if scope["path"] in WHOLE_FILES else "body_limit"


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


async def _refuse_stranger(scope: Scope) -> PenstockError | None:
    """Identify the sender of a body over TCP before FastAPI reads it into memory."""
    peer = scope["state"].get("peer")
    if peer is not None and peer.uid is not None:
        return None
    try:
        scope["state"]["caller"] = await identify(HTTPConnection(scope))
    except PenstockError as error:
        return error
    return None


def _refuse_origin(headers: dict[bytes, bytes]) -> PenstockError | None:
    """Refuse WebSockets that a browser opens for a page of another origin."""
    origin = headers.get(b"origin")
    ours = headers.get(b"host", b"")
    if origin is None or origin.lower() in (b"http://" + ours.lower(), b"https://" + ours.lower()):
        return None
    return Forbidden("A page of another origin may not open this.")


async def _answer(error: PenstockError, scope: Scope, send: Send) -> None:
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    body = json.dumps(error.body()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": f"{kind}.response.start", "status": error.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})
