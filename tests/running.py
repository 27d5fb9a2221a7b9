"""A real server process for tests: started, spoken to over its socket, and ended without leaving anything behind."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any

from penstock.cli.server import SERVER
from tests.forking import Forked, fork_server

START_SECONDS = 60
END_SECONDS = 30
KEPT = ("PATH", "LANG", "TMPDIR")
"""Of the environment of whoever runs the tests."""


class SocketConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=90)
        self._path = path

    def connect(self) -> None:
        self.sock = socket(AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class StartFailed(Exception):
    """The server refused to start; str() is what it said."""


@dataclass
class RunningServer:
    process: subprocess.Popen[bytes] | Forked
    place: Path
    socket: Path
    address: str
    """http://127.0.0.1:PORT"""
    notices: list[str]
    environ: dict[str, str]
    """What a command must be started with to talk to this server."""

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and answer (JSON read, other text as text) of a request over the socket."""
        return _exchange(SocketConnection(self.socket), method, path, body, headers)

    def tcp(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """The same over the TCP port."""
        host, port = self.address.removeprefix("http://").split(":")
        return _exchange(HTTPConnection(host, int(port), timeout=90), method, path, body, headers)

    def submit(self, text: str, **more: Any) -> dict[str, Any]:
        status, workload = self.request("POST", "/v1/workloads", {"text": text} | more)
        assert status == 201, workload
        return dict(workload)

    def ended(self, ref: str) -> dict[str, Any]:
        """The workload, once it has ended."""
        status, workload = self.request("GET", f"/v1/workloads/{ref}/wait?timeout=60")
        assert status == 200, workload
        assert workload["ended_at"], workload
        return dict(workload)

    def kill(self) -> None:
        """kill -9, as the kernel or an impatient person does it."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Stops every job and the server; a process that is left over fails the test."""
        if self.process.poll() is None:
            _, stopped = self.request("POST", "/v1/workloads/stop?all_users=true")
            _, ending = self.request("GET", "/v1/workloads?all_users=true&state=REQUESTED_CANCEL&limit=500")
            for workload in [*stopped["items"], *ending["items"]]:
                self.ended(workload["id"])
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(END_SECONDS)
        left = processes_naming(self.place)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"still running: {list(left.values())}"


def _exchange(
    connection: HTTPConnection, method: str, path: str, body: Any, headers: dict[str, str] | None
) -> tuple[int, Any]:
    try:
        sent = {"Content-Type": "application/json"} if body is not None else {}
        data = None if body is None else json.dumps(body)
        connection.request(method, path, body=data, headers=sent | (headers or {}))
        answer = connection.getresponse()
        raw = answer.read()
    finally:
        connection.close()
    is_json = "json" in answer.headers.get("Content-Type", "")
    return answer.status, json.loads(raw) if is_json else raw.decode(errors="replace")


def start_server(
    place: Path, environ: dict[str, str] | None = None, *, executed: bool = False, **settings: str
) -> RunningServer:
    """Starts a server whose home, configuration and data are in `place`, and waits until it answers.

    Forked from a process that has read all its code already, unless it is to be `executed` as users start it.
    """
    chosen = {f"PENSTOCK_{key.upper()}": value for key, value in settings.items()}
    whole = server_environ(place) | (environ or {}) | chosen
    hear, say = os.pipe()
    with (place / "server.log").open("ab") as log:
        start = fork_server if _is_ordinary(whole) and not executed else _executed
        process = start(whole, say, log.fileno())
    os.close(say)
    try:
        ready = _first_line(hear)
    except StartFailed:
        process.kill()
        process.wait()
        raise
    finally:
        os.close(hear)
    if "socket" not in ready:
        process.kill()
        process.wait()
        raise StartFailed(ready.get("error", {}).get("detail") or (place / "server.log").read_text())
    return RunningServer(process, place, Path(ready["socket"]), ready["address"], list(ready.get("notices", [])), whole)


def _is_ordinary(environ: dict[str, str]) -> bool:
    """Nothing in it is for another than the server: not for the linker, and not for Python."""
    return all(key in KEPT or key.startswith(("HOME", "PENSTOCK_", "XDG_")) for key in environ)


def _executed(environ: dict[str, str], ready: int, errors: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        SERVER,
        env=environ | {"PENSTOCK_READY_FD": str(ready)},
        pass_fds=[ready],
        stdin=subprocess.DEVNULL,
        stderr=errors,
    )


def server_environ(place: Path) -> dict[str, str]:
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    return kept | {
        "HOME": str(place),
        "XDG_CONFIG_HOME": str(place / "config"),
        "PENSTOCK_DATA_DIR": str(place / "data"),
        "PENSTOCK_SYSTEM_SOCKET": str(place / "system" / "penstock.sock"),
        "PENSTOCK_PORT": "0",
    }


def _first_line(hear: int) -> dict[str, Any]:
    """The server's ready line, or nothing if it ended without one."""
    heard = b""
    while not heard.endswith(b"\n"):
        if not select.select([hear], [], [], START_SECONDS)[0]:
            raise StartFailed(f"no answer in {START_SECONDS} s")
        part = os.read(hear, 65536)
        if not part:
            break
        heard += part
    return dict(json.loads(heard)) if heard.strip() else {}


def processes_naming(text: Path | str) -> dict[int, str]:
    """Processes with the text, such as a directory, in their command line, by id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(text) in line:
            found[int(entry.name)] = line.strip()
    return found
