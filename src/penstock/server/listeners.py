"""The two sockets a server listens on: a Unix socket, always, and a TCP port where one is free."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from penstock.errors import StartRefused
from penstock.settings import Settings

TRIES = 10
LONGEST_PATH = 100


def unix_listener(settings: Settings) -> socket.socket:
    """Private to its user, or open to everyone in system mode: the kernel tells who calls. A stale file is replaced;
    the lock on the data directory says that nobody uses it."""
    path = settings.socket_path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if settings.mode == "system" else 0o700)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        _bind(listener, path)
    finally:
        os.umask(old)
    path.chmod(0o666 if settings.mode == "system" else 0o600)
    return listener


def _bind(listener: socket.socket, path: Path) -> None:
    """The kernel takes 107 bytes; a longer path is reached through a handle on its directory."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        listener.bind(str(path))
        return
    handle = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{handle}/{path.name}")
    finally:
        os.close(handle)


def tcp_listener(settings: Settings) -> tuple[socket.socket, list[str]]:
    """The port asked for, or one of the next that is free, or any; and the sentence that says so."""
    wanted = settings.port
    for port in [*range(wanted, min(wanted + TRIES, 65536)), 0] if wanted else [0]:
        try:
            listener = _listen(settings.host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            raise StartRefused(f"Cannot listen on {settings.host} port {port}: {error.strerror}.") from None
        used = listener.getsockname()[1]
        taken = [f"Port {wanted} is taken; using {used}."] if wanted and used != wanted else []
        return listener, taken
    raise StartRefused(f"No port is free on {settings.host}.")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise StartRefused(f"'{host}' is not an address to listen on: {error.strerror}.") from None
    listener = socket.socket(family, kind, proto)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
