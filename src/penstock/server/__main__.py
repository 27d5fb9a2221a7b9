"""`python -m penstock.server`: starts here, says on PENSTOCK_READY_FD that it is healthy or why it is not."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import ipaddress
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import uvicorn
import uvloop

from penstock.engines.base import Engine
from penstock.errors import PenstockError, StartRefused
from penstock.server.app import create_app
from penstock.server.listeners import address_of, tcp_listener, unix_listener
from penstock.server.parts import Parts
from penstock.server.peers import PeerProtocol
from penstock.services.accounts import root_account
from penstock.settings import Settings, load
from penstock.store.database import Database
from penstock.wire import Check

log = logging.getLogger("penstock")


class Announced(uvicorn.Server):
    """Tells the one who started it as soon as it listens."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None], stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce
        self._stopping = stopping

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own raises the signal again when it is done, and nothing after it is closed."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, number)
        yield

    def _stop(self, number: int) -> None:
        self._stopping()
        self.handle_exit(number, None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


def main() -> int:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    try:
        settings = load()
        _refuse_nonsense(settings)
        with ExitStack() as stack:
            _claim(settings, stack)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve(settings))
    except PenstockError as error:
        log.error("%s", error.body()["detail"])
        _tell({"error": error.body()})
        return error.exit_code
    except OSError as error:
        refused = StartRefused(f"The server cannot start: {error}.")
        log.error("%s", refused)
        _tell({"error": refused.body()})
        return 1
    except Exception as error:
        log.exception("a defect at the start")
        refused = StartRefused(f"The server met a defect of its own: {error}.", hint="penstock server logs")
        _tell({"error": refused.body()})
        return 1
    return 0


def _refuse_nonsense(settings: Settings) -> None:
    """Combinations of settings that would be unsafe."""
    if settings.mode == "system" and os.geteuid() != 0:
        raise StartRefused("Only root can start a server for everyone.", hint="penstock server start starts your own.")
    if os.geteuid() == 0:
        root_account(settings)
    if settings.auth != "header":
        return
    if settings.mode == "system":
        raise StartRefused("--auth header is for a server of one user; a system server takes tokens.")
    if settings.sandbox == "none":
        raise StartRefused('--auth header needs the sandbox: with sandbox = "none" jobs could speak as anyone.')
    if not _is_loopback(settings.host):
        raise StartRefused(f"--auth header listens on loopback only, and {settings.host} is not.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _claim(settings: Settings, stack: ExitStack) -> None:
    """One server per directory: the lock is held as long as the process lives."""
    place = settings.data_dir
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o711 if settings.mode == "system" else 0o700)
        lock = stack.enter_context(os.fdopen(os.open(place / "server.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+"))
        os.fchmod(lock.fileno(), 0o600)  # nobody else may hold it
    except OSError as error:
        raise StartRefused(
            f"The data directory {place} cannot be used: {error.strerror}.", hint="See the setting data_dir."
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise StartRefused(
            f"Another server (process {lock.read().strip() or 'unknown'}) uses {place}.", hint="penstock server status"
        ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()


async def serve(settings: Settings) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if hard > soft else (soft, hard))
    tcp, notices = tcp_listener(settings)
    address = address_of(tcp)
    parts = Parts.wire(settings, await Database.open(settings.url), _engine(settings), address)
    try:
        await parts.open()
        unix = unix_listener(settings)
        notices += [f"{check.detail} Fix: {check.fix}" for check in await parts.engine.checks() if _broken(check)]
        ready = {"socket": str(settings.socket_path), "address": address, "notices": notices}
        await _listen(settings, parts, [unix, tcp], ready)
    finally:
        await parts.close()
        with suppress(OSError):
            settings.socket_path.unlink()


def _broken(check: Check) -> bool:
    return check.required and not check.ok


async def _listen(settings: Settings, parts: Parts, sockets: list[socket.socket], ready: dict[str, Any]) -> None:
    app = create_app(settings, parts)
    gc.collect()
    gc.freeze()  # what is here now stays: looking through it again and again costs each request
    gc.set_threshold(20_000, 20, 20)
    config = uvicorn.Config(
        app,
        http=PeerProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    log.info("listening on %s and %s", ready["socket"], ready["address"])
    await Announced(config, lambda: _tell(ready), parts.stop_waiting).serve(sockets=sockets)


def _engine(settings: Settings) -> Engine:
    from penstock.engines.local import LocalEngine

    return LocalEngine(settings)


def _tell(line: dict[str, Any]) -> None:
    """One line to the one who waits, if anyone does."""
    number = os.environ.pop("PENSTOCK_READY_FD", "")
    if number.isdigit():
        with suppress(OSError), os.fdopen(int(number), "w") as pipe:
            pipe.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
