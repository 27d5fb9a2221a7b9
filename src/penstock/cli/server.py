"""`penstock server`: start, stop and show the server of this machine.

A server that is started in the background gets the write end of a pipe (PENSTOCK_READY_FD) and writes one line of JSON
to it: where it listens once it is healthy, or the error that stopped it. End of file without a line means it died; its
log says why. A lock keeps two commands from starting two servers for one data directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import click

from penstock.cli.ui.command import LazyGroup
from penstock.cli.ui.options import output_option
from penstock.cli.ui.output import echo, note, print_data, print_facts, show_hint, show_notices
from penstock.cli.ui.table import short_time
from penstock.client.address import connect_unix
from penstock.client.api import Client
from penstock.config import load, machine_port, wants_own_server
from penstock.errors import Conflict, StartRefused, Unreachable, from_body
from penstock.settings import Settings

STOP_SECONDS = 60.0
START_SECONDS = 60
SERVER = [sys.executable, "-P", "-m", "penstock.server"]
"""The command of a server. -P keeps modules in the current directory from being run."""

Overrides = dict[str, Any]


@click.group(cls=LazyGroup)
def server() -> None:
    """Start, stop and look at the server of this machine."""


def start_on_demand() -> None:
    """Start the server for a command that found none, and say so in one line."""
    said = _start_local({})
    if said is None:
        return
    note(f"Started the local Penstock server (data in {load().data_dir}; stop it with: penstock server stop).")
    show_notices(said)


@server.command(
    "start",
    examples="""
    penstock server start
    penstock server start --auth header --port 8000
    sudo penstock server start --system""",
)
@click.option("--system", is_flag=True, help="For everyone on this machine; needs root.")
@click.option("--auth", type=click.Choice(["token", "header"]), help="How callers over TCP prove who they are.")
@click.option("--host", help="Address the TCP port listens on.")
@click.option("--port", type=click.IntRange(0, 65535), help="TCP port; 0 is any free one.")
@click.option("--foreground", is_flag=True, help="Stay in the foreground, as systemd expects.")
def start(system: bool, auth: str | None, host: str | None, port: int | None, foreground: bool) -> None:
    """Start the server. Jobs that were running go on and are found again."""
    if system and os.geteuid() != 0:
        raise StartRefused("--system needs root.", hint="sudo penstock server start --system")
    given = {"auth": auth, "host": host, "port": port}
    overrides = {"mode": _mode(system), **given}
    if foreground:
        _checked_settings(overrides)
        os.execve(SERVER[0], SERVER, _server_environment(overrides))  # noqa: S606
    said = _start_local(overrides)
    if said is None:
        if system or any(value is not None for value in given.values()):
            raise Conflict("The server is already running.", hint="penstock server stop, then start it again")
        note("The server is already running; see: penstock server status")
        return
    show_notices(said)
    over_tcp = f"API {said['address']} (docs at {said['address']}/docs)" if said["address"] else "no TCP port"
    echo(f"Started: socket {said['socket']}, {over_tcp}")
    if machine_port(load(overrides)) is not None and not wants_own_server():
        note("Note: This machine has a server for everyone. Commands use yours with: export PENSTOCK_MODE=user")


def _mode(system: bool) -> str | None:
    """Return the mode to start in: without root it is a server of one's own, whatever the machine is configured for."""
    if system:
        return "system"
    return "user" if os.geteuid() != 0 and "PENSTOCK_MODE" not in os.environ else None


@server.command("stop", examples="penstock server stop")
def stop() -> None:
    """Stop the server of this machine. Running jobs go on; the next server finds them again."""
    client = Client(as_account=True)
    try:
        facts = client.get("/v1/server")
    except Unreachable as error:
        note(error.message)
        return
    process = os.pidfd_open(facts["pid"])  # until it ends, its lock on the data directory blocks another
    try:
        client.post("/v1/server/stop")
        if not select.select([process], [], [], STOP_SECONDS)[0]:
            raise Conflict(f"The server is still running after {STOP_SECONDS:.0f}s.", hint="penstock server logs")
    finally:
        os.close(process)
    note("Stopped the server. Running jobs go on.")
    if facts["mode"] == "system":
        note(f"Commands on this machine wait for it; if it is gone for good: sudo rm {facts['socket']}")


