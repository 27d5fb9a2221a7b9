"""The server beside a bare one made of the same parts: start, idle memory, and a list of 100 workloads."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench import process, server
from bench.load import Load, put_load
from bench.table import Line
from tests.running import SocketConnection, server_environ

STARTS = 7
LIST = "/v1/workloads?limit=100"
LIST_ANEW = "/v1/workloads?limit={limit}"
"""A page nobody asked for a moment ago: one that is asked for again is kept until something is written."""
ANEW = "each page read anew, over the socket and connections that stay open"
BARE = "bare FastAPI, fixed answer"


def start_lines() -> list[Line]:
    """In turns, so that a slow moment of the machine falls on all. Each server begins with an empty directory."""
    typed, ours, theirs, sizes, bare_sizes = [], [], [], [], []
    for _ in range(STARTS):
        with server.fresh_place() as place:
            environ = server_environ(place)
            typed.append(process.run([server.program(), "server", "start"], environ)[0] / 1000)
            subprocess.run([server.program(), "server", "stop"], env=environ, check=True, stderr=subprocess.DEVNULL)
        began = time.perf_counter()
        with server.running() as served:
            _ask(served.socket, "/healthz")
            ours.append(time.perf_counter() - began)
            _ask(served.socket, LIST)
            time.sleep(1)
            size, processes = process.resident(served.process.pid)
            sizes.append(size)
        began = time.perf_counter()
        with server.fresh_place() as place, _bare(place, b"{}") as (bare, socket):
            _ask(socket, "/")
            theirs.append(time.perf_counter() - began)
            bare_sizes.append(process.resident(bare.pid)[0])
    start, idle = statistics.median(ours), statistics.median(sizes)
    small = idle <= 100 and processes == 1
    note = f"after one list; {processes} process{'es' if processes > 1 else ''}"
    return [
        Line("penstock server start, until it returns", statistics.median(typed), "s", "-", None),
        Line("server process to first answer", start, "s", "≤ 1 s", start <= 1, statistics.median(theirs), BARE),
        Line(
            "server memory, nothing stored",
            idle,
            "MB",
            "≤ 100 MB, one process",
            small,
            statistics.median(bare_sizes),
            BARE,
            note,
        ),
    ]


def _ask(socket: Path, path: str) -> None:
    with closing(SocketConnection(socket)) as connection:
        connection.request("GET", path)
        assert connection.getresponse().status == 200


def list_lines() -> list[Line]:
    with server.running(stored=100) as served:
        _, body = served.request("GET", LIST)
        assert len(body["items"]) == 100
        one, many = _loads(served.socket, server.get(LIST_ANEW))
        same = put_load(served.socket, server.get(LIST), clients=32, seconds=2)
        with server.fresh_place() as place, _bare(place, json.dumps(body).encode()) as (_, socket):
            bare_one, bare_many = _loads(socket, server.get("/"))
    p50, rate = one.p50 * 1000, many.per_second
    return [
        Line("list of 100, 1 client, p50", p50, "ms", "≤ 2 ms", p50 <= 2, bare_one.p50 * 1000, BARE, ANEW),
        Line("list of 100, 32 clients", rate, "/s", "≥ 1,500/s", rate >= 1500, bare_many.per_second, BARE, ANEW),
        Line("the same page again, 32 clients", same.per_second, "/s", "-", None, bare_many.per_second, BARE),
    ]


def stored_lines() -> list[Line]:
    p50 = {}
    for count in (1_000, 100_000):
        with server.running(stored=count) as served:
            put_load(served.socket, server.get(LIST_ANEW), clients=1, seconds=0.5)
            p50[count] = put_load(served.socket, server.get(LIST_ANEW), clients=1, seconds=2).p50 * 1000
    many, few = p50[100_000], p50[1_000]
    what, note = "first page, 100,000 stored, 1 client, p50", f"of 100 to 239; {ANEW}"
    return [Line(what, many, "ms", "≤ 10 ms", many <= 10, few, "1,000 stored", note)]


def _loads(socket: Path, request: bytes) -> tuple[Load, Load]:
    put_load(socket, request, clients=4, seconds=0.5)
    loads = put_load(socket, request, clients=1, seconds=2), put_load(socket, request, clients=32, seconds=4)
    assert all(set(load.statuses) == {"200"} for load in loads), loads
    return loads


@contextmanager
def _bare(place: Path, body: bytes) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    (place / "body").write_bytes(body)
    socket = place / "bare.sock"
    line = [sys.executable, "-m", "bench.bare_server", str(socket), str(place / "body")]
    bare = subprocess.Popen(line, env=server_environ(place), stdout=subprocess.PIPE)
    assert bare.stdout
    try:
        assert bare.stdout.readline() == b"ready\n"
        yield bare, socket
    finally:
        bare.kill()
        bare.wait()
        bare.stdout.close()
