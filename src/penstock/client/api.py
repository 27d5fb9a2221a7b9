"""The HTTP client: one method per verb, answers as parsed JSON, errors as the exceptions the server raised."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.client.address import CONNECT_SECONDS, Url, connect_unix, connect_url, local_sockets, named_url, quote
from penstock.client.credentials import LOCAL, read_credentials
from penstock.client.http import BodyWriter, Response, exchange
from penstock.client.profiles import Profile, chosen_profile
from penstock.errors import PenstockError, Unauthenticated, Unreachable, from_body

if TYPE_CHECKING:
    from penstock.client.websocket import WebSocket

ANSWER_SECONDS = 120.0
FILE_SECONDS = 1200.0
"""The timeout for a whole file of documents."""
LARGEST_PAGE = 500
AWAY = (502, 503, 504)
"""What a proxy answers if the server is gone."""

Query = Mapping[str, str | int | bool | None]


class ListPage(NamedTuple):
    items: list[dict[str, Any]]
    more: bool
    """There are more items, beyond the limit."""
    version: str | None
    """Pass it as `seen` to wait for the next change."""


class Client:
    """Speaks to one server. `start` starts the machine's own if none answers; without it, that is an error."""

    def __init__(
        self,
        api_url: str | None = None,
        *,
        profile: str | None = None,
        start: Callable[[], None] | None = None,
        timeout: float = ANSWER_SECONDS,
        as_account: bool = False,
    ) -> None:
        """`as_account`: ask as the Unix account, whoever is logged in, since only it may be the server's admin."""
        self.url: Url | None = named_url(api_url)
        self.profile: Profile | None = None
        if not api_url and not as_account:
            self.profile = chosen_profile(profile, named=self.url is not None)
            self.url = self.profile.url if self.profile else self.url
        self._as_account = as_account
        self._start = start
        self._timeout = timeout
        self._socket: str | None = None
        """The socket that answered last."""
        self._stays = False

    def stay(self) -> None:
        """Speak only to the server that answered last from here on; start no other."""
        self._start = None
        self._stays = self._socket is not None

    @property
    def local(self) -> bool:
        """True over a Unix socket, where client and server see the same files."""
        return self.url is None

    @property
    def key(self) -> str:
        """The key of this server in credentials.json."""
        return str(self.url) if self.url else LOCAL

    def get(self, path: str, query: Query | None = None, *, timeout: float | None = None) -> Any:
        return self._json("GET", path, query, retry=True, timeout=timeout)

    def post(
        self,
        path: str,
        body: Any = None,
        query: Query | None = None,
        *,
        create: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """`create` sends an Idempotency-Key, so that asking again after a broken connection makes nothing twice."""
        extra = {"Idempotency-Key": os.urandom(16).hex()} if create else {}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            extra["Content-Type"] = "application/json"
        return self._json("POST", path, query, data, extra, retry=create, timeout=timeout)

    def put(self, path: str, body: bytes | BodyWriter) -> Any:
        return self._json("PUT", path, None, body, {"Content-Type": "application/octet-stream"}, retry=True)

    def delete(self, path: str, query: Query | None = None) -> Any:
        return self._json("DELETE", path, query)

    def stream(self, path: str, query: Query | None = None) -> Response:
        """Return a response to read as it comes."""
        answer = self._answer("GET", _target(path, query), None, {}, retry=True, timeout=None)
        if answer.status >= 300:
            raise self._error(answer)
        return answer

    def websocket(self, path: str, query: Query) -> WebSocket:
        """Open a WebSocket. It is never retried: what it starts must not be started twice."""
        from penstock.client.websocket import Handshake, WebSocket

        handshake = Handshake()
        answer = self._answer("GET", _target(path, query), None, handshake.headers, retry=False, timeout=self._timeout)
        if answer.status >= 300:
            raise self._error(answer)
        if not handshake.accepted(answer):
            answer.close()
            raise Unreachable(f"{self._name} did not accept a WebSocket; does a proxy in between block it?")
        return WebSocket(*answer.detach())

    def list(
        self, path: str, query: Query, limit: int, keep: Callable[[dict[str, Any]], bool] | None = None
    ) -> ListPage:
        """Return the first `limit` items (that `keep` accepts), over as many pages as needed; 0 is all."""
        items: list[dict[str, Any]] = []
        cursor, version = None, None
        while True:
            ask = min(limit - len(items), LARGEST_PAGE) if limit and keep is None else LARGEST_PAGE
            page = self.get(path, {**query, "limit": ask, "cursor": cursor})
            items += page["items"] if keep is None else filter(keep, page["items"])
            version = version or page.get("version")
            cursor = page.get("next")
            if not cursor or (limit and len(items) >= limit):
                return ListPage(items[: limit or None], bool(cursor) or 0 < limit < len(items), version)

    def changed(self, path: str, query: Query, limit: int, seen: str | None, seconds: int) -> ListPage:
        """Return the first page again once something differs from `seen`, or after `seconds`."""
        asked = {**query, "limit": min(limit or LARGEST_PAGE, LARGEST_PAGE), "wait": seconds, "seen": seen}
        page = self.get(path, asked, timeout=seconds + self._timeout)
        return ListPage(page["items"], bool(page.get("next")), page.get("version"))

    def _json(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: bytes | BodyWriter | None = None,
        extra: Mapping[str, str] | None = None,
        *,
        retry: bool = False,
        timeout: float | None = None,
    ) -> Any:
        target = _target(path, query)
        answer = self._answer(method, target, body, extra or {}, retry=retry, timeout=timeout or self._timeout)
        if answer.status >= 300:
            raise self._error(answer)
        try:
            data = answer.read()
            return json.loads(data) if data else None
        except (OSError, ValueError) as error:
            raise Unreachable(f"The answer of {self._name} could not be read: {error}.") from error
        finally:
            answer.close()

    def _answer(
        self,
        method: str,
        target: str,
        body: bytes | BodyWriter | None,
        extra: Mapping[str, str],
        *,
        retry: bool,
        timeout: float | None,
    ) -> Response:
        """Send the request; retry once if the connection broke before an answer and a repeat does no harm."""
        connection = self._connect()
        try:
            connection.settimeout(timeout)
            prefix = self.url.prefix if self.url else ""
            return exchange(connection, method, prefix + target, self._headers() | dict(extra), body)
        except TimeoutError as error:
            connection.close()
            raise Unreachable(f"{self._name} did not answer within {timeout:.0f}s.") from error
        except ConnectionError as error:
            connection.close()
            if retry:
                return self._answer(method, target, body, extra, retry=False, timeout=timeout)
            raise Unreachable(
                f"The connection to {self._name} broke before an answer: {error}.",
                hint="it may or may not have been done: check before you repeat it",
            ) from error
        except BaseException:
            connection.close()
            raise

    def _headers(self) -> dict[str, str]:
        headers = {"Host": self.url.authority if self.url else "localhost", "Accept": "application/json"}
        known = {} if self._as_account else read_credentials(self.key)
        if known.get("user"):
            headers["X-User"] = known["user"]
        if token := self._token(known):
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _token(self, known: Mapping[str, str]) -> str | None:
        """Return the token to send: a profile's goes only to its server, and no other goes there."""
        if self.profile and self.profile.token:
            return self.profile.token
        return (os.environ.get("PENSTOCK_TOKEN") or known.get("token")) if self.url else None

    @property
    def _name(self) -> str:
        return str(self.url) if self.url else "the local server"

    def _connect(self) -> socket.socket:
        if self.url is None:
            return self._connect_local()
        try:
            return connect_url(self.url, min(CONNECT_SECONDS, self._timeout))
        except OSError as error:
            hint = "check --api-url or PENSTOCK_API_URL; a server on this machine: penstock server start"
            if self.profile:
                hint = f"that is the server of profile {self.profile.name}; use another: penstock profile list"
            raise Unreachable(f"No server answers at {self.url}: {error.strerror or error}.", hint=hint) from error

    def _connect_local(self) -> socket.socket:
        """Connect to the machine's server, else the user's, else start the user's."""
        if sys.platform != "linux":
            raise Unreachable(
                "The embedded engine needs Linux, and no server is named.",
                hint="name one: export PENSTOCK_API_URL=https://… (or --api-url), then penstock auth login USERNAME",
            )
        machines, own = local_sockets()
        known = [self._socket] if self._stays else dict.fromkeys((machines, own))
        for path in filter(None, known):
            try:
                connection = connect_unix(path)
            except ConnectionRefusedError as error:
                if path == machines != own:
                    raise _machines_server_is_down(path) from error
            except (FileNotFoundError, NotADirectoryError):
                pass
            except PermissionError as error:
                if path != machines:
                    raise Unreachable(f"{path} may not be opened: {error.strerror}.") from error
            else:
                self._socket = path
                return connection
        if own is None:
            raise _machines_server_is_down(None)
        if self._start is None:
            raise Unreachable("No server is running.", hint="penstock server start")
        self._start()
        try:
            connection = connect_unix(own)
        except OSError as error:
            raise Unreachable(f"The server does not answer: {error}.", hint="penstock server logs") from error
        self._socket = own
        return connection

    def _error(self, answer: Response) -> PenstockError:
        """Make the server's exception again; a proxy's page of HTML becomes its status.

        A redirect is not followed: the token would go along.
        """
        if answer.status < 400:
            answer.close()
            there = answer.headers.get("location", "nowhere")
            said = f"{self._name} answered {answer.status}, which points to {there}; redirects are not followed."
            return Unreachable(said, hint="name the address itself: --api-url or PENSTOCK_API_URL")
        try:
            body = json.loads(answer.read())
        except (OSError, ValueError):
            body = None
        finally:
            answer.close()
        if body is None and answer.status in AWAY:
            return Unreachable(f"The server answered {answer.status}.")
        error = from_body(answer.status, body)
        if isinstance(error, Unauthenticated):
            error.hint = "\n".join([*([error.hint] if error.hint else []), self._how_to_log_in()])
        return error

    def _how_to_log_in(self) -> str:
        if self.profile:
            again = f"penstock profile init {self.profile.name} --force --api-server {self.url} --token -"
            return f"give the profile {self.profile.name} another token: {again}"
        login = f"penstock auth login NAME{f' --api-url {self.url}' if self.url else ''}"
        return f"{login}, with --token - where a token is asked for; or export PENSTOCK_TOKEN=…"


def _machines_server_is_down(left: str | None) -> Unreachable:
    """Its socket is there but nobody listens, or the machine is configured to have one. Another in its place would show
    another world, and could take the port that others show their tokens to."""
    gone = f"sudo rm {left}" if left else 'take mode = "system" out of /etc/penstock/config.toml'
    return Unreachable(
        "The machine's server is down.",
        hint=f"sudo penstock server start --system (if it is gone for good: {gone}; "
        "for a server of your own beside it: export PENSTOCK_MODE=user)",
    )


def _target(path: str, query: Query | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None and value is not False}
    pairs = [f"{key}={'true' if value is True else quote(str(value))}" for key, value in given.items()]
    return f"{path}?{'&'.join(pairs)}" if pairs else path
