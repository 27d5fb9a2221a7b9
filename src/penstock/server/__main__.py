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
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any

import uvicorn
import uvloop

from penstock.engines.base import Engine
from penstock.errors import PenstockError, StartRefused
from penstock.server.app import create_app
from penstock.server.listeners import address_of, tcp_listener, unix_listener
from penstock.server.parts import Parts
from penstock.server.peers import PeerProtocol, PeerSocket
from penstock.services.accounts import root_account
from penstock.settings import Settings, load
from penstock.store.database import Database
from penstock.store.lead import Lead
from penstock.wire import Check

log = logging.getLogger("penstock")
CHECKING = 5.0
"""Seconds for what is checked at the start."""
PATIENCE = 30.0
"""Seconds that a server whose place is taken has to let go of the data directory, if they share one."""
LARGEST_MESSAGE = 256 * 1024
"""Bytes of a WebSocket message that a client may send."""
PING_SECONDS = 20.0
"""So that proxies keep a connection on which nobody types."""


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
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it would tell of every request to a cluster
    try:
        settings = load()
        _refuse_nonsense(settings)
        with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if settings.replica == "refuse":
                _claim(settings, stack)
            runner.run(serve(settings, stack))
    except asyncio.CancelledError:
        log.info("ended before it listened")
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
    if os.geteuid() == 0 and settings.engine == "local":
        root_account(settings)
    ruled = settings.kubernetes_quota or settings.kubernetes_network != "open"
    if settings.engine == "kubernetes" and settings.kubernetes_namespaces == "one" and ruled:
        raise StartRefused(
            "kubernetes_quota and kubernetes_network are for namespaces that Penstock makes.",
            hint='Set kubernetes_namespaces to "user" or "group", or make them in your own namespace with kubectl.',
        )
    if settings.webhooks and not settings.webhook_secret:
        raise StartRefused(
            "webhooks is set and webhook_secret is not: nobody could tell what this server sends from a forgery.",
            hint="Set webhook_secret to what 'openssl rand -hex 32' says, and give it to those who listen there.",
        )
    if settings.auth == "header":
        _refuse_unsafe_headers(settings)


def _refuse_unsafe_headers(settings: Settings) -> None:
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


def _claim(settings: Settings, stack: ExitStack, patience: float = 0) -> None:
    """One server per directory: the lock is held as long as the process lives. One that is just ending has `patience`
    seconds to let go of it."""
    place = settings.data_dir
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o711 if settings.mode == "system" else 0o700)
        lock = stack.enter_context(os.fdopen(os.open(place / "server.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+"))
        os.fchmod(lock.fileno(), 0o600)  # nobody else may hold it
    except OSError as error:
        raise StartRefused(
            f"The data directory {place} cannot be used: {error.strerror}.", hint="See the setting data_dir."
        ) from None
    until = time.monotonic() + patience
    while not _lock(lock):
        if time.monotonic() >= until:
            lock.seek(0)
            raise StartRefused(
                f"Another server (process {lock.read().strip() or 'unknown'}) uses {place}.",
                hint="penstock server status",
            )
        time.sleep(0.1)
    lock.seek(0)
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def serve(settings: Settings, stack: ExitStack) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if hard > soft else (soft, hard))
    _end_when_told()
    if settings.replica == "wait":
        await _take_the_lead(settings, stack)
    tcp, notices = tcp_listener(settings)
    address = address_of(tcp)
    db = await Database.open(settings.url, lock=settings.replica == "refuse")
    parts = Parts.wire(settings, db, _engine(settings), address)
    try:
        await parts.open()
        unix = unix_listener(settings)
        notices += await _complaints(parts)
        ready = {"socket": str(settings.socket_path), "address": address, "notices": notices}
        await _listen(settings, parts, [unix, tcp], ready)
    finally:
        await parts.close()
        with suppress(OSError):
            settings.socket_path.unlink()


async def _complaints(parts: Parts) -> list[str]:
    """What doctor would say, unless that takes long: a cluster that does not answer keeps nobody from their lists."""
    try:
        async with asyncio.timeout(CHECKING):
            checks = await parts.engine.checks()
    except TimeoutError:
        return ["Not everything could be checked in time: penstock doctor says more."]
    return [_complaint(check) for check in checks if _broken(check)]


def _complaint(check: Check) -> str:
    return f"{check.detail.rstrip('.')}. Fix: {check.fix}" if check.fix else check.detail


def _end_when_told() -> None:
    """Until it listens; from then on it stops in order."""
    serving = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        if serving:
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)


async def _take_the_lead(settings: Settings, stack: ExitStack) -> None:
    """Stands by until no other server works on the database; from then on this one does, or ends."""
    lead = await Lead.take(settings.url)
    stack.callback(lead.close)
    lead.watch(_end_at_once)
    await asyncio.to_thread(_claim, settings, stack, PATIENCE)


def _end_at_once() -> None:
    """Another server may have taken over: nothing more may be done here, not even tidying up."""
    log.critical("lost the hold on the database: another server takes over")
    logging.shutdown()
    os._exit(1)


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
        ws=PeerSocket,
        ws_max_size=LARGEST_MESSAGE,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=None,  # see peers
        ws_per_message_deflate=False,
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
    if settings.engine == "local":
        from penstock.engines.local import LocalEngine

        return LocalEngine(settings)
    if settings.engine == "docker":
        from penstock.engines.docker.engine import DockerEngine

        return DockerEngine(settings)
    try:
        from penstock.engines.kubernetes.engine import KubernetesEngine
    except ModuleNotFoundError as error:
        raise StartRefused(
            f"What speaks to Kubernetes is not installed ({error.name}).", hint="pip install 'penstock[kubernetes]'"
        ) from None
    return KubernetesEngine(settings)


def _tell(line: dict[str, Any]) -> None:
    """One line to the one who waits, if anyone does."""
    number = os.environ.pop("PENSTOCK_READY_FD", "")
    if number.isdigit():
        with suppress(OSError), os.fdopen(int(number), "w") as pipe:
            pipe.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
