"""The sockets a server listens on: a Unix socket, a TCP port, or those systemd hands over.

Callers show their tokens to whoever holds the port they know. A server whose port somebody may know therefore never
takes another one: whoever took it meanwhile, such as a job, would get the next token. It goes without TCP, says who
holds the port, and takes it when it is free. It listens on both loopback addresses, since `localhost` is either.

A server that restarts hands its own to itself in the same way: it becomes the new program by exec, so that nobody can
take the port in between, and callers wait instead of being refused.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.config import machine_port
from penstock.errors import StartRefused
from penstock.server.peers import who_listens
from penstock.settings import Settings
from penstock.wire.server import Check

TRIES = 10
LONGEST_PATH = 100
BESIDE = {"127.0.0.1": "::1", "0.0.0.0": "::1", "::1": "127.0.0.1"}  # noqa: S104
"""The address that `localhost` may mean beside this one."""
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""The errors of a machine without IPv6."""


def unix_listener(settings: Settings, handed: socket.socket | None = None) -> socket.socket:
    """Listen privately, or for everyone in system mode: the kernel tells who calls.

    A stale file is replaced; the lock on the data directory says that nobody uses it.
    """
    path = settings.socket_path
    listener = handed or _bound(settings, path)
    path.chmod(0o666 if settings.mode == "system" else 0o600)
    return listener


def _bound(settings: Settings, path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755 if settings.mode == "system" else 0o700)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        _bind(listener, path)
    finally:
        os.umask(old)
    return listener


def has_short_path(path: Path) -> bool:
    return len(os.fsencode(path)) <= LONGEST_PATH


def _bind(listener: socket.socket, path: Path) -> None:
    """Bind a socket; a path longer than the kernel's 107 bytes goes through a handle on its directory."""
    if has_short_path(path):
        listener.bind(str(path))
        return
    handle = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{handle}/{path.name}")
    finally:
        os.close(handle)


@dataclass
class TcpPort:
    """The TCP port of a server, or why it has none."""

    host: str
    number: int
    sockets: list[socket.socket] = field(default_factory=list)
    notice: str | None = None
    problem: str | None = None
    fix: str | None = None
    waits: bool = False
    """True if the port is taken as soon as it is free."""

    @property
    def address(self) -> str | None:
        if not self.sockets:
            return None
        host, port = self.sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def take(self) -> bool:
        """Try to take the port, and tell whether that worked."""
        try:
            self.sockets = _listen(self.host, self.number)
        except OSError:
            return False
        self.problem, self.fix, self.waits = None, None, False
        return True

    def look(self) -> None:
        self.problem = (
            f"{who_listens(self.number)}, so this server has no TCP port: it answers on its Unix socket alone, "
            "and takes the port when it is free"
        )

    def check(self) -> Check:
        """Return the check for `penstock doctor`."""
        detail = self.problem or f"listening on {self.address}"
        return Check(name="port", ok=self.problem is None, detail=detail, fix=self.fix, required=True)


def handed_port(settings: Settings, handed: Sequence[socket.socket]) -> TcpPort | None:
    """Return the TCP port that was opened for us before the start, if any."""
    ours = [each for each in handed if each.family != socket.AF_UNIX]
    if settings.auth == "header" and any(not is_loopback(each.getsockname()[0]) for each in ours):
        raise StartRefused("--auth header listens on loopback only, and a socket that was handed over does not.")
    return TcpPort(settings.host, ours[0].getsockname()[1], list(ours)) if ours else None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_port(settings: Settings, *, chosen: bool, known: bool) -> TcpPort:
    """Open the requested port. If it is taken: one of the next, if nobody has `chosen` it and nobody is `known` by a
    token; else none for now."""
    host, wanted, machines = settings.host, settings.port, machine_port(settings)
    if not wanted:
        return _any_port(host)
    if settings.mode == "system" or chosen or known:
        wanted = wanted if chosen else _remembered(settings) or wanted
        return _machines(host, wanted) if wanted == machines else _this_port(host, wanted)
    port = _next_port(host, wanted, machines)
    if port.number != wanted:
        why = "the machine's own server's" if wanted == machines else "taken"
        port.notice = f"Port {wanted} is {why}; using {port.number}."
    _remember(settings, port.number)
    return port


