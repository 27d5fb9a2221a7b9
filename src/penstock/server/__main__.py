"""`python -m penstock.server`: start, and tell on PENSTOCK_READY_FD that it is healthy or why not."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import importlib
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import IO, Any

import uvicorn
import uvloop

from penstock.config import is_set, load
from penstock.domain.engines import ENGINES
from penstock.domain.policy import Kind
from penstock.engines.base import Engine, HasCluster
from penstock.engines.shared.disk import disk_of
from penstock.errors import PenstockError, StartRefused
from penstock.server.app import create_app
from penstock.server.limits import Connections
from penstock.server.listeners import (
    TcpPort,
    become_anew,
    handed_port,
    has_short_path,
    inherited_listeners,
    is_loopback,
    open_port,
    unix_listener,
    unix_of,
)
from penstock.server.parts import Parts
from penstock.server.peers import PeerProtocol, PeerSocket, close_stalled
from penstock.server.routes.server import RESTART
from penstock.server.secret_files import with_secrets
from penstock.services.people.accounts import root_account
from penstock.settings import Settings
from penstock.store.database import Database
from penstock.store.leader import Leader
from penstock.wire.server import Check

log = logging.getLogger("penstock")
CHECK_SECONDS = 5.0
"""For what is checked at the start."""
HANDOVER_SECONDS = 30.0
"""What a server whose place is taken has to let go of the data directory, if they share one."""
LARGEST_MESSAGE = 256 * 1024
"""Bytes of a WebSocket message that a client may send."""
PING_SECONDS = 20.0
"""Keeps proxies from closing a connection on which nobody types."""
TICKS = 10
"""Of uvicorn's, in a second."""
LOOKS = 30 * TICKS
"""Ticks until it is looked again who holds our port."""


class Server(uvicorn.Server):
    """uvicorn's server, which tells the one who started it that it listens, restarts and waits for its port."""

    def __init__(self, config: uvicorn.Config, parts: Parts, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._parts = parts
        self._announce = announce
        self._sockets: list[socket.socket] = []
        self.kept: list[socket.socket] | None = None
        """Sockets for the server that takes our place in a restart."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals here: uvicorn raises them again when it is done, and what comes after is not closed."""
        for number in (signal.SIGTERM, signal.SIGINT, RESTART):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, number)
        yield

    def _stop(self, number: int) -> None:
        if number == RESTART and not self.should_exit:
            self.kept = [each.dup() for each in self._sockets]
        self._parts.stop_waiting()
        self.handle_exit(number, None)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            close_stalled(self.server_state.connections)
            port = self._parts.port
            if port.waits and port.take():
                await self._serve_on_port()
            elif port.waits and counter % LOOKS == 0:
                await asyncio.to_thread(port.look)
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._sockets = sockets or []
        await super().startup(sockets)
        self._announce()

    async def _serve_on_port(self) -> None:
        """Do what startup does for sockets that are there from the beginning."""
        port = self._parts.port
        self._sockets += port.sockets
        protocol = partial(PeerProtocol, self.config, self.server_state, self.lifespan.state)
        for each in port.sockets:
            server = await asyncio.get_running_loop().create_server(protocol, sock=each, backlog=self.config.backlog)
            self.servers.append(server)
        log.info("port %d is free by now: listening on %s", port.number, port.address)


def main() -> int:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it would tell of every request to a cluster
    signal.signal(RESTART, lambda *_: None)  # until it listens, it is just starting
    try:
        settings = with_secrets(load())
        _refuse_nonsense(settings)
        with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if settings.replica == "refuse":
                _claim(settings, stack)
            kept = runner.run(serve(settings, stack, inherited_listeners()))
        if kept is not None:
            become_anew(kept)
    except asyncio.CancelledError:
        log.info("ended before it listened")
    except PenstockError as error:
        return _refused(error)
    except OSError as error:
        return _refused(StartRefused(f"The server cannot start: {error}."))
    except Exception as error:
        log.exception("a defect at the start")
        return _refused(StartRefused(f"The server met a defect of its own: {error}.", hint="penstock server logs"))
    return 0


def _refused(error: PenstockError) -> int:
    log.error("%s", error.body()["detail"])
    _tell({"error": error.body()})
    return error.exit_code


def _refuse_nonsense(settings: Settings) -> None:
    """Refuse combinations of settings that would be unsafe."""
    if settings.mode == "system" and os.geteuid() != 0:
        raise StartRefused("Only root can start a server for everyone.", hint="penstock server start starts your own.")
    if os.geteuid() == 0 and ENGINES[settings.engine].here:
        root_account(settings)
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
    if not is_loopback(settings.host):
        raise StartRefused(f"--auth header listens on loopback only, and {settings.host} is not.")


