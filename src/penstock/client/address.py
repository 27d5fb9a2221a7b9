"""Find the server: a URL that was named, the machine's server or the user's own.

Paths are text here: importing pathlib would slow every command.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import NamedTuple

from penstock.errors import BadName, SettingsError

SYSTEM_SOCKET = "/run/penstock/penstock.sock"
CONNECT_SECONDS = 10.0
SHORT_PATH = 100
"""A Unix socket's path may have 107 bytes on Linux, 103 on macOS."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")

_CHARACTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"


class Url(NamedTuple):
    scheme: str
    host: str
    port: int
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.prefix}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def in_the_clear(self) -> bool:
        """True if a network could read what is sent."""
        return self.scheme == "http" and self.host not in LOOPBACK


def quote(text: str) -> str:
    """Percent-encode text for a path segment or a query value."""
    return "".join(chr(b) if b in _CHARACTERS else f"%{b:02X}" for b in text.encode("utf-8", "surrogateescape"))


def segment(name: str) -> str:
    """Return a name or id as a path segment; refuse what would make it the address of something else."""
    if not name.strip():
        raise BadName("A name is missing: an empty one names nothing.")
    if "/" in name or name in (".", "..") or not name.isprintable():
        last = name.rpartition("/")[2]
        hint = f"Did you mean {last}?" if last.isprintable() and last not in ("", ".", "..") else None
        raise BadName(f"{name!r} is not a name or id: those have letters, digits, '.', '_' and '-'.", hint=hint)
    return quote(name)


def parse_url(text: str) -> Url:
    scheme, mark, rest = text.strip().rstrip("/").partition("://")
    authority, slash, path = rest.partition("/")
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, "443" if scheme == "https" else "80"
    host = host.removeprefix("[").removesuffix("]").lower()
    if scheme not in ("http", "https") or not mark or not host or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"'{text}' is not the address of a server.", hint="for example http://127.0.0.1:8000")
    if "@" in host or not (host + path).isprintable() or " " in host + path:
        raise SettingsError(f"'{text}' is not the address of a server.", hint="no user, password or blanks in it")
    return Url(scheme, host, int(port), slash + path)


def named_url(flag: str | None) -> Url | None:
    """Return the address chosen by flag or variable; None is the server of this machine."""
    named = flag or os.environ.get("PENSTOCK_API_URL") or os.environ.get("K8S_CLI_API_URL")
    return parse_url(named) if named else None


def config_dir() -> str:
    return _xdg("XDG_CONFIG_HOME", ".config")


class Sockets(NamedTuple):
    """The sockets a server of this machine may listen on. A server for everyone is never substituted by another."""

    machines: str | None
    """None if the user chose a server of their own: `mode = "user"`."""
    own: str | None
    """None if the machine is configured for one server, which only root starts: `mode = "system"`."""


def local_sockets() -> Sockets:
    """Return the sockets from the settings, which are loaded only if anything is set."""
    files = ("/etc/penstock/config.toml", f"{config_dir()}/config.toml")
    if any(map(os.path.exists, files)) or "PENSTOCK_MODE" in os.environ:
        from penstock.config import load, wants_own_server

        found = load()
        own = None if found.mode == "system" and os.geteuid() else str(found.socket_path)
        return Sockets(None if wants_own_server() else str(found.system_socket), own)
    system = os.environ.get("PENSTOCK_SYSTEM_SOCKET") or SYSTEM_SOCKET
    data_dir = os.environ.get("PENSTOCK_DATA_DIR") or _xdg("XDG_DATA_HOME", ".local/share")
    for variable, path in (("PENSTOCK_SYSTEM_SOCKET", system), ("PENSTOCK_DATA_DIR", data_dir)):
        if not path.startswith("/"):
            raise SettingsError(f"{variable} must be an absolute path.", hint=f"it is '{path}'")
    return Sockets(system, f"{data_dir}/penstock.sock")


def _xdg(variable: str, fallback: str) -> str:
    given = os.environ.get(variable, "")
    base = given if given.startswith("/") else f"{os.environ.get('HOME', '')}/{fallback}"
    return f"{base}/penstock"


def connect_unix(path: str) -> socket.socket:
    """Connect; raise OSError if no server answers."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if len(os.fsencode(path)) <= SHORT_PATH or sys.platform != "linux":
            connection.connect(path)
        else:
            _connect_long(connection, path)
    except OSError:
        connection.close()
        raise
    return connection


def _connect_long(connection: socket.socket, path: str) -> None:
    """Connect to a path too long for a socket address, through a handle on its directory."""
    directory, _, name = path.rpartition("/")
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{name}")
    finally:
        os.close(folder)


def connect_url(url: Url, seconds: float = CONNECT_SECONDS) -> socket.socket:
    connection = socket.create_connection((url.host, url.port), timeout=seconds)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if url.scheme == "http":
        return connection
    import ssl

    try:
        return ssl.create_default_context().wrap_socket(connection, server_hostname=url.host)
    except OSError:
        connection.close()
        raise
