"""Tells people of the states their workloads enter: by Telegram, or to a webhook of theirs.

What is to be told is in the store from the same write as the state, so a crash loses none of it. It is sent in the
background, several at once, and tried again for a day; nothing waits for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import ssl
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.domain.model import now
from penstock.domain.workloads import Spec
from penstock.engines.base import Refusal
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.outbox import Letter
from penstock.store.session import Store

log = logging.getLogger(__name__)
TELEGRAM = "telegram:"
SIGNATURE = "X-Penstock-Signature"
AT_ONCE = 64
SECONDS = 10.0
FIRST_WAIT, LONGEST_WAIT = 2.0, 600.0
GIVE_UP = timedelta(days=1)
BETWEEN_LOOKS = 0.5
"""Seconds: most of what is written concerns nobody here, and a busy server writes much."""


class NotHeard(Exception):
    """The other end did not take it; str() is why."""


def refusals(spec: Spec, settings: Settings) -> list[Refusal]:
    """Whom nobody can be told of anything: the admin decides where this server may send to."""
    found = []
    for notice in spec.notify:
        if notice.to.startswith(TELEGRAM):
            if not settings.telegram_token:
                hint = "ask the admin, who sets telegram_token"
                found.append(Refusal(keys=("notify",), message="this server has no Telegram bot", hint=hint))
        elif not any(_within(notice.to, address) for address in settings.webhooks):
            known = ", ".join(settings.webhooks) or "none"
            said = f"this server does not send to {notice.to}"
            found.append(Refusal(keys=("notify",), message=said, hint=f"the admin's setting webhooks allows: {known}"))
    return found


def _within(address: str, allowed: str) -> bool:
    """The same host, and at or below the same path."""
    asked, given = urlsplit(address), urlsplit(allowed)
    same = (asked.scheme, asked.netloc) == (given.scheme, given.netloc) and asked.scheme in ("http", "https")
    inside = (asked.path + "/").startswith(given.path.rstrip("/") + "/") and ".." not in unquote(asked.path)
    return same and inside


class Notifying:
    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings
        self._loop: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._loop = asyncio.create_task(self._send_when_due())

    async def close(self) -> None:
        if self._loop:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def _send_when_due(self) -> None:
        while True:
            try:
                version = self._db.version
                await self._send()
                soonest = await self._db.read(lambda tx: tx.outbox.next_due())
            except (PenstockError, OSError) as error:
                log.warning("nobody is told anything now: %s", error)
                await asyncio.sleep(FIRST_WAIT)
                continue
            wait = LONGEST_WAIT if soonest is None else (soonest - now()).total_seconds()
            if wait > 0:
                await self._db.changed(version, min(wait, LONGEST_WAIT))
            await asyncio.sleep(BETWEEN_LOOKS)

    async def _send(self) -> None:
        """Each recipient hears of states in the order they were entered, and waits for no other."""
        while letters := await self._db.read(lambda tx: tx.outbox.due(now(), AT_ONCE)):
            each: dict[str, list[Letter]] = {}
            for letter in letters:
                each.setdefault(letter.to, []).append(letter)
            await asyncio.gather(*map(self._deliver, each.values()))

    async def _deliver(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            try:
                await asyncio.to_thread(send, letter, self._settings)
            except NotHeard as error:
                if now() - letter.created_at < GIVE_UP:
                    await self._later(letter)
                    return
                log.warning("%s was not told for a day, and is not any more: %s", shown(letter.to), error)
            await self._db.write(partial(_done, letter))

    async def _later(self, letter: Letter) -> None:
        wait = min(FIRST_WAIT * 2.0 ** min(letter.tries, 12), LONGEST_WAIT)
        due = now() + timedelta(seconds=wait)
        await self._db.write(lambda tx: tx.outbox.later(letter, due))


def _done(letter: Letter, tx: Store) -> None:
    tx.outbox.done(letter.seq)


def send(letter: Letter, settings: Settings) -> None:
    if letter.to.startswith(TELEGRAM):
        address = f"{settings.telegram_api.rstrip('/')}/bot{settings.telegram_token}/sendMessage"
        said = {"chat_id": letter.to.removeprefix(TELEGRAM), "text": sentence(json.loads(letter.doc))}
        _post(address, json.dumps(said).encode(), {})
        return
    body = letter.doc.encode()
    _post(letter.to, body, {SIGNATURE: signature(body, settings.webhook_secret)} if settings.webhook_secret else {})


def signature(body: bytes, secret: str) -> str:
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def sentence(told: dict[str, Any]) -> str:
    """`train (abcd2345) is RUNNING`, and why, if there is more to say."""
    code = f", exit code {told['exit_code']}" if told.get("exit_code") is not None else ""
    why = f": {told['message']}" if told.get("message") else ""
    return f"{told['name']} ({told['id']}) is {told['state']}{code}{why}"


def shown(to: str) -> str:
    """A chat is nobody's secret; the path of a webhook often is one."""
    return to if to.startswith(TELEGRAM) else f"{urlsplit(to).scheme}://{urlsplit(to).netloc}/…"


def _post(address: str, body: bytes, headers: dict[str, str]) -> None:
    """No redirect is followed: it would lead where the admin has not allowed it."""
    parts = urlsplit(address)
    target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    connection: HTTPConnection = (
        HTTPSConnection(parts.netloc, timeout=SECONDS, context=ssl.create_default_context())
        if parts.scheme == "https"
        else HTTPConnection(parts.netloc, timeout=SECONDS)
    )
    try:
        connection.request("POST", target, body, {"Content-Type": "application/json", **headers})
        status = connection.getresponse().status
    except (OSError, HTTPException, ValueError) as error:
        raise NotHeard(str(error)) from error
    finally:
        connection.close()
    if not 200 <= status < 300:
        raise NotHeard(f"answered {status}")