def _remember(settings: Settings, number: int) -> None:
    """Keep the port for the next start: somebody may know it by then."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with suppress(OSError), os.fdopen(os.open(settings.data_dir / "port", flags, 0o600), "w") as file:
        file.write(f"{number}\n")


def _next_port(host: str, wanted: int, machines: int | None) -> TcpPort:
    for number in range(wanted, min(wanted + TRIES, 65536)):
        port = TcpPort(host, number)
        if number != machines and _taken(port):
            return port
    return _any_port(host)


def _remembered(settings: Settings) -> int | None:
    try:
        text = (settings.data_dir / "port").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 65536 else None


def _taken(port: TcpPort) -> bool:
    """Tell whether the port is ours now; an error other than "in use" ends the start."""
    try:
        port.sockets = _listen(port.host, port.number)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise StartRefused(f"Cannot listen on {port.host} port {port.number}: {error.strerror}.") from None
    port.number = port.sockets[0].getsockname()[1]
    return True


def _this_port(host: str, number: int) -> TcpPort:
    port = TcpPort(host, number)
    if not _taken(port):
        port.look()
        port.fix = "end that process, or set another port (port in config.toml) and tell those who have tokens"
        port.waits = True
    return port


def _machines(host: str, number: int) -> TcpPort:
    return TcpPort(
        host,
        number,
        problem=f"Port {number} is that of this machine's own server, so this one has no TCP port",
        fix="set another: port in your config.toml, or penstock server start --port",
    )


def _any_port(host: str) -> TcpPort:
    for _ in range(TRIES):
        port = TcpPort(host, 0)
        if _taken(port):
            return port
    raise StartRefused(f"No port is free on {host}.")


def _listen(host: str, number: int) -> list[socket.socket]:
    """Listen on all addresses, or none."""
    first = _listener(host, number)
    address, port = first.getsockname()[:2]
    if address not in BESIDE:
        return [first]
    try:
        return [first, _listener(BESIDE[address], port)]
    except OSError as error:
        if error.errno in ABSENT:
            return [first]
        first.close()
        raise


def _listener(host: str, port: int) -> socket.socket:
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


FIRST = 3
VARIABLES = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES")


def inherited_listeners() -> list[socket.socket]:
    """Return the sockets handed to this process, each checked. Call it once: children inherit none of them."""
    count, meant = (os.environ.get(name, "") for name in VARIABLES[:2])
    for name in VARIABLES:
        os.environ.pop(name, None)
    if not count.isdigit() or meant != str(os.getpid()):
        return []
    return [_inherited_listener(number) for number in range(FIRST, FIRST + int(count))]


def _inherited_listener(number: int) -> socket.socket:
    try:
        os.set_inheritable(number, False)
        found = socket.socket(fileno=number)
    except OSError as error:
        raise StartRefused(f"Descriptor {number} of LISTEN_FDS is not a socket: {error.strerror}.") from None
    streams = found.family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
    if not streams or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise StartRefused(
            f"Descriptor {number} of LISTEN_FDS is not a listening TCP or Unix socket.",
            hint="The socket unit has ListenStream= lines only; see docs/server.md.",
        )
    return found


def unix_of(found: Sequence[socket.socket], path: Path) -> socket.socket | None:
    """Return the Unix socket among them, which must be at the path where every command looks for it."""
    ours = [each for each in found if each.family == socket.AF_UNIX]
    wrong = [each.getsockname() for each in ours if each.getsockname() != str(path)]
    if wrong or len(ours) > 1:
        raise StartRefused(f"A Unix socket was handed over that is not {path}: {', '.join(map(str, wrong))}.")
    return ours[0] if ours else None


def become_anew(kept: Sequence[socket.socket]) -> None:
    """Replace this process with a new server that has these sockets. Does not return."""
    high = [fcntl.fcntl(each.fileno(), fcntl.F_DUPFD_CLOEXEC, FIRST + len(kept) + 1) for each in kept]
    for number, source in enumerate(high, FIRST):
        os.dup2(source, number, inheritable=True)
    handed = {"LISTEN_FDS": str(len(kept)), "LISTEN_PID": str(os.getpid())} if kept else {}
    os.execve(sys.executable, [sys.executable, "-P", "-m", "penstock.server"], os.environ | handed)  # noqa: S606
