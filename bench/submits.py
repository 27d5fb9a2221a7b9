"""Durable submits by 16 clients, beside SQLite with one durable transaction per row.

The machine is said to have one CPU and a first job holds it, so that what is measured is submitting: every other job
is checked, stored, answered for after its commit is on the disk, and waits.
"""

from __future__ import annotations

import sqlite3
import time

from bench import server
from bench.load import put_load
from bench.table import Line

SECONDS = 4


def lines() -> list[Line]:
    text = "name: job-{number}\nresources: {cpus: 1}\nrun: echo hello\n"
    request = server.post("/v1/workloads", {"text": text})
    with server.running(cpus="1") as served:
        blocker = served.submit("name: blocker\nresources: {cpus: 1}\nrun: sleep 600\n")
        _await_running(served, blocker["id"])
        put_load(served.socket, request, clients=4, seconds=0.5)
        load = put_load(served.socket, request, clients=16, seconds=SECONDS)
        assert set(load.statuses) == {"201"}, load
    note = f"p99 {load.p99 * 1000:.0f} ms; the jobs wait behind one that holds the only CPU"
    rate = load.per_second
    return [
        Line(
            "durable submits, 16 clients",
            rate,
            "/s",
            "≥ 1,000/s",
            rate >= 1000,
            _one_by_one(),
            "SQLite, one commit per row",
            note,
        )
    ]


def _await_running(served: server.RunningServer, ref: str) -> None:
    while served.request("GET", f"/v1/workloads/{ref}")[1]["status"] != "running":
        time.sleep(0.05)


def _one_by_one() -> float:
    with server.fresh_place() as place:
        database = sqlite3.connect(place / "rows.db", isolation_level=None)
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE jobs (doc TEXT)")
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < 2:
            database.execute("INSERT INTO jobs VALUES (?)", ("x" * 1000,))
            count += 1
        took = time.perf_counter() - began
        database.close()
    return count / took
