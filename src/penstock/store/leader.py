"""Elect one of several servers on one PostgreSQL database by a lock.

The lock is held on a connection that does nothing else, and the kernel tells as soon as that is gone. Then another may
have the lock already, so whoever lost it must not do one thing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy import URL, create_engine
from sqlalchemy.pool import NullPool

from penstock.errors import StartRefused, Unavailable
from penstock.store.connections import CONNECT_SECONDS, LOCK, SEEN_SOON, make_engine, parse_url, translated

log = logging.getLogger(__name__)
LOOK = 1.0
"""Seconds between two tries to get the lock."""

# The kernel gives up on a server that does not answer long before that server lets go of the lock.
_SEEN_SOON_HERE = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


class Leader:
    """The server that holds the lock. Use `await Leader.take(url)`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    async def take(cls, address: str) -> Leader:
        """Take the lock, and wait as long as another server has it."""
        url = parse_url(address)
        if url.get_backend_name() != "postgresql":
            raise StartRefused(
                'replica = "wait" needs PostgreSQL: SQLite is for one server.', hint="Set database_url, or no replica."
            )
        make_engine(url, writes=False).dispose()  # says so if the driver is missing
        told = False
        while True:
            connection = await cls._try(url, first=not told)
            if connection is not None:
                return cls(connection)
            if not told:
                log.info("another server works on this database: standing by to take over")
                told = True
            await asyncio.sleep(LOOK)

    @classmethod
    async def _try(cls, url: URL, first: bool) -> Any:
        """Return a connection that holds the lock; None if another server does, or if the database does not answer just
        now."""
        try:
            return await asyncio.to_thread(_locked, url)
        except Exception as error:
            reason = translated(error)
            if not isinstance(reason, Unavailable):
                raise
            if first:
                raise StartRefused(reason.message, hint=reason.hint) from None
            log.warning("%s", reason.message)
            return None

    def watch(self, lost: Callable[[], None]) -> None:
        asyncio.get_running_loop().add_reader(self._connection.fileno(), self._look, lost)

    def _look(self, lost: Callable[[], None]) -> None:
        """Something came from the database, unasked: a notice, or its end."""
        from psycopg import Error
        from psycopg.pq import ConnStatus

        try:
            self._connection.pgconn.consume_input()
        except Error:
            lost()
            return
        if self._connection.pgconn.status != ConnStatus.OK:
            lost()

    def close(self) -> None:
        """The next one may have it. Nobody watches any more: the loop has ended before."""
        self._connection.close()


def _locked(url: URL) -> Any:
    engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool, connect_args=_SEEN_SOON_HERE)
    pooled = engine.raw_connection()
    connection: Any = pooled.driver_connection
    pooled.detach()
    try:
        connection.autocommit = True
        for statement in SEEN_SOON:
            connection.execute(statement)
        [(got,)] = connection.execute(f"SELECT pg_try_advisory_lock({LOCK})").fetchall()
    except BaseException:
        connection.close()
        raise
    if got:
        return connection
    connection.close()
    return None
