"""The program as a person runs it, against a real server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.running import RunningServer, processes_naming, server_environ, start_server

SECONDS = 60


@dataclass
class Result:
    code: int
    out: str
    err: str


class Program:
    """`penstock` with the environment of one server."""

    def __init__(self, environ: dict[str, str], folder: Path) -> None:
        self.environ = environ
        self.folder = folder
        self._left: list[subprocess.Popen[str]] = []

    def line(self, *words: str, name: str = "penstock") -> list[str]:
        return [str(Path(sys.executable).parent / name), *words]

    def __call__(self, *words: str, stdin: str = "", name: str = "penstock", **environ: str) -> Result:
        done = subprocess.run(
            self.line(*words, name=name),
            input=stdin.encode(),
            capture_output=True,
            env=self.environ | environ,
            cwd=self.folder,
            timeout=SECONDS,
        )
        return Result(done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode())

    def started(self, *words: str, name: str = "penstock") -> subprocess.Popen[str]:
        """Left running, to be spoken to."""
        process = subprocess.Popen(
            self.line(*words, name=name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environ,
            cwd=self.folder,
        )
        self._left.append(process)
        return process

    def end(self) -> None:
        """Nothing that was left running outlives its test."""
        for process in self._left:
            process.kill()
            with process:
                pass

    def on_terminal(self, *words: str, typed: str = "", **environ: str) -> tuple[int, str]:
        """With a terminal for everything; gives the exit code and what the terminal shows."""
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            self.line(*words), stdin=theirs, stdout=theirs, stderr=theirs, env=self.environ | environ, cwd=self.folder
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:
            pass  # how a terminal says that nobody holds it any more
        os.close(ours)
        return process.wait(SECONDS), shown.decode().replace("\r\n", "\n")


def _place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


_module_place = pytest.fixture(scope="module")(_place)


@pytest.fixture(scope="module")
def server(_module_place: Path) -> Iterator[RunningServer]:
    """One server for the tests of a file: they name their own volumes and jobs."""
    running = start_server(_module_place)
    yield running
    running.end()


@pytest.fixture
def penstock(server: RunningServer, tmp_path: Path) -> Iterator[Program]:
    program = Program(server.environ, tmp_path)
    yield program
    program.end()


@pytest.fixture
def alone(place: Path) -> Iterator[Program]:
    """The program where no server runs yet."""
    program = Program(server_environ(place), place)
    yield program
    program.end()
    if program("server", "status").code == 0:
        active = program("jobs", "list", "--status", "pending,running", "-o", "name").out.split()
        program("jobs", "stop", *active)
        program("jobs", "wait", *active)
        assert program("server", "stop").code == 0
    assert not processes_naming(place)


def steady(text: str, item: dict[str, Any]) -> str:
    """Output with what differs from run to run named instead."""
    for key in ("id", "created_at", "started_at", "ended_at"):
        if item.get(key):
            text = text.replace(item[key][:19], f"<{key}>".ljust(8 if key == "id" else 19))
    return text
