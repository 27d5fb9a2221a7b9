"""The first process of a rig's namespaces: starts the others when told over its socket, and reaps whatever ends.

Run as `python holder.py DIRECTORY`, with nothing but the standard library. The caller's side is `processes.py`.

It cannot be started twice or be forgotten: the process that makes the namespaces writes down the holder's number
before it lets it go on. One that is not let go ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

NEW_NAMESPACES = 0x20000000 | 0x00020000 | 0x40000000 | 0x08000000  # CLONE_NEWPID | NEWNS | NEWNET | NEWIPC

SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What kubelet would set for the whole machine, and leave set: it finds them as it wants them instead."""

MADE_UP_SYSTEM = "system"
"""In a rig's directory: what stands for /sys/devices/system, if it is there; see `cpus.py`."""


class Holder:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.commands: dict[str, list[str]] = {}
        """How each component was started the last time."""
        self.running: dict[int, str] = {}
        self.ended: dict[str, int] = {}

    def serve(self) -> None:
        path = self.directory / "holder.sock"
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        with socket.socket(socket.AF_UNIX) as server, selectors.DefaultSelector() as ready:
            path.unlink(missing_ok=True)
            server.bind(str(path))
            path.chmod(0o600)
            server.listen(64)
            ready.register(server, selectors.EVENT_READ, "asked")
            ready.register(woken, selectors.EVENT_READ, "woken")
            while True:
                for key, _ in ready.select():
                    if key.data == "asked":
                        self._answer(server.accept()[0])
                    else:
                        woken.recv(4096)
                self._reap()

    def _answer(self, connection: socket.socket) -> None:
        """Whoever asked is told what went wrong, or has gone already: the holder must live."""
        with contextlib.suppress(OSError), connection, connection.makefile("rw") as stream:
            connection.settimeout(5)
            try:
                answer: Any = self._do(json.loads(stream.readline()))
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            stream.write(json.dumps(answer) + "\n")

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        self._reap()
        name = request.get("name", "")
        if request["do"] == "start":
            return {"process": self._start(name, request.get("command"))}
        if request["do"] == "signal":
            for process in self._processes(name):
                os.kill(process, request["number"])
            return {}
        return {"running": {name: process for process, name in self.running.items()}, "ended": self.ended}

    def _start(self, name: str, command: list[str] | None) -> int:
        if running := self._processes(name):
            return running[0]
        self.commands[name] = command or self.commands[name]
        with (self.directory / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self.commands[name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                restore_signals=True,
            )
        process.returncode = 0  # It is reaped here, not by its Popen.
        self.running[process.pid] = name
        self.ended.pop(name, None)
        return process.pid

    def _processes(self, name: str) -> list[int]:
        return [process for process, its_name in self.running.items() if its_name == name]

    def _reap(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            if name := self.running.pop(process, None):
                self.ended[name] = os.waitstatus_to_exitcode(status)


DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
"""The one place every kubelet uses, whatever its root directory: each mounts a directory of its own there."""


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def separate_mounts(directory: Path) -> None:
    """See to it that nothing that is written outside the rig's directory stays: logs, sockets, sysctls, mounts."""
    _mount("--make-rprivate", "/")
    _mount("--make-rshared", "/")
    _mount("-t", "proc", "proc", "/proc")
    resolver = Path("/etc/resolv.conf").resolve()
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    resolver.parent.mkdir(parents=True, exist_ok=True)
    resolver.touch()
    _mount("--bind", directory / "resolv.conf", resolver)
    for path in ("/var/log", "/var/lib/cni", "/var/lib/kubelet", "/var/lib/containerd"):
        inside = directory / "own" / path[1:].replace("/", "-")
        inside.mkdir(parents=True, exist_ok=True)
        Path(path).mkdir(exist_ok=True)
        _mount("--bind", inside, path)
    DEVICE_PLUGINS.mkdir()
    _mount("--bind", DEVICE_PLUGINS, DEVICE_PLUGINS)
    _mount("--make-private", DEVICE_PLUGINS)
    for name, value in SYSCTLS.items():
        file = directory / "own" / name.replace("/", ".")
        file.write_text(value + "\n")
        _mount("--bind", file, Path("/proc/sys", name))
    if (directory / MADE_UP_SYSTEM).is_dir():
        _mount("--bind", directory / MADE_UP_SYSTEM, "/sys/devices/system")


def main(directory: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NAMESPACES):
        raise OSError(ctypes.get_errno(), "cannot make namespaces")
    let_go, letting_go = os.pipe()
    if holder := os.fork():
        _write_down(directory / "holder", holder)
        os.write(letting_go, b"!")
        return
    os.close(letting_go)
    os.setsid()
    if not os.read(let_go, 1):
        return
    separate_mounts(directory)
    Holder(directory).serve()


def _write_down(file: Path, process: int) -> None:
    """The number and the start time: together they mean one process, for as long as the machine runs."""
    started = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    written = file.with_name("holder.new")
    written.write_text(f"{process} {started}")
    written.rename(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
