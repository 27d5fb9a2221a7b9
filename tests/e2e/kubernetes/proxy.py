"""What stands between a server and its cluster, for tests that are not asynchronous: a proxy on a loop of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tests.engines.kubernetes.proxy import Proxy
from tests.rig.cluster import Rig

T = TypeVar("T")

PATIENCE = 120.0
_WRITE = re.compile(r"^(POST|PATCH|PUT|DELETE) \S*?/namespaces/[^/]+/([a-z]+)|^(GET) \S+/pods/[^/]+/(exec)")


class Between(Proxy):
    """Kills a process at a certain write, such as the second `POST jobs`, before or after the cluster has done it."""

    def __init__(self, rig: Rig, *, admin: bool = True) -> None:
        """Whoever comes through it is an admin; otherwise who they prove to be themselves."""
        certificates = rig.control.certificates
        tls = (
            certificates.client_context("admin") if admin else ssl.create_default_context(cafile=certificates.authority)
        )
        super().__init__(certificates.server, tls)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._before = False
        self._what = ""
        self._left = 0
        self._victim = 0
        self._late = ""
        self._let_on = asyncio.Event()
        self.late = threading.Event()
        """Set when the write that `delay` named is on its way."""
        self.killed = threading.Event()
        self.writes: list[str] = []
        """What was written since the last `kill_at`: `POST jobs`, `PATCH services`, …"""

    # from a test's own thread

    def start(self) -> None:
        self._thread.start()
        self.do(self.up())

    def end(self) -> None:
        self.do(self.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(PATIENCE)

    def now(self, change: Callable[[], None]) -> None:
        """What is not asynchronous, but belongs to the loop."""

        async def make() -> None:
            change()

        self.do(make())

    def kill_at(self, moment: str, process: int) -> None:
        """`before POST jobs`, `after POST jobs`, `after 2nd POST jobs`."""
        when, _, what = moment.partition(" ")
        count, _, rest = what.partition(" ")
        counted = count[:1].isdigit()

        def arm() -> None:
            self._before, self._victim = when == "before", process
            self._what, self._left = (rest, int(count[:-2])) if counted else (what, 1)
            self.killed.clear()
            self.writes.clear()

        self.now(arm)

    def delay(self, what: str) -> None:
        """The next such write, `POST jobs`, arrives only after `let_on`, whatever became of who sent it."""

        def keep() -> None:
            self._late = what
            self._let_on.clear()
            self.late.clear()

        self.now(keep)

    def let_on(self) -> None:
        self.now(self._let_on.set)

    # what it does with requests

    async def asked(self, line: str) -> None:
        what = _write(line)
        if what and what == self._late:
            self._late = ""
            self.late.set()
            await self._let_on.wait()
        if what:
            self.writes.append(what)
        if self._before and self._is_it(what):
            self._kill()
            raise ConnectionResetError

    def answered(self, line: str) -> None:
        if not self._before and self._is_it(_write(line)):
            self._kill()

    def _is_it(self, what: str | None) -> bool:
        if what is None or what != self._what:
            return False
        self._left -= 1
        return self._left == 0

    def _kill(self) -> None:
        os.kill(self._victim, signal.SIGKILL)
        self.killed.set()


def _write(line: str) -> str | None:
    found = _WRITE.match(line)
    return f"{found[1] or found[3]} {found[2] or found[4]}" if found else None


@contextmanager
def between(rig: Rig, *, admin: bool = True) -> Iterator[Between]:
    proxy = Between(rig, admin=admin)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.end()
