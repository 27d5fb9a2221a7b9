"""Start the server in the background, once per data directory, and wait until it is healthy.

The new process gets the write end of a pipe (PENSTOCK_READY_FD) and writes one line of JSON to it: where it listens
once it is healthy, or the error that stopped it. End of file without a line means it died; its log says why.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from penstock.client.address import connect_unix
from penstock.config import load
from penstock.errors import StartRefused, from_body
from penstock.settings import Settings

START_SECONDS = 60
Overrides = dict[str, Any]


def start_local(overrides: Overrides | None = None) -> dict[str, Any] | None:
    """Start the server of this machine and give what it said when healthy; None if it runs already."""
    settings = checked_settings(overrides)
    with _start_lock(settings):
        if answers(settings):
            return None
        return _spawn(settings, overrides or {})


def checked_settings(overrides: Overrides | None) -> Settings:
    """Wrong settings are told here, by name, before anything is started."""
    if sys.platform != "linux":
        raise StartRefused(
            "The embedded engine needs Linux.", hint="name a server instead: export PENSTOCK_API_URL=https://…"
        )
    return load(overrides)


def answers(settings: Settings) -> bool:
    try:
        connect_unix(str(settings.socket_path)).close()
    except OSError:
        return False
    return True


def log_path(settings: Settings) -> Path:
    return settings.data_dir / "server.log"


def server_command() -> list[str]:
    """-P: a file called like one of ours in the current directory must not be run."""
    return [sys.executable, "-P", "-m", "penstock.server"]


def server_environment(overrides: Overrides) -> dict[str, str]:
    return os.environ | {f"PENSTOCK_{key.upper()}": str(value) for key, value in overrides.items() if value is not None}


@contextmanager
def _start_lock(settings: Settings) -> Iterator[None]:
    """Commands that find no server at the same moment start one between them."""
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o711 if settings.mode == "system" else 0o700)
        handle = os.open(settings.data_dir / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartRefused(
            f"The server cannot keep its data in {settings.data_dir}: {error.strerror}.",
            hint="choose another directory: PENSTOCK_DATA_DIR, or data_dir in config.toml",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _spawn(settings: Settings, overrides: Overrides) -> dict[str, Any]:
    reader, writer = os.pipe()
    environment = server_environment(overrides) | {"PENSTOCK_READY_FD": str(writer)}
    try:
        with _opened_log(settings) as log:
            before = log.tell()
            subprocess.Popen(
                server_command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                pass_fds=[writer],
                start_new_session=True,
            ).returncode = 0  # not ours to wait for: it outlives this command
    except OSError as error:
        os.close(reader)
        raise StartRefused(f"The server could not be started: {error}.") from error
    finally:
        os.close(writer)
    return _said(reader, settings, before)


def _opened_log(settings: Settings) -> IO[bytes]:
    """For its owner alone, also where an older one was made for all: it names people and what they do."""
    handle = os.open(log_path(settings), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.fchmod(handle, 0o600)
    return os.fdopen(handle, "ab")


def _said(reader: int, settings: Settings, before: int) -> dict[str, Any]:
    with os.fdopen(reader, "rb") as pipe:
        if not select.select([pipe], [], [], START_SECONDS)[0]:
            raise StartRefused(f"The server was not healthy after {START_SECONDS}s.", hint="penstock server logs")
        line = pipe.readline()
    if not line.endswith(b"\n"):
        hint = f"its log is {log_path(settings)}; the checks are: penstock doctor"
        raise StartRefused("The server ended before it was healthy" + _last_words(settings, before), hint=hint)
    said: dict[str, Any] = json.loads(line)
    if "error" in said:
        raise from_body(500, said["error"])
    return said


def _last_words(settings: Settings, before: int) -> str:
    """The last line it wrote to its log, which for a Python program is the error."""
    lines = log_path(settings).read_bytes()[before:].decode(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else "."
