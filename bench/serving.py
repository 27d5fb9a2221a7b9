"""The server beside a bare one made of the same parts: start, idle memory, and a list of 100 workloads."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import process, server
from bench.load import Load, put_load
from bench.table import Line
from tests.running import server_environ, start_server

STARTS = 7
PENSTOCK = str(Path(sys.executable).parent / "penstock")
LIST = "/v1/workloads?limit=100"
LIST_ANEW = "/v1/workloads?limit={limit}"
"""A page nobody asked for a moment ago: one that is asked for again is kept until something is written."""
BARE = "bare FastAPI, fixed answer"


def start_lines() -> list[Line]:
    """Interleaved, so that a slow moment of the machine falls on both."""
    ours, theirs, sizes, bare_sizes, typed = [], [], [], [], []
    processes = 1
    for _ in range(STARTS):
        with server.fresh_place() as place:
            began = time.perf_counter()
            served = start_server(place, executed=True)
            status, _ = served.request("GET", "/healthz")
            ours.append(time.perf_counter() - began)
            assert status == 200
            served.request("GET", LIST)
            time.sleep(1)
            size, processes = process.resident(served.process.pid)
            sizes.append(size)
            served.kill()
        with server.fresh_place() as place:
            typed.append(process.run([PENSTOCK, "server", "start"], server_environ(place))[0] / 1000)
        with server.fresh_place() as place:
            began = time.perf_counter()
            with _bare(place, b"{}") as (bare, _):
                theirs.append(time.perf_counter() - began)
                bare_sizes.append(process.resident(bare.pid)[0])
    start, idle = statistics.median(ours), statistics.median(sizes)
    note = f"{processes} process{'es' if processes > 1 else ''}"
    return [
        Line("server start to healthy", start, "s", "≤ 1 s", start <= 1, statistics.median(theirs), BARE),
        Line("penstock server start", statistics.median(typed), "s", "as typed: no goal yet", None),
        Line(
            "server idle memory",
            idle,
            "MB",
            "≤ 100 MB, one process",
            idle <= 100 and processes == 1,
            statistics.median(bare_sizes),
            BARE,
            note,
        ),
    ]


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
        Line("list of 100, p50", p50, "ms", "≤ 2 ms", p50 <= 2, bare_one.p50 * 1000, BARE),
        Line("list of 100, 32 clients", rate, "/s", "≥ 1,500/s", rate >= 1500, bare_many.per_second, BARE),
        Line("the same, nothing written", same.per_second, "/s", "-", None, bare_many.per_second, BARE),
    ]


def stored_lines() -> list[Line]:
    p50 = {}
    for count in (1_000, 100_000):
        with server.running(stored=count) as served:
            put_load(served.socket, server.get(LIST_ANEW), clients=1, seconds=0.5)
            p50[count] = put_load(served.socket, server.get(LIST_ANEW), clients=1, seconds=2).p50 * 1000
    many, few = p50[100_000], p50[1_000]
    return [Line("first page, 100,000 stored", many, "ms", "≤ 10 ms", many <= 10, few, "1,000 stored")]


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
    bare = subprocess.Popen(line, stdout=subprocess.PIPE)
    assert bare.stdout
    try:
        assert bare.stdout.readline() == b"ready\n"
        yield bare, socket
    finally:
        bare.kill()
        bare.wait()
        bare.stdout.close()
