"""Send one request to the API server, and repeat it where that may help; stream long answers.

Every call can be repeated without harm (names are derived, never generated), so what may pass is repeated, with
growing pauses and not before the server asks for it, for as long as the patience lasts.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from time import monotonic
from typing import Any

import httpx2
import msgspec

from penstock.background import Backoff
from penstock.engines.kubernetes.api import errors
from penstock.engines.kubernetes.api.connection import CALL_TIMEOUT, Connection
from penstock.engines.kubernetes.api.errors import KubernetesError, KubernetesUnavailable

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


class RetryPauses:
    """Pauses that grow, and are never the same for two who wait for the same thing."""

    def __init__(self) -> None:
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)

    def next(self, error: Exception | None = None) -> float:
        """Seconds to wait now: at least as many as the server asked for."""
        asked = error.retry_after if isinstance(error, KubernetesError) else None
        return max(asked or 0.0, self._backoff.next() * random.uniform(0.5, 1))  # noqa: S311


class ApiRequests:
    def __init__(self, connection: Connection, patience: float) -> None:
        self._connection = connection
        self._patience = patience
        self._leaving: set[asyncio.Future[None]] = set()
        self.trouble: str | None = None
        """Why the last call failed; None when calls succeed."""

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: object = None,
        content: str = "application/json",
    ) -> bytes:
        sent = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": "application/json"} | ({"Content-Type": content} if sent else {})
        end = monotonic() + self._patience
        pauses = RetryPauses()
        while True:
            try:
                answer = await self._once(method, path, params, sent, headers)
            except KubernetesUnavailable as error:
                if self.trouble is None:
                    log.warning("%s; trying again", error.message)
                self.trouble = error.message
                pause = pauses.next(error)
                if monotonic() + pause > end:
                    raise
                await asyncio.sleep(pause)
            else:
                if self.trouble is not None:
                    log.warning("the API server answers again")
                self.trouble = None
                return answer

    async def _once(
        self, method: str, path: str, params: Mapping[str, Any] | None, body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        with self._transport():
            response = await self._connection.send(method, path, params=params, body=body, headers=headers)
        if response.status_code >= 400:
            raise _refusal(response)
        return response.content

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, Any], quiet: float, begins: float | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """Stream an answer's bytes as they come.

        KubernetesUnreachable where it breaks, does not begin within `begins` seconds or says nothing for `quiet`.
        """
        timeout = httpx2.Timeout(30, connect=5, read=quiet)
        with self._transport():
            async with asyncio.timeout(begins):
                response = await self._opened(path, params, {"Accept-Encoding": "identity"}, timeout)
        try:
            if response.status_code >= 400:
                raise await self._read_refusal(response)
            async with aclosing(self._chunks(response)) as chunks:
                yield chunks
        finally:
            await response.aclose()

    async def upgraded(self, path: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> httpx2.Response:
        """Return an answer that switches protocols; its connection belongs to the caller."""
        response = await self._opened(path, params, headers, CALL_TIMEOUT)
        if response.status_code == 101:
            return response
        try:
            raise await self._read_refusal(response)
        finally:
            await response.aclose()

    async def _opened(
        self, path: str, params: Mapping[str, Any], headers: Mapping[str, str], timeout: httpx2.Timeout
    ) -> httpx2.Response:
        request = asyncio.ensure_future(
            self._connection.send("GET", path, params=params, headers=headers, timeout=timeout, stream=True)
        )
        with self._transport():
            try:
                return await asyncio.shield(request)
            except asyncio.CancelledError:
                self._leaving.add(leaving := asyncio.ensure_future(_leave(request)))
                leaving.add_done_callback(self._leaving.discard)
                raise

    async def close(self) -> None:
        """Finish connections nobody wants any more, and close them: one that is cut off while it is made stays open."""
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def _chunks(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        with self._transport():
            async with aclosing(response.aiter_raw()) as raw:
                async for chunk in raw:
                    yield chunk

    async def _read_refusal(self, response: httpx2.Response) -> KubernetesError:
        with self._transport():
            await response.aread()
        return _refusal(response)

    @contextmanager
    def _transport(self) -> Iterator[None]:
        try:
            yield
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError) as error:
            raise errors.from_transport(error, self._connection.server) from error


async def _leave(request: asyncio.Future[httpx2.Response]) -> None:
    with suppress(httpx2.HTTPError, httpx2.StreamError, KubernetesError):
        response = await request
        await response.aclose()


def _refusal(response: httpx2.Response) -> KubernetesError:
    return errors.from_answer(response.status_code, response.content, response.headers.get("retry-after"))


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Split into lines, each with its newline; the last one may lack it if the stream ends well."""
    parts: list[bytes] = []
    async for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield b"".join([*parts, end, b"\n"])
            parts.clear()
        if rest:
            parts.append(rest)
    if parts:
        yield b"".join(parts)
