"""How the rig's holder is started, spoken to and ended, and how a command is run inside the rig."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.rig import cgroups, holder
from tests.rig.places import ComponentEnded, RigError

Command = Sequence[str | Path]


class Processes:
    """Those of one rig: each has a name, and is started anew with the command it was started with."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def begin(self) -> None:
        """Start the holder, and with it the namespaces everything else lives in."""
        (self.directory / "log").mkdir(exist_ok=True)
        (self.directory / "own").mkdir(exist_ok=True)
        passing = self.directory / "own" / "tmp"  # not /tmp itself: this checkout may be there
        passing.mkdir(exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG")}
        environment["TMPDIR"] = str(passing)
        environment["GOGC"] = "400"  # memory is cheaper than a processor here
        with (self.directory / "log/holder.log").open("ab") as log:
            done = subprocess.run(
                [sys.executable, "-I", holder.__file__, self.directory], stdout=log, stderr=log, env=environment
            )
        if done.returncode:
            raise RigError(f"the rig's first process did not start: {self._last_words('holder')}")
        cgroups.move(self.directory.name, self.holder or 0)
        wait_for("the rig's first process", lambda: self.ask("list") is not None)

    @property
    def holder(self) -> int | None:
        """Its number, if it lives."""
        try:
            number, started = (self.directory / "holder").read_text().split()
            stat = Path("/proc", number, "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        return int(number) if stat[19] == started and stat[0] not in "ZX" else None

    def end(self) -> None:
        """Kill the holder; the kernel kills the rest before it lets it go."""
        number = self.holder
        if number is None:
            return
        handle = os.pidfd_open(number)
        try:
            if self.holder == number:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            wait_for("the end of the rig's processes", lambda: self.holder is None, 60)
        finally:
            os.close(handle)

    def start(self, name: str, *command: str | Path, node: str | None = None) -> None:
        """Start a component, or start it again as it was. One that runs is left alone."""
        inside = ["nsenter", f"--net=/run/netns/{node}"] if node else []
        self.ask("start", name=name, command=[*inside, *map(str, command)] if command else None)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.ask("signal", name=name, number=int(number))

    def stop(self, name: str) -> None:
        """Kill a component, and wait until it is gone."""
        self.signal(name, signal.SIGKILL)
        wait_for(f"the end of {name}", lambda: name not in self.running)

    @property
    def running(self) -> dict[str, int]:
        return dict(self.ask("list")["running"])

    @property
    def ended(self) -> dict[str, int]:
        """Which components ended and were not started again, with their exit codes."""
        return dict(self.ask("list")["ended"])

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(self.directory / "holder.sock"))
            with connection.makefile("rw") as stream:
                stream.write(json.dumps({"do": do} | more) + "\n")
                stream.flush()
                answer: dict[str, Any] = json.loads(stream.readline())
        if "error" in answer:
            raise RigError(f"{do} {more.get('name', '')}: {answer['error']}")
        return answer

    def run(self, *command: str | Path, node: str | None = None, check: bool = True) -> str:
        """What a command run inside the rig, or in a node's network, printed."""
        enter = ["nsenter", f"--target={self.holder}", "--mount", "--net", "--pid", "--ipc"]
        if node:
            enter += ["nsenter", f"--net=/run/netns/{node}"]
        return run(*enter, *command, check=check)

    def check(self, *names: str) -> None:
        """Nobody waits for what has died."""
        for name, code in self.ended.items():
            if name in names or not names:
                raise ComponentEnded(f"{name} ended with code {code}: {self._last_words(name)}")

    def _last_words(self, name: str) -> str:
        file = self.directory / "log" / f"{name}.log"
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        return "\n  ".join([str(file), *lines[-5:]])


def run(*command: str | Path, check: bool = True, text: str | None = None) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, input=text)
    if check and done.returncode:
        words = " ".join(map(str, command))
        raise RigError(f"{words} failed with code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def wait_for(what: str, probe: Callable[[], object], seconds: float = 90) -> None:
    """Until the probe is true. What it raises counts as no, except that a component has ended."""
    end = time.monotonic() + seconds
    reason: object = "not yet"
    while (began := time.monotonic()) < end:
        try:
            if probe():
                return
        except ComponentEnded:
            raise
        except (OSError, RigError) as error:
            reason = error
        time.sleep(pause_after(began))
    raise RigError(f"{what}: still waiting after {seconds:.0f} s ({reason})")


def pause_after(began: float) -> float:
    """Until the next probe: one that starts a program takes its processor time from what is waited for."""
    return min(max(0.02, 2 * (time.monotonic() - began)), 0.5)
