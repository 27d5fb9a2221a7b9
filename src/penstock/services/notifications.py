"""Notify people of the states their workloads enter, by Telegram or a webhook.

What is to be told is in the store from the same write as the state, so a crash loses none of it. It is sent in the
background and tried again for a day; nothing waits for it, and no recipient waits for another.

Webhooks go only to hosts that an admin allows. Each has one deadline for all of it, and a host that does not answer
holds up only what goes there: even its name is looked up in a thread of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import socket
import ssl
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import h11

from penstock.background import Tasks
from penstock.domain.model import now
from penstock.domain.workloads import Spec
from penstock.engines.base import Refusal
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.outbox import Notification

log = logging.getLogger(__name__)
TELEGRAM = "telegram:"
SIGNATURE = "X-Penstock-Signature"
FIRST_WAIT, LONGEST_WAIT = 2.0, 600.0
GIVE_UP = timedelta(days=1)
BETWEEN_LOOKS = 0.5
"""Seconds: most of what is written concerns nobody here, and a busy server writes much."""


def refusals(spec: Spec, settings: Settings) -> list[Refusal]:
    """Return the addresses to which this server may not send: the admin decides."""
    return [_refusal(notice.to, settings) for notice in spec.notify if not is_allowed(notice.to, settings)]


def _refusal(to: str, settings: Settings) -> Refusal:
    if to.startswith(TELEGRAM):
        hint = "ask the admin, who sets telegram_token"
        return Refusal(keys=("notify", to), message="this server has no Telegram bot", hint=hint)
    hosts = ", ".join(dict.fromkeys(map(host_of, settings.webhooks)))  # whoever submits may not know the paths
    hint = f"the admin's setting webhooks allows {f'addresses at {hosts}' if hosts else 'none'}"
    return Refusal(keys=("notify", to), message=f"this server does not send to {to}", hint=hint)


def is_allowed(to: str, settings: Settings) -> bool:
    if to.startswith(TELEGRAM):
        return bool(settings.telegram_token)
    return any(_within(to, address) for address in settings.webhooks)


def _within(address: str, allowed: str) -> bool:
    """Is it the same host, and at or below the same path?"""
    asked, given = urlsplit(address), urlsplit(allowed)
    same = (asked.scheme, asked.netloc) == (given.scheme, given.netloc) and asked.scheme in ("http", "https")
    inside = (asked.path + "/").startswith(given.path.rstrip("/") + "/") and ".." not in unquote(asked.path)
    return same and inside


class Notifications:
    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings
        self._tasks = Tasks()
        """One task looks for recipients, and one for each of them sends what they are to be told."""
        self._hosts: defaultdict[str, WebhookHost] = defaultdict(WebhookHost)

    async def open(self) -> None:
        self._tasks.start(self._look())

    async def close(self) -> None:
        await self._tasks.close()
        for host in self._hosts.values():
            host.close()

    async def _look(self) -> None:
        """Start a task for each recipient that has none."""
        while True:
            version = self._db.version
            try:
                recipients = await self._db.read(lambda tx: tx.outbox.recipients())
            except (PenstockError, OSError) as error:
                await _pause(error)
                continue
            for to in recipients:
                if to not in self._tasks:
                    self._tasks.start(self._tell(to), key=to)
            await self._db.changed(version, LONGEST_WAIT)
            await asyncio.sleep(BETWEEN_LOOKS)

    async def _tell(self, to: str) -> None:
        """Send all that this recipient is to be told, in order. What was written since the last look is seen by this
        one or, once it has ended, by the next `_look`."""
        while True:
            version = self._db.version
            try:
                notification = await self._db.read(lambda tx: tx.outbox.first(to))
                if notification:
                    await self._deliver(notification)
                elif self._db.version == version:
                    return
            except (PenstockError, OSError) as error:
                await _pause(error)

    async def _deliver(self, notification: Notification) -> None:
        wait = (notification.due_at - now()).total_seconds()
        if wait > 0:
            await asyncio.sleep(min(wait, LONGEST_WAIT))
            return
        try:
            await self._send(notification)
        except DeliveryFailed as error:
            if now() - notification.created_at < GIVE_UP:
                await self._later(notification)
                return
            log.warning("%s was not told for a day, and is not any more: %s", shown(notification.to), error)
        await self._db.write(lambda tx: tx.outbox.done(notification.seq))

    async def _later(self, notification: Notification) -> None:
        wait = min(FIRST_WAIT * 2.0 ** min(notification.tries, 12), LONGEST_WAIT)
        due = now() + timedelta(seconds=wait)
        await self._db.write(lambda tx: tx.outbox.later(notification, due))

    async def _send(self, notification: Notification) -> None:
        """Send it, unless the settings do not allow it any more."""
        if not is_allowed(notification.to, self._settings):
            raise DeliveryFailed("the settings do not allow it any more")
        address, body, headers = written(notification, self._settings)
        await self._hosts[host_of(address)].post(address, body, headers)


async def _pause(error: Exception) -> None:
    log.warning("not everybody is told now: %s", error)
    await asyncio.sleep(FIRST_WAIT)


def written(notification: Notification, settings: Settings) -> tuple[str, bytes, dict[str, str]]:
    """Return the address, the body, and the headers that prove who sent it."""
    if notification.to.startswith(TELEGRAM):
        address = f"{settings.telegram_api.rstrip('/')}/bot{settings.telegram_token}/sendMessage"
        said = {"chat_id": notification.to.removeprefix(TELEGRAM), "text": sentence(json.loads(notification.doc))}
        return address, json.dumps(said).encode(), {}
    body = notification.doc.encode()
    return notification.to, body, {SIGNATURE: signature(body, settings.webhook_secret)}


def signature(body: bytes, secret: str) -> str:
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def sentence(told: dict[str, Any]) -> str:
    """`train (abcd2345) is RUNNING`, and why, if there is more to say."""
    code = f", exit code {told['exit_code']}" if told.get("exit_code") is not None else ""
    why = f": {told['message']}" if told.get("message") else ""
    return f"{told['name']} ({told['id']}) is {told['state']}{code}{why}"


def shown(to: str) -> str:
    """Return an address as it may be logged: a chat is no secret, the path of a webhook often is one."""
    return to if to.startswith(TELEGRAM) else f"{host_of(to)}/…"


AT_ONCE = 64
"""Requests to one host."""
SECONDS = 10.0
"""For one request: from looking up the name to the status of the answer."""
PIECE = 1 << 16
LONGEST_HEAD = 1 << 16


class DeliveryFailed(Exception):
    """The recipient did not take a notification; str() is why."""


def host_of(address: str) -> str:
    """Return the part of an address that is never a secret: `https://hooks.example.org:8443`."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class WebhookHost:
    """The requests to one scheme, name and port."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE)
        self._thread = ThreadPoolExecutor(1, "penstock-post")

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def post(self, address: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Raise DeliveryFailed unless it answers 2xx in time. No redirect is followed: it would lead where the admin
        has not allowed it."""
        async with self._room:
            try:
                async with asyncio.timeout(SECONDS):
                    status = await self._ask(urlsplit(address), body, headers)
            except TimeoutError as error:
                raise DeliveryFailed(f"did not answer within {SECONDS:g} s") from error
            except (OSError, h11.ProtocolError, ValueError, RuntimeError) as error:
                raise DeliveryFailed(str(error)) from error
        if not 200 <= status < 300:
            raise DeliveryFailed(f"answered {status}")

    async def _ask(self, parts: SplitResult, body: bytes, headers: Mapping[str, str]) -> int:
        said = {
            "Host": parts.netloc.rpartition("@")[2],
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        request = h11.Request(method="POST", target=target, headers=list((said | dict(headers)).items()))
        reader, writer = await self._connect(parts)
        try:
            return await _status(reader, writer, request, body)
        finally:
            writer.transport.abort()

    async def _connect(self, parts: SplitResult) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first of its addresses that answers; none takes the time of the others."""
        secure, name = parts.scheme == "https", parts.hostname or ""
        port = parts.port or (443 if secure else 80)
        addresses, tls = await asyncio.get_running_loop().run_in_executor(self._thread, _found, name, port, secure)
        failed: OSError = OSError("it has no address")
        for address in addresses:
            try:
                async with asyncio.timeout(SECONDS / len(addresses)):
                    return await asyncio.open_connection(address, port, ssl=tls, server_hostname=name if tls else None)
            except OSError as error:
                failed = error
        raise failed


def _found(name: str, port: int, secure: bool) -> tuple[list[str], ssl.SSLContext | None]:
    """Return its addresses and whom to trust: to find out either can take long, so this runs in a thread."""
    known = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in known)), _authorities() if secure else None


@cache
def _authorities() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: h11.Request, body: bytes) -> int:
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)
    for event in (request, h11.Data(data=body), h11.EndOfMessage()):
        writer.write(http.send(event) or b"")
    await writer.drain()
    while True:
        answer = http.next_event()
        if answer is h11.NEED_DATA:
            http.receive_data(await reader.read(PIECE))
        elif isinstance(answer, h11.Response):
            return int(answer.status_code)