@server.command("restart", examples="penstock server restart")
def restart() -> None:
    """Restart the server, such as after an upgrade. Its sockets stay open and jobs go on.

    It reads its settings again; flags it was started with stay. Nobody can take its port meanwhile.
    """
    from time import sleep

    client = Client(as_account=True)
    before = client.get("/v1/server")
    process = os.pidfd_open(before["pid"])
    try:
        client.post("/v1/server/restart")
        facts = before
        while facts["started_at"] == before["started_at"]:
            if select.select([process], [], [], 0)[0]:
                raise StartRefused("The server did not start again.", hint="penstock server logs")
            sleep(0.05)
            with suppress(Unreachable):
                facts = client.get("/v1/server")
    finally:
        os.close(process)
    if facts.get("problem"):
        note(f"Note: {facts['problem']}")
    note(f"Restarted the server: version {facts['version']}.")


@server.command("status", examples="penstock server status")
@output_option
def status(output: str) -> int:
    """Show where the server listens and who may call it; exit code 1 if none runs."""
    try:
        facts = Client(as_account=True).get("/v1/server")
    except Unreachable as error:
        note(error.message)
        show_hint(error)
        return 1
    if output in ("json", "yaml"):
        print_data(facts, output)
    elif output == "name":
        echo(facts["address"] or facts["socket"])
    else:
        shown = ("version", "pid", "mode", "engine", "socket", "address", "auth", "data_dir")
        pairs = [(key.replace("_", " ").capitalize(), str(facts.get(key) or "-")) for key in shown]
        problem = [("Problem", facts["problem"])] if facts.get("problem") else []
        print_facts([("Status", "running"), *pairs, *problem, ("Started", short_time(facts.get("started_at")))])
    return 0


@server.command("logs", examples="penstock server logs --tail 20 --follow")
@click.option("--tail", type=click.IntRange(0), default=100, show_default=True, help="Lines from the end.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
@click.option("--system", is_flag=True, help="The log of the server for everyone on this machine.")
def logs(tail: int, follow: bool, system: bool) -> None:
    """Show the server's own log."""
    path = _log_path(load({"mode": "system"} if system else None))
    try:
        file = path.open("rb")
    except OSError as error:
        raise Unreachable(f"{path}: {error.strerror}.", hint="penstock server start") from error
    from collections import deque
    from time import sleep

    with file:
        for line in deque(file, maxlen=tail):
            echo(line.decode(errors="replace"), nl=False)
        while follow:
            echo(file.read().decode(errors="replace"), nl=False)
            sleep(0.2)


def _start_local(overrides: Overrides) -> dict[str, Any] | None:
    """Start the server of this machine and return what it said when healthy; None if one is running."""
    settings = _checked_settings(overrides)
    with _start_lock(settings):
        try:
            connect_unix(str(settings.socket_path)).close()
        except OSError:
            return _spawn(settings, overrides)
        return None


def _checked_settings(overrides: Overrides) -> Settings:
    """Report wrong settings by name before anything is started."""
    if sys.platform != "linux":
        raise StartRefused(
            "The embedded engine needs Linux.", hint="name a server instead: export PENSTOCK_API_URL=https://…"
        )
    return load(overrides)


def _log_path(settings: Settings) -> Path:
    return settings.data_dir / "server.log"


def _server_environment(overrides: Overrides) -> dict[str, str]:
    return os.environ | {f"PENSTOCK_{key.upper()}": str(value) for key, value in overrides.items() if value is not None}


@contextmanager
def _start_lock(settings: Settings) -> Iterator[None]:
    """Hold a lock, so that commands that find no server at the same moment start only one."""
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
    environment = _server_environment(overrides) | {"PENSTOCK_READY_FD": str(writer)}
    try:
        with _opened_log(settings) as log:
            before = log.tell()
            subprocess.Popen(
                SERVER,
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
    """Open the log for its owner alone, since it names people and what they do."""
    handle = os.open(_log_path(settings), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.fchmod(handle, 0o600)
    return os.fdopen(handle, "ab")


def _said(reader: int, settings: Settings, before: int) -> dict[str, Any]:
    with os.fdopen(reader, "rb") as pipe:
        if not select.select([pipe], [], [], START_SECONDS)[0]:
            raise StartRefused(f"The server was not healthy after {START_SECONDS}s.", hint="penstock server logs")
        line = pipe.readline()
    if not line.endswith(b"\n"):
        hint = f"its log is {_log_path(settings)}; the checks are: penstock doctor"
        raise StartRefused("The server ended before it was healthy" + _last_words(settings, before), hint=hint)
    said: dict[str, Any] = json.loads(line)
    if "error" in said:
        raise from_body(500, said["error"])
    return said


def _last_words(settings: Settings, before: int) -> str:
    """Return the last line of its log, which for a Python program is the error."""
    lines = _log_path(settings).read_bytes()[before:].decode(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else "."