def _claim(settings: Settings, stack: ExitStack, patience: float = 0) -> None:
    """Lock the data directory for as long as the process lives; who is just ending has `patience` seconds."""
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
            holder = lock.read().strip() or "unknown"
            raise StartRefused(f"Another server (process {holder}) uses {place}.", hint="penstock server status")
        time.sleep(0.1)
    lock.write(str(os.getpid()))  # over what is there: on a full disk there is room for no more
    lock.truncate()
    lock.flush()


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def serve(settings: Settings, stack: ExitStack, handed: list[socket.socket]) -> list[socket.socket] | None:
    """Serve until told to stop; return the sockets for a new server if told to restart."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _end_when_told()
    if settings.replica == "wait":
        await _take_the_lead(settings, stack)
    handed_unix = unix_of(handed, settings.socket_path)
    db = await Database.open(settings.url, lock=settings.replica == "refuse")
    port = await _port(settings, db, handed)
    parts = Parts(settings, db, _engine(settings), port)
    try:
        await parts.open()
        unix = unix_listener(settings, handed_unix)
        notices = [port.notice] if port.notice else []
        checks = [port.check(), disk_of(settings).check(), *await _checks(parts)]
        notices += [_complaint(check) for check in checks if check.required and not check.ok]
        ready = {"socket": str(settings.socket_path), "address": port.address, "notices": notices}
        return await _listen(settings, parts, [unix, *port.sockets], ready)
    finally:
        await parts.close()


async def _port(settings: Settings, db: Database, handed: list[socket.socket]) -> TcpPort:
    try:
        known = await db.read(lambda tx: tx.tokens.any() or bool(tx.registered.all(Kind.User)))
        return handed_port(settings, handed) or open_port(settings, chosen=is_set("port"), known=known)
    except BaseException:
        await db.close()
        raise


async def _checks(parts: Parts) -> Sequence[Check]:
    """Check the engine, unless that takes long: a cluster that does not answer keeps nobody from their lists."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await parts.engine.checks()
    except TimeoutError:
        said = "Not everything could be checked in time: penstock doctor says more."
        return [Check(name="checks", ok=False, detail=said)]


def _complaint(check: Check) -> str:
    return f"{check.detail.rstrip('.')}. Fix: {check.fix}" if check.fix else check.detail


def _end_when_told() -> None:
    """Let signals end the start; once it listens, it stops in order."""
    serving = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        if serving:
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)


async def _take_the_lead(settings: Settings, stack: ExitStack) -> None:
    """Stand by until no other server works on the database; from then on this one does, or ends."""
    lead = await Leader.take(settings.url)
    stack.callback(lead.close)
    lead.watch(lambda: _end_at_once("lost the hold on the database: another server takes over"))
    await asyncio.to_thread(_claim, settings, stack, HANDOVER_SECONDS)


def _end_at_once(why: str) -> None:
    """End without even tidying up: another server may have taken over."""
    log.critical("%s", why)
    logging.shutdown()
    os._exit(1)


async def _listen(
    settings: Settings, parts: Parts, sockets: list[socket.socket], ready: dict[str, Any]
) -> list[socket.socket] | None:
    PeerProtocol.counted = Connections(settings.address_connections)
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
    log.info("listening on %s and %s", ready["socket"], ready["address"] or "no TCP port")
    for notice in ready["notices"]:
        log.warning("%s", notice)
    server = Server(config, parts, lambda: _tell(ready))
    await server.serve(sockets=sockets)
    if server.kept and settings.replica == "wait":
        return []  # a replica that stands by does not answer, so it must hold no socket
    if server.kept and not has_short_path(settings.socket_path):
        return server.kept[1:]  # a long path does not come back as it was
    return server.kept


def _engine(settings: Settings) -> Engine:
    entry = ENGINES[settings.engine]
    module, name = entry.path.split(":")
    try:
        made = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise StartRefused(
            f"What the engine {settings.engine} needs is not installed ({error.name}).",
            hint=f"in a checkout of Penstock: pip install '{entry.install}'",
        ) from None
    engine: Engine = made(settings)
    if isinstance(engine, HasCluster):
        engine.lost = _end_at_once
    return engine


def _tell(line: dict[str, Any]) -> None:
    """Write one line to whoever started this server, if they wait for it."""
    number = os.environ.pop("PENSTOCK_READY_FD", "")
    if number.isdigit():
        with suppress(OSError), os.fdopen(int(number), "w") as pipe:
            pipe.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
