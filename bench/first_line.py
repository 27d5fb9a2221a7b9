"""From submit to the first line of the log, beside `bash -c` of the same line."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from socket import AF_UNIX, socket

from bench import server
from bench.table import Line

ROUNDS = 15
SAY = "echo hello"


def lines() -> list[Line]:
    api, command, bash = [], [], []
    with server.running() as served:
        for _ in range(ROUNDS + 1):
            bash.append(_until_output(["bash", "-c", SAY], served.environ))
            api.append(_through_api(served.socket))
            command.append(_until_output([server.program(), "run", "--", "bash", "-c", SAY], served.environ))
    plain = statistics.median(bash[1:])
    line, whole = statistics.median(api[1:]), statistics.median(command[1:])
    goal, met = "≤ 50 ms more", line - plain <= 50
    return [
        Line("submit to first log line, API alone", line, "ms", goal, met, plain, "bash -c", as_difference=True),
        Line("penstock run, to first line", whole, "ms", "-", None, plain, "bash -c", as_difference=True),
    ]


def _until_output(line: list[str], environ: dict[str, str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(
        line, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"hello\n"
        return (time.perf_counter() - began) * 1000


def _through_api(path: Path) -> float:
    """POST, then the followed log on the same connection, until the line is there."""
    with socket(AF_UNIX) as connection:
        connection.connect(str(path))
        began = time.perf_counter()
        connection.sendall(server.post("/v1/workloads", {"text": f"run: {SAY}\n"}))
        answer = _read_until(connection, _whole)
        ref = json.loads(answer.split(b"\r\n\r\n", 1)[1])["id"]
        connection.sendall(server.get(f"/v1/workloads/{ref}/logs?follow=true"))
        _read_until(connection, lambda heard: b"hello\n" in heard)
        return (time.perf_counter() - began) * 1000


def _whole(heard: bytes) -> bool:
    head, found, body = heard.partition(b"\r\n\r\n")
    if not found:
        return False
    return len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])


def _read_until(connection: socket, done: Callable[[bytes], bool]) -> bytes:
    heard = b""
    while not done(heard):
        part = connection.recv(65536)
        if not part:
            raise ConnectionError(heard)
        heard += part
    return heard
